"""Whether a run is alive, as far as that can be known here, and what is removed of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from hotloop.cli.main import main
from hotloop.clock import wall_ns
from hotloop.errors import HotloopError
from hotloop.profiling.trace.host import Host, this_host
from hotloop.profiling.trace.liveness import SILENT_S, SILENT_WITHOUT_HOST_S, why_kept
from hotloop.profiling.trace.load import load
from hotloop.profiling.trace.model import FORMAT_VERSION
from hotloop.profiling.trace.removal import remove
from hotloop.profiling.trace.run_list import info, list_runs, size_of

NOBODY = 2**22 + 12_345
"""A process id that no process has."""
HERE = this_host()
REBOOTED = replace(HERE, boot="another")
CONTAINER = replace(HERE, pid_namespace="pid:[1]")
ELSEWHERE = Host("another", "another", "pid:[1]")


def make_run(root: Path, name: str = "run", silent_s: float = 1e6, **changes: Any) -> Path:
    """Write a run that was last written to some time ago."""
    path = root / name
    folder = path / "123-000000001"
    folder.mkdir(parents=True)
    (folder / "process.json").write_text(json.dumps({"pid": 123, "main": True, "clock_ns": 0}))
    (folder / "state.json").write_text("{}")
    (folder / "windows.arrows").write_bytes(b"x" * 1000)
    manifest = {"format": FORMAT_VERSION, "started_unix_ns": wall_ns(), "pid": NOBODY, "state": "running"} | changes
    (path / "run.json").write_text(json.dumps(manifest))
    for file in (path / "run.json", folder / "state.json"):
        os.utime(file, times=(wall_ns() / 1e9 - silent_s,) * 2)
    return path


def kept(path: Path) -> str:
    run = info(path)
    return why_kept(run.path, run.manifest, run.state)


@pytest.mark.parametrize(
    ("host", "state", "removable"),
    [(HERE, "killed", True), (REBOOTED, "killed", True), (CONTAINER, "unknown", False), (ELSEWHERE, "unknown", False)],
)
def test_a_process_id_is_valid_only_on_its_own_host(tmp_path, host, state, removable):
    path = make_run(tmp_path, host=asdict(host))
    assert info(path).state == state
    assert (kept(path) == "") is removable


@pytest.mark.parametrize("missing", ["machine", "boot", "pid_namespace"])
def test_unknown_fields_of_a_host_are_never_equal(missing):
    without = replace(HERE, **{missing: ""})
    assert not without.was_restarted(without)
    assert without.shares_processes(without) is (missing == "machine")
    assert not replace(without, boot="").was_restarted(HERE)


def test_a_run_of_a_live_process_here_is_running(tmp_path):
    me = psutil.Process()
    path = make_run(tmp_path, host=asdict(HERE), pid=me.pid, process_create_time=me.create_time())
    assert info(path).state == "running"
    assert kept(path) == "it is still running"


@pytest.mark.parametrize(
    ("host", "silent_s", "removable"),
    [
        (HERE, SILENT_S / 2, False),
        (HERE, SILENT_S * 2, True),
        (None, SILENT_S * 2, False),
        (None, SILENT_WITHOUT_HOST_S * 2, True),
    ],
)
def test_a_run_that_was_just_written_to_is_not_removed(tmp_path, host, silent_s, removable):
    path = make_run(tmp_path, silent_s=silent_s, host=asdict(host) if host else None)
    assert info(path).state == "killed"
    assert (kept(path) == "") is removable


def test_a_run_that_could_not_write_its_end_was_not_killed(tmp_path):
    path = make_run(tmp_path, host=asdict(HERE))
    (path / "run.json.part").touch()
    assert info(path).state == "ended"


def test_prune_keeps_what_may_be_alive_elsewhere_and_force_removes_it(tmp_path, capsys):
    far, gone = make_run(tmp_path, "far", host=asdict(ELSEWHERE)), make_run(tmp_path, "gone", host=asdict(HERE))
    assert main(["prune", "--dir", str(tmp_path), "--keep", "0", "--yes"]) == 0
    assert far.exists() and not gone.exists()
    assert f"kept {far}: it may be running on another machine" in capsys.readouterr().err
    assert main(["prune", "--dir", str(tmp_path), "--keep", "0", "--yes", "--force"]) == 0
    assert not far.exists()


def test_force_does_not_remove_what_is_running_here(tmp_path):
    me = psutil.Process()
    path = make_run(tmp_path, host=asdict(HERE), pid=me.pid, process_create_time=me.create_time())
    assert main(["prune", "--dir", str(tmp_path), "--keep", "0", "--yes", "--force"]) == 0
    assert path.exists()


def test_ls_shows_a_run_that_may_be_alive_elsewhere(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "runs", host=asdict(ELSEWHERE))
    assert main(["ls"]) == 0
    assert "running elsewhere?" in capsys.readouterr().out


def outside(tmp_path: Path) -> Path:
    """Make a folder outside of all runs, with files that have the names of ours."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "process.json").write_text(json.dumps({"pid": 1, "main": True, "clock_ns": 0}))
    (folder / "windows.arrows").write_text("precious")
    return folder


