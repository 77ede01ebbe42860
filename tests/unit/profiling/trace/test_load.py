"""Reading runs: several processes, states, and what is no run."""

from __future__ import annotations

import json
import os
import shutil

import pytest
from tests.scripted import START_NS, scripted_run

from hotloop.errors import RunNotFound, RunUnreadable
from hotloop.phases import Phase
from hotloop.profiling.recorder.process_stats import ProcessStats
from hotloop.profiling.trace import stream_store, summary
from hotloop.profiling.trace.load import load

MS = 1_000_000


@pytest.fixture
def run(tmp_path, monkeypatch):
    with scripted_run(tmp_path / "run", monkeypatch) as going:
        for _ in range(4):
            going.during("env.step", 250 * MS, "env_steps")
    return tmp_path / "run"


def change(path, **values) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_missing_runs_other_folders_and_newer_formats_are_errors(tmp_path, run):
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


def test_an_invalid_process_folder_is_skipped(run):
    (run / "theirs").mkdir()
    (run / "theirs" / "process.json").write_text('{"name": "somebody"}')
    (run / "broken").mkdir()
    (run / "broken" / "process.json").write_text("{")
    trace = load(run)
    assert len(trace.processes) == 1
    assert trace.main.counts["env_steps"] == 4


def test_a_window_in_both_stream_and_tail_counts_once(run):
    before = load(run)
    for table in ("windows", "counters", "memory", "spans"):
        # What a kill between the two leaves behind.
        (run / "process" / f"{table}.tail.arrow").write_bytes((run / "process" / f"{table}.arrows").read_bytes())
    after = load(run)
    assert after.main.counts["env_steps"] == before.main.counts["env_steps"] == 4
    assert after.thread.wall_ns == before.thread.wall_ns


def test_evaluation_does_not_count_as_training(tmp_path, monkeypatch):
    with scripted_run(tmp_path / "run", monkeypatch) as going:
        for _ in range(4):
            going.during("env.step", 100 * MS, "env_steps")
        with going.open("evaluate"):
            going.during("env.step", 200 * MS, "env_steps", "episodes")
            going.spend(50 * MS)
            going.during("env.step", 200 * MS, "env_steps")
        going.during("env.step", 100 * MS, "env_steps")
    trace = load(tmp_path / "run")
    assert (trace.main.counts["env_steps"], trace.main.counts["evaluation_env_steps"]) == (5, 2)
    assert "episodes" not in trace.main.counts and trace.main.counts["evaluation_episodes"] == 1
    by_phase = dict.fromkeys(Phase, 0)
    for node in trace.thread.nodes:
        by_phase[node.phase] += node.self_ns
    assert (by_phase[Phase.ENV], by_phase[Phase.EVALUATE]) == (500 * MS, 450 * MS)
    assert trace.main.windows.counts["env_steps"].sum() == 5


def test_a_program_that_only_evaluates_has_its_steps_counted(tmp_path, monkeypatch):
    with scripted_run(tmp_path / "run", monkeypatch) as going, going.open("evaluate"):
        for _ in range(3):
            going.during("env.step", 100 * MS, "env_steps")
    assert load(tmp_path / "run").main.counts["env_steps"] == 3


def test_a_failed_recorder_is_reported_and_the_state_is_the_scripts(run):
    change(run / "run.json", state="finished", recorder_failed="OSError: no space")
    trace = load(run)
    assert trace.state == "finished"
    assert any("stopped before the script did (OSError: no space)" in each for each in trace.warnings)


def test_names_times_and_counts_of_the_process(run):
    main = load(run).main
    assert (main.pid, main.main) == (os.getpid(), True)
    assert (main.start_ns, main.end_ns) == (START_NS, START_NS + 1000 * MS)
    assert main.memory.rss_bytes.min() > 0
    assert main.overhead.span_ns == 0


def test_a_process_with_its_own_clock_is_converted_to_the_main_clock(run):
    """Its clock began 5 s later than the main process's; both noted the wall clock beside their own."""
    shutil.copytree(run / "process", run / "worker")
    behind = 5_000 * MS
    change(run / "worker" / "process.json", main=False, pid=77, clock_ns=START_NS - behind, wall_ns=1)
    state = json.loads((run / "worker" / "state.json").read_text())
    moved = {name: state[name] - behind for name in ("until_ns", "start_ns", "loop_start_ns")}
    change(run / "worker" / "state.json", **moved)
    table = stream_store.read_file(run / "worker", "memory").columns
    (run / "worker" / "memory.arrows").unlink()
    files = stream_store.ProcessFiles(run / "worker")
    files.append("memory", table | {name: table[name] - behind for name in ("start_ns", "end_ns")})
    files.close()
    trace = load(run)
    main, worker = trace.processes
    assert (worker.pid, worker.start_ns, worker.end_ns) == (77, main.start_ns, main.end_ns)
    assert worker.counts["env_steps"] == 4


