"""The command line in subprocesses: output, exit codes, and one-line errors for invalid calls."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from hotloop.cli import main as cli
from hotloop.clock import wall_ns
from hotloop.profiling.trace.model import FORMAT_VERSION

HOTLOOP = [sys.executable, "-m", "hotloop.cli.main"]
DAY_NS = 86_400 * 1_000_000_000


def call(*words: object, cwd: Path, expect: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*HOTLOOP, *map(str, words)],
        cwd=cwd,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == expect, f"{words} exited {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def make_run(root: Path, name: str, **changes: object) -> Path:
    """Write the manifest and one process folder of a run; it is as many days old as its name has characters."""
    path = root / name
    (path / "123").mkdir(parents=True)
    (path / "123" / "process.json").write_text(json.dumps({"pid": 123, "main": True, "clock_ns": 0}))
    (path / "123" / "windows.arrows").write_bytes(b"x" * 1000)
    manifest = {
        "format": FORMAT_VERSION,
        "name": name,
        "started_unix_ns": wall_ns() - len(name) * DAY_NS,
        "pid": 123,
        "state": "finished",
        "seconds": 12.5,
    } | changes
    (path / "run.json").write_text(json.dumps(manifest))
    return path


def test_without_arguments_it_shows_the_commands_and_a_next_step(tmp_path):
    shown = call(cwd=tmp_path).stdout
    for command in ("run", "explain", "ls", "prune", "doctor"):
        assert f"hotloop {command}" in shown
    assert "Next: hotloop run" in shown
    make_run(tmp_path / "runs", "a")
    assert "Next: hotloop explain" in call(cwd=tmp_path).stdout


def test_version_loads_nothing_heavy(tmp_path):
    code = (
        "import sys; from hotloop.cli.main import main; main(['--version']);"
        "print({'torch', 'numba', 'pyarrow', 'matplotlib', 'rich', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    version, loaded = done.stdout.splitlines()
    assert version.startswith("hotloop ")
    assert loaded == "set()"


@pytest.mark.parametrize("command", ["run", "explain", "ls", "prune", "doctor"])
def test_every_command_has_help(tmp_path, command):
    assert f"hotloop {command}" in call(command, "--help", cwd=tmp_path).stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fly"], "'fly'"),
        (["--fly"], "'--fly'"),
        (["explain", "--fly"], "--fly"),
        (["explain", "--top", "0"], "'0'"),
        (["explain"], "runs"),
        (["explain", "nowhere"], "nowhere"),
        (["explain", "."], "not a run"),
        (["run"], "no script"),
        (["run", "-m"], "-m"),
        (["run", "--budget", "lots", "train.py"], "'lots'"),
        (["run", "--for", "-1", "train.py"], "'-1'"),
        (["run", "--after", "soon", "train.py"], "'soon'"),
        (["prune", "--keep", "few"], "'few'"),
        (["prune", "--older-than", "7"], "'7'"),
        (["prune", "--json"], "--yes"),
    ],
)
def test_invalid_calls_print_one_line_and_exit_with_2(tmp_path, words, message):
    done = call(*words, cwd=tmp_path, expect=2)
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("hotloop: ")
    assert message in lines[0]


def test_an_unknown_or_newer_run_format_is_rejected(tmp_path):
    newer = make_run(tmp_path, "newer", format=FORMAT_VERSION + 1)
    foreign = make_run(tmp_path, "foreign")
    (foreign / "run.json").write_text('{"answer": 42}')
    broken = make_run(tmp_path, "broken")
    (broken / "run.json").write_text('{"format": 1, "na')
    assert "upgrade" in call("explain", newer, cwd=tmp_path, expect=2).stderr
    assert "not written by hotloop" in call("explain", foreign, cwd=tmp_path, expect=2).stderr
    assert "cannot be read" in call("explain", broken, cwd=tmp_path, expect=2).stderr


def test_a_report_can_be_used_in_place_of_its_run(tmp_path):
    run = make_run(tmp_path / "runs", "a")
    (tmp_path / "report.json").write_text(json.dumps({"run": str(run)}))
    (tmp_path / "gone.json").write_text(json.dumps({"run": "runs/gone"}))
    (tmp_path / "other.json").write_text("[]")
    assert "holds no measurement" in call("explain", "report.json", cwd=tmp_path, expect=2).stderr
    assert "no longer exists" in call("explain", "gone.json", cwd=tmp_path, expect=2).stderr
    assert "is not a report of hotloop" in call("explain", "other.json", cwd=tmp_path, expect=2).stderr


def test_ls_shows_name_state_and_size(tmp_path):
    root = tmp_path / "runs"
    make_run(root, "old-one")
    make_run(root, "new", state="running", pid=2**22 + 1)
    me = psutil.Process()
    make_run(root, "live", state="running", pid=me.pid, process_create_time=me.create_time())
    make_run(root, "other", state="running", pid=me.pid, process_create_time=me.create_time() - 100)
    (root / "no-run").mkdir()
    rows = json.loads(call("ls", "--json", cwd=tmp_path).stdout)
    assert isinstance(rows["schema"], int)
    assert {row["exit_code"] for row in rows["runs"]} == {None}, "the format of older runs"
    states = {row["name"]: row["state"] for row in rows["runs"]}
    assert states == {"new": "killed", "live": "running", "other": "killed", "old-one": "finished"}
    assert [row["name"] for row in rows["runs"]] == ["new", "live", "other", "old-one"], "newest first"
    assert all(row["size_bytes"] > 1000 for row in rows["runs"])
    shown = call("ls", cwd=tmp_path).stdout
    assert "old-one" in shown and "killed" in shown and "4 runs" in shown


def test_ls_without_runs_suggests_what_to_do(tmp_path):
    assert "hotloop run" in call("ls", cwd=tmp_path).stdout
    assert json.loads(call("ls", "--json", cwd=tmp_path).stdout)["runs"] == []


def test_prune_deletes_only_old_runs(tmp_path):
    root = tmp_path / "runs"
    kept, old, mine = make_run(root, "a"), make_run(root, "bbb"), make_run(root, "dddd")
    going = make_run(root, "eeeee", state="running", pid=os.getpid())
    (mine / "notes.txt").write_text("mine")
    (root / "no-run").mkdir()
    (root / "no-run" / "data").write_text("precious")
    (root / "link").symlink_to(kept)
    looked = call("prune", "--older-than", "2d", "--dry-run", cwd=tmp_path).stdout
    assert "bbb" in looked and "dddd" in looked and "eeeee" not in looked
    assert old.exists()
    refused = call("prune", "--older-than", "2d", cwd=tmp_path, expect=2)
    assert "--yes" in refused.stderr
    assert old.exists()
    done = call("prune", "--older-than", "2d", "--yes", "--json", cwd=tmp_path)
    answer = json.loads(done.stdout)
    assert answer["removed"] is True
    assert {Path(path).name for path in answer["runs"]} == {"bbb", "dddd"}
    assert not old.exists()
    assert [file.name for file in mine.iterdir()] == ["notes.txt"]
    assert "notes.txt" in done.stderr
    assert kept.exists() and going.exists() and (root / "no-run" / "data").exists()


def test_prune_keeps_the_newest(tmp_path):
    root = tmp_path / "runs"
    for name in ("a", "bb", "ccc"):
        make_run(root, name)
    call("prune", "--keep", "2", "--yes", cwd=tmp_path)
    assert sorted(path.name for path in root.iterdir()) == ["a", "bb"]
    assert "Nothing to clear" in call("prune", "--yes", cwd=tmp_path).stdout


def test_prune_deletes_everything_a_recording_wrote(tmp_path):
    (tmp_path / "train.py").write_text(
        "import time\n"
        "from hotloop import count, span\n"
        "for i in range(200):\n"
        "    with span('env.step'):\n"
        "        count('env_steps')\n"
        "        time.sleep(0.005)\n"
        "    print(f'step {i} took {0.005:.3f} s')\n"
    )
    call("run", "--functions", "3", "--warmup", "5", "--out", "runs/one", "train.py", cwd=tmp_path)
    written = {file.name for file in (tmp_path / "runs" / "one").rglob("*")}
    assert {"functions.json", "claims.json"} <= written
    done = call("prune", "--keep", "0", "--yes", cwd=tmp_path)
    assert not (tmp_path / "runs" / "one").exists()
    assert "did not write" not in done.stderr


def test_prune_keeps_agents_and_reports_it(tmp_path):
    trained = make_run(tmp_path / "runs", "snake")
    (trained / "checkpoints").mkdir()
    (trained / "checkpoints" / "learner").write_bytes(bytes(5000))
    (trained / "config.toml").write_text("seed = 1\n")
    before = sum(file.stat().st_size for file in trained.rglob("*") if file.is_file())
    done = call("prune", "--keep", "0", "--yes", "--json", cwd=tmp_path)
    assert done.stderr.count("kept the agent in") == 1 and "did not write" not in done.stderr
    assert sorted(file.name for file in trained.iterdir()) == ["checkpoints", "config.toml"]
    assert json.loads(done.stdout)["size_bytes"] == before - 5000 - len("seed = 1\n")


def test_permission_errors_are_reported_in_one_line(monkeypatch, capsys):
    def refuse(words, owns_process):
        raise PermissionError(13, "Permission denied", "/somebody/else")

    monkeypatch.setattr(cli, "_dispatch", refuse)
    assert cli.main(["ls"]) == 2
    assert capsys.readouterr().err == "hotloop: /somebody/else: Permission denied: check the path and its permissions\n"


def test_doctor_prints_text_and_json(tmp_path):
    answer = json.loads(call("doctor", "--json", cwd=tmp_path).stdout)
    assert isinstance(answer["schema"], int)
    assert all(check["verdict"] in ("ok", "note", "problem") for check in answer["checks"])
    assert all(check["remedy"] for check in answer["checks"] if check["verdict"] != "ok")
    assert answer["machine"]["cores"] >= 1
    shown = call("doctor", cwd=tmp_path).stdout
    for check in answer["checks"]:
        assert check["name"] in shown


def test_a_closed_pipe_is_not_an_error(tmp_path):
    for i in range(30):
        make_run(tmp_path / "runs", f"run-{i}")
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run([*HOTLOOP, "ls"], cwd=tmp_path, stdout=writing, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(writing)
    assert done.stderr == ""