def test_a_linked_process_folder_is_not_followed(tmp_path):
    precious = outside(tmp_path)
    path = make_run(tmp_path / "runs", state="finished")
    (path / "456-000000002").symlink_to(precious, target_is_directory=True)
    assert remove(info(path)) == [path / "456-000000002"]
    assert (precious / "windows.arrows").read_text() == "precious"


def test_linked_files_are_kept(tmp_path):
    precious = outside(tmp_path)
    path = make_run(tmp_path / "runs", state="finished")
    (path / "123-000000001" / "raw.arrows").symlink_to(precious / "windows.arrows")
    remove(info(path))
    assert (path / "123-000000001" / "raw.arrows").is_symlink()
    assert (precious / "windows.arrows").read_text() == "precious"


def test_a_run_that_was_swapped_for_a_link_is_not_followed(tmp_path):
    path = make_run(tmp_path / "runs", state="finished", started_unix_ns=5)
    other = make_run(tmp_path / "other", state="finished", started_unix_ns=5)
    listed = info(path)
    shutil.rmtree(path)
    path.symlink_to(other, target_is_directory=True)
    with pytest.raises(OSError):
        remove(listed)
    assert (other / "123-000000001" / "windows.arrows").exists()


def test_a_run_that_began_after_it_was_listed_is_not_removed(tmp_path):
    path = make_run(tmp_path, state="finished")
    listed = info(path)
    shutil.rmtree(path)
    make_run(tmp_path, state="finished", started_unix_ns=7)
    with pytest.raises(HotloopError, match="another run is there"):
        remove(listed)


def test_files_of_other_programs_with_similar_names_are_kept(tmp_path):
    path = make_run(tmp_path, state="finished")
    mine, theirs = path / "123-000000001", path / "theirs"
    (mine / "notes.arrow").write_text("mine")
    theirs.mkdir()
    (theirs / "process.json").write_text('{"name": "somebody"}')
    (theirs / "windows.arrows").write_text("theirs")
    assert remove(info(path)) == [mine, theirs]
    assert [each.name for each in mine.iterdir()] == ["notes.arrow"]
    assert len(list(theirs.iterdir())) == 2


def test_the_size_of_a_run_does_not_follow_links(tmp_path):
    path = make_run(tmp_path / "runs", state="finished")
    before = size_of(path)
    (path / "link").symlink_to(path, target_is_directory=True)
    assert size_of(path) == before


RECORD = """
import os, time, hotloop
with hotloop.record("runs/live"):
    for _ in range(600):
        with hotloop.span("env.step"):
            hotloop.count("env_steps")
            time.sleep(0.05)
        if os.path.exists("stop"):
            break
"""


@pytest.mark.skipif(
    shutil.which("unshare") is None or subprocess.run(["unshare", "-pf", "true"], capture_output=True).returncode != 0,
    reason="needs the right to make a process namespace",
)
def test_a_live_run_of_another_process_namespace_is_not_removed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(RECORD)
    started = subprocess.Popen(["unshare", "-pf", sys.executable, "train.py"], cwd=tmp_path)
    try:
        manifest = tmp_path / "runs" / "live" / "run.json"
        while not list(tmp_path.glob("runs/live/*/state.json")):
            assert started.poll() is None
        assert json.loads(manifest.read_text())["host"]["pid_namespace"] != HERE.pid_namespace
        assert [each.state for each in list_runs(tmp_path / "runs")] == ["unknown"]
        assert main(["prune", "--keep", "0", "--yes"]) == 0
        assert "may be running" in capsys.readouterr().err
        assert manifest.exists()
        assert load(manifest.parent).state == "unknown"
    finally:
        (tmp_path / "stop").touch()
        started.wait(30)
    assert info(manifest.parent).state == "finished"
