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