def test_a_short_worker_loop_at_the_edge_of_a_window_is_read(run):
    """The main process makes no steps, and its one window reaches far beyond the worker's last one."""
    shutil.copytree(run / "process", run / "worker")
    change(run / "worker" / "process.json", main=False, pid=77)
    table = stream_store.read_file(run / "worker", "memory").columns
    (run / "worker" / "memory.arrows").unlink()
    files = stream_store.ProcessFiles(run / "worker")
    files.append("memory", table | {"end_ns": table["start_ns"] + 300 * MS})
    files.close()
    (run / "process" / "counters.arrows").unlink()
    trace = load(run)
    assert [process.pid for process in trace.processes] == [os.getpid(), 77]
    assert trace.processes[1].counts["env_steps"] == 4


@pytest.mark.parametrize(("share", "told"), [(0.2, ["0.6 s of the loop"]), (0.05, [])])
def test_a_main_thread_without_a_core_is_reported(tmp_path, monkeypatch, share, told):
    # Four windows, of which the loop takes three.
    waited = [7 * MS]
    totals = ProcessStats.totals
    monkeypatch.setattr(ProcessStats, "totals", lambda self: totals(self) | {"starved_ns": waited[0]})
    with scripted_run(tmp_path / "run", monkeypatch) as going:
        for _ in range(4):
            going.during("env.step", 1000 * MS, "env_steps")
            waited[0] += round(share * 1000 * MS)
            going.second()
    found = [each for each in load(tmp_path / "run").warnings if "had no core" in each]
    assert [each.partition("no core for ")[2].partition(":")[0] for each in found] == told


def test_the_last_learning_phase_belongs_to_the_loop(tmp_path, monkeypatch):
    """Collects, then learns for seconds without a step; what comes after the last update is not the loop."""
    with scripted_run(tmp_path / "run", monkeypatch) as going:
        for _ in range(2):
            for _ in range(4):
                going.during("env.step", 250 * MS, "env_steps")
            going.second()
            for _ in range(3):
                going.during("learn.update", 1000 * MS)
                going.second()
            going.during("learn.update", 1000 * MS, "updates")
            going.second()
        for _ in range(3):
            going.during("evaluate", 1000 * MS)
            going.second()
    trace = load(tmp_path / "run")
    assert (trace.main.counts["env_steps"], trace.main.counts["updates"]) == (8, 2)
    assert trace.wall_s == 10.0
    assert trace.main.windows.counts["updates"][trace.main.windows.in_loop].sum() == 2


def test_updates_at_the_edge_of_a_workers_loop_are_counted(tmp_path, monkeypatch):
    """A worker steps, in a loop that begins late and ends early in the windows in which the main process learns."""
    with scripted_run(tmp_path / "run", monkeypatch) as going:
        for _ in range(3):
            going.during("learn.update", 1000 * MS, "updates")
            going.second()
    with scripted_run(tmp_path / "other", monkeypatch) as going:
        going.spend(900 * MS)
        for _ in range(3):
            going.during("env.step", 500 * MS, "env_steps", "frames", "episodes")
    shutil.copytree(tmp_path / "other" / "process", tmp_path / "run" / "worker")
    change(tmp_path / "run" / "worker" / "process.json", main=False, pid=77)
    trace = load(tmp_path / "run")
    assert summary.counts(trace) == summary.Counts(3, 3, 3, 3, 1.0)
    for name in ("env_steps", "frames", "updates", "episodes"):
        assert summary.window_amounts(trace, name)[2].sum() == 3


def test_a_main_process_that_counts_steps_counts_the_episodes_too(run):
    shutil.copytree(run / "process", run / "worker")
    change(run / "worker" / "process.json", main=False, pid=77)
    names = (run / "worker" / "names.jsonl").read_text()
    (run / "worker" / "names.jsonl").write_text(names.replace('"env_steps"', '"episodes"'))
    assert summary.counts(load(run)) == summary.Counts(4, 0, 0, 0, None)


def test_a_resumed_run_has_its_own_counts_and_totals(run):
    change(run / "run.json", counts_before={"env_steps": 100, "frames": 400, "updates": 7, "episodes": 13})
    trace = load(run)
    assert summary.counts(trace) == summary.Counts(4, 0, 0, 0, None)
    assert summary.counts_total(trace) == summary.Counts(104, 400, 7, 13, 8.0)
    assert summary.count_over_time(trace, "env_steps").tolist()[-1] == 104
