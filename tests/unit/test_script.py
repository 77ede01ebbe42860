"""Running a script as Python would: its arguments, its name, its path, its exit code."""

from __future__ import annotations

import sys

import pytest

from hotloop import spans
from hotloop.errors import ScriptNotFound
from hotloop.record.script import ScriptOptions, run_script


@pytest.fixture(autouse=True)
def as_it_was():
    saved = sys.argv, list(sys.path), sys.modules["__main__"]
    yield
    assert sys.argv == saved[0]
    assert not spans.recording()
    sys.path[:], sys.modules["__main__"] = saved[1], saved[2]


def run(tmp_path, body: str, *args: str):
    path = tmp_path / "script.py"
    path.write_text(body)
    return run_script(ScriptOptions(str(path), args, out=str(tmp_path / "out")))


def test_a_script_sees_what_it_would_see_under_python(tmp_path, capsys):
    (tmp_path / "beside.py").write_text("VALUE = 42\n")
    body = (
        "import sys, os, beside\n"
        "print(__name__, sys.argv[1:], os.path.basename(__file__), beside.VALUE, sys.modules['__main__'].__name__)\n"
        "print(sys.path[0] == os.path.dirname(__file__), __spec__)\n"
    )
    result = run(tmp_path, body, "--lr", "1", "-m")
    assert capsys.readouterr().out.splitlines() == [
        "__main__ ['--lr', '1', '-m'] script.py 42 __main__", "True None",
    ]  # fmt: skip
    assert result.exit_code == 0
    assert result.path == tmp_path / "out"
    sys.modules.pop("beside")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("", 0), ("import sys; sys.exit()", 0), ("import sys; sys.exit(4)", 4), ("import sys; sys.exit('why')", 1),
        ("raise KeyError('x')", 1), ("raise KeyboardInterrupt", 130), ("import sys; sys.exit(True)", 1),
    ],
)  # fmt: skip
def test_exit_codes(tmp_path, body, code, capsys):
    assert run(tmp_path, body).exit_code == code
    told = capsys.readouterr().err
    assert ("why" in told) == ("'why'" in body)
    assert ("KeyError" in told) == ("KeyError" in body)


@pytest.mark.parametrize(
    ("target", "module", "told"),
    [
        ("absent.py", False, "there is no script absent.py"),
        (".", False, "is a directory"),
        ("absent.module", True, "there is no module 'absent.module'"),
        ("", True, "there is no module"),
    ],
)
def test_what_is_not_there(tmp_path, monkeypatch, target, module, told):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ScriptNotFound, match=told):
        run_script(ScriptOptions(target, is_module=module, out=str(tmp_path / "out")))
    assert not (tmp_path / "out").exists()


def test_what_is_no_python(tmp_path):
    with pytest.raises(ScriptNotFound, match="is not Python"):
        run(tmp_path, "def f(:")


def test_a_module_is_run_by_its_name(tmp_path, monkeypatch, capsys):
    (tmp_path / "amodule.py").write_text("import sys\nprint(__name__, sys.argv[1:])\nsys.exit(6)\n")
    monkeypatch.chdir(tmp_path)
    result = run_script(ScriptOptions("amodule", ("x",), is_module=True, out=str(tmp_path / "out")))
    assert result.exit_code == 6
    assert capsys.readouterr().out == "__main__ ['x']\n"


def test_threads_of_the_script_are_waited_for_and_find_its_folder(tmp_path, capsys):
    (tmp_path / "later.py").write_text("VALUE = 7\n")
    body = (
        "import threading, time\n"
        "def train():\n"
        "    time.sleep(0.2)\n"
        "    import later\n"
        "    from hotloop import spans\n"
        "    print('trained', later.VALUE, spans.recording())\n"
        "threading.Thread(target=train).start()\n"
    )
    assert run(tmp_path, body).exit_code == 0
    assert capsys.readouterr().out == "trained 7 True\n"
    sys.modules.pop("later")


def test_the_threads_of_an_executor_are_left_to_python(tmp_path, capsys):
    body = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "pool = ThreadPoolExecutor(2)\n"
        "print(pool.submit(lambda: 5).result())\n"
    )
    assert run(tmp_path, body).exit_code == 0
    assert capsys.readouterr().out == "5\n"


def test_what_a_package_misses_is_told_by_the_package(tmp_path, monkeypatch, capsys):
    (tmp_path / "mypackage").mkdir()
    (tmp_path / "mypackage" / "__init__.py").write_text("import no_such_dependency\n")
    (tmp_path / "mypackage" / "train.py").write_text("")
    monkeypatch.chdir(tmp_path)
    result = run_script(ScriptOptions("mypackage.train", (), is_module=True, out=str(tmp_path / "out")))
    assert result.exit_code == 1
    assert "No module named 'no_such_dependency'" in capsys.readouterr().err
