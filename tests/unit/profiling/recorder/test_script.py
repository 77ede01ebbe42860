"""What `hotloop run` checks and prepares before Python runs the script."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hotloop.errors import HotloopError, ScriptNotFound
from hotloop.profiling.recorder.script import ScriptOptions, claim_run


@pytest.mark.parametrize(
    ("target", "module", "message"),
    [
        ("absent.py", False, "there is no script absent.py"),
        (".", False, "is a directory without a __main__.py"),
        ("absent.module", True, "there is no module 'absent.module'"),
        ("", True, "there is no module"),
    ],
)
def test_a_missing_script_is_reported_and_nothing_is_created(tmp_path, monkeypatch, target, module, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ScriptNotFound, match=message):
        claim_run(ScriptOptions(target, is_module=module, out=str(tmp_path / "out")))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("target", ["script.py", "folder", "link.py"])
def test_what_python_can_run_is_accepted(tmp_path, monkeypatch, target):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "__main__.py").write_text("")
    (tmp_path / "link.py").symlink_to("script.py")
    assert claim_run(ScriptOptions(target, out="out")) == tmp_path / "out"


def test_two_runs_cannot_claim_one_directory(tmp_path):
    (tmp_path / "script.py").write_text("")
    options = ScriptOptions(str(tmp_path / "script.py"), out=str(tmp_path / "out"))
    assert claim_run(options) == tmp_path / "out"
    before = (tmp_path / "out" / "run.json").read_bytes()
    with pytest.raises(HotloopError, match="is not an empty directory"):
        claim_run(options)
    assert (tmp_path / "out" / "run.json").read_bytes() == before


def test_of_runs_that_start_at_once_one_gets_the_directory(tmp_path):
    (tmp_path / "script.py").write_text("print('ran')")
    command = [sys.executable, "-m", "hotloop", "run", "--out", "out", "script.py"]
    going = [
        subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    ended = [(process.communicate(timeout=60), process.returncode) for process in going]
    assert sorted(code for _, code in ended) == [0, 2, 2, 2]
    assert [out for (out, _), code in ended if code == 0] == ["ran\n"]
    assert all("is not an empty directory" in said and said.count("\n") == 1 for (_, said), code in ended if code)
    assert len([each for each in (tmp_path / "out").iterdir() if each.is_dir()]) == 1


def test_a_folder_that_cannot_be_written_runs_the_script_unrecorded(tmp_path):
    (tmp_path / "script.py").write_text("import sys; print('ran'); sys.exit(5)")
    (tmp_path / "file").write_text("")
    command = [sys.executable, "-W", "error", "-m", "hotloop", "run", "--out", "file/out", "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (5, "ran\n")
    assert done.stderr.startswith("hotloop: cannot write to file/out") and done.stderr.count("\n") == 1


def test_neither_numpy_nor_a_thread_is_added_before_the_first_line(tmp_path):
    """Regression: numpy read the number of threads before a script set it, and scripts that join all threads hung."""
    pytest.importorskip("hotloop.spans._hot_path")
    pytest.importorskip("torch")
    (tmp_path / "script.py").write_text(
        "import sys, threading\nprint('numpy' in sys.modules, 'pyarrow' in sys.modules, threading.active_count())\n"
        "import torch, os\nos.environ['OMP_NUM_THREADS'] = '1'\nprint(torch.get_num_threads())\n"
    )
    plain, recorded = (
        subprocess.run([sys.executable, *words, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
        for words in ([], ["-m", "hotloop", "run", "--out", "out"])
    )
    assert recorded.stdout == plain.stdout
    assert recorded.stdout.startswith("False False 1\n")


def test_a_pipe_is_not_read_before_the_script_is(tmp_path):
    read, write = os.pipe()
    os.write(write, b"print('from a pipe')")
    os.close(write)
    command = [sys.executable, "-m", "hotloop", "run", "--out", str(tmp_path / "out"), f"/dev/fd/{read}"]
    done = subprocess.run(command, pass_fds=[read], capture_output=True, text=True, timeout=60)
    os.close(read)
    assert (done.returncode, done.stdout) == (0, "from a pipe\n"), done.stderr


def test_the_package_is_found_where_only_hotloop_itself_could_find_it(tmp_path):
    (tmp_path / "script.py").write_text("import sys; print([each for each in sys.path if 'hotloop' in each])")
    source = Path(__file__).parents[4] / "src"
    code = (
        f"import sys; sys.path.insert(0, {str(source)!r}); sys.argv = ['hotloop', 'run', '--out', 'out', 'script.py']; "
    )
    code += "from hotloop.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "hotloop: recorded out" in done.stderr
