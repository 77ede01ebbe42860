"""Reading runs: several processes, states, and what is no run."""

from __future__ import annotations

import json
import os

import pytest
from tests.scripted import START_NS, scripted_run

from hotloop.errors import RunNotFound, RunUnreadable
from hotloop.trace.load import load

MS = 1_000_000


@pytest.fixture
def run(tmp_path, monkeypatch):
    with scripted_run(tmp_path / "run", monkeypatch) as going:
        for _ in range(4):
            going.during("env.step", 250 * MS, "env_steps")
    return tmp_path / "run"


def change(path, **values) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_nothing_there_no_run_and_a_newer_format(tmp_path, run):
    with pytest.raises(RunNotFound, match="no run at"):
        load(tmp_path / "absent")
    (tmp_path / "other").mkdir()
    with pytest.raises(RunUnreadable, match="is not a run of hotloop"):
        load(tmp_path / "other")
    change(run / "run.json", format=2_000)
    with pytest.raises(RunUnreadable, match=r"format 2000, this hotloop reads up to .*: upgrade"):
        load(run)


def test_a_run_whose_process_is_gone_was_killed_and_one_that_lives_is_running(run):
    change(run / "run.json", state="running", pid=2**22 + 12345)
    trace = load(run)
    assert trace.state == "killed"
    assert any("killed" in each for each in trace.warnings)
    change(run / "run.json", pid=os.getpid())
    assert load(run).state == "running"
    change(run / "run.json", process_create_time=1.0)
    assert load(run).state == "killed", "the number was given to another process"


def test_a_run_without_windows_holds_no_measurement(run):
    for file in (run / "process").glob("*.arrow*"):
        file.unlink()
    with pytest.raises(RunUnreadable, match="holds no measurement"):
        load(run)


def test_a_process_folder_that_is_not_ours_is_left_out(run):
    (run / "theirs").mkdir()
    (run / "theirs" / "process.json").write_text('{"name": "somebody"}')
    (run / "broken").mkdir()
    (run / "broken" / "process.json").write_text("{")
    trace = load(run)
    assert len(trace.processes) == 1
    assert trace.main.counts["env_steps"] == 4


def test_names_times_and_counts_of_the_process(run):
    main = load(run).main
    assert (main.pid, main.main) == (os.getpid(), True)
    assert (main.start_ns, main.end_ns) == (START_NS, START_NS + 1000 * MS)
    assert main.memory.rss_bytes.min() > 0
    assert main.overhead.span_ns == 0
