"""Regression tests for fixed bugs of the recorder."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.scripted import START_NS, scripted_run

from hotloop.phases import Phase
from hotloop.profiling.recorder.record_options import RecordOptions
from hotloop.profiling.trace import summary
from hotloop.profiling.trace.load import load
from hotloop.spans import count, hot_path
from hotloop.spans.registry import hook_span

MS = 1_000_000


def test_calls_are_exact_when_the_first_window_ends_at_the_first_step(tmp_path, monkeypatch):
    """Calls drained with the first window were counted there, so the loop had too many calls."""
    with scripted_run(tmp_path, monkeypatch) as run:
        for _ in range(4):
            run.during("load", 25 * MS)
        for _ in range(50):
            run.during("env.step", 10 * MS, "env_steps")
            run.during("load", 2 * MS)
        run.second()
        for _ in range(50):
            run.during("env.step", 10 * MS, "env_steps")
    trace = load(tmp_path)
    calls = {row.name: row.calls for row in summary.spans(trace.thread) if not row.name.startswith("(")}
    assert calls == {"env.step": 100, "load": 50}
    assert trace.main.counts["env_steps"] == 100


def test_the_loop_starts_with_the_outermost_environment(tmp_path, monkeypatch):
    """It started with the innermost one, so the wrappers of the first step were counted as start-up."""
    with scripted_run(tmp_path, monkeypatch) as run:
        run.spend(70 * MS)
        for _ in range(3):
            with run.open(hook_span("Outer.step", Phase.ENV)):
                run.spend(4 * MS)
                run.during(hook_span("Inner.step", Phase.ENV), 6 * MS, "env_steps")
    trace = load(tmp_path)
    assert trace.loop_start_ns == START_NS + 70 * MS
    assert trace.thread.wall_ns == 30 * MS


def test_a_step_counted_after_its_span_starts_the_loop_at_that_span(tmp_path, monkeypatch):
    with scripted_run(tmp_path, monkeypatch) as run:
        run.during("env.reset", 20 * MS)
        run.spend(50 * MS)
        for _ in range(3):
            run.during("env.step", 10 * MS)
            count("env_steps")
    trace = load(tmp_path)
    assert trace.loop_start_ns == START_NS + 70 * MS
    assert trace.thread.wall_ns == 30 * MS


def test_steps_without_a_span_start_the_loop_and_keep_time_monotonic(tmp_path, monkeypatch):
    """The loop was started at the beginning of the last block, which may precede events already folded."""
    with scripted_run(tmp_path, monkeypatch) as run:
        run.during("loss", 40 * MS)
        run.second()
        run.during("loss", 60 * MS)
        count("env_steps")
        run.during("loss", 30 * MS)
    trace = load(tmp_path)
    assert trace.loop_start_ns == START_NS + 100 * MS
    assert trace.thread.wall_ns == 30 * MS
    assert (trace.main.windows.end_ns >= trace.main.windows.start_ns).all()


def test_time_after_the_recording_ended_is_not_part_of_the_run(tmp_path, monkeypatch):
    """With a limit in seconds, everything after it was recorded as one long gap."""
    options = RecordOptions(hz=0, for_s=1.0)
    with scripted_run(tmp_path, monkeypatch, options) as run:
        for _ in range(10):
            run.during("loss", 100 * MS)
        run.second()
        run.during("loss", 30_000 * MS)
    trace = load(tmp_path)
    assert trace.thread.wall_ns == 1000 * MS
    assert sum(row.calls for row in summary.spans(trace.thread)) == 10


def test_events_after_a_cut_keep_their_duration(tmp_path, monkeypatch):
    """Calls made between reading the clock and reading the log got a duration of zero."""
    with scripted_run(tmp_path, monkeypatch) as run:
        run.during("env.step", 10 * MS, "env_steps")
        at = run.now
        run.during("env.step", 10 * MS, "env_steps")
        run.recorder._take_new()
        run.recorder._second(at)
        run.during("env.step", 10 * MS, "env_steps")
    trace = load(tmp_path)
    step = next(row for row in summary.spans(trace.thread) if row.name == "env.step")
    assert (step.calls, step.min_s, step.max_s) == (3, 0.01, 0.01)
    assert trace.main.counts["env_steps"] == 3


def test_calls_counted_since_the_last_block_are_not_lost(tmp_path, monkeypatch):
    """The tally of thinned spans was read only at the end of blocks, not at the end of the run."""
    from hotloop.spans import registry

    each = registry.span("loss.thinned")
    with scripted_run(tmp_path, monkeypatch) as run:
        for _ in range(5):
            run.during(each, 10 * MS)
        registry.make_counted(each)
        for _ in range(7):
            run.during(each, 10 * MS)
    trace = load(tmp_path)
    assert sum(row.calls for row in summary.spans(trace.thread) if row.name == "loss.thinned") == 12


def test_the_first_window_excludes_what_happened_before_the_requested_start(tmp_path, monkeypatch):
    """CPU time, page faults and pauses were counted from the start of the recording."""
    from hotloop.profiling.recorder.process_stats import ProcessStats

    with scripted_run(tmp_path, monkeypatch, RecordOptions(hz=0, after_s=2.0)) as run:
        monkeypatch.setattr(ProcessStats, "_cpu_ns", lambda self: run.now)
        run.recorder._windows.restart(run.now, 0)
        for _ in range(5):
            run.during("loss", 1000 * MS)
            run.second()
    trace = load(tmp_path)
    assert trace.thread.wall_ns == 3000 * MS
    assert trace.main.counts["cpu_ns"] == 3000 * MS
    assert trace.main.windows.start_ns.min() == START_NS + 2000 * MS


@pytest.mark.parametrize("again", [False, True])
def test_steps_before_the_requested_start_are_not_counted(tmp_path, monkeypatch, again):
    with scripted_run(tmp_path, monkeypatch, RecordOptions(hz=0, after_steps=20)) as run:
        for _ in range(20):
            run.during("env.step", 10 * MS, "env_steps")
            if again:
                run.second()
        run.second()
        for _ in range(30):
            run.during("env.step", 10 * MS, "env_steps")
    trace = load(tmp_path)
    assert trace.main.counts["env_steps"] == 30
    assert trace.thread.wall_ns == 300 * MS


COLLECTING = """\
import gc, os, signal, sys, threading

collect = gc.collect
for i in range(20):
    interrupt = threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT))
    try:
        interrupt.start()
        while interrupt.is_alive():
            collect(0)
        for _ in range(1000):  # the signal is sent: it must arrive within a few instructions
            collect(0)
    except KeyboardInterrupt:
        continue
    sys.exit(f"Ctrl-C number {i + 1} was lost")
"""


@pytest.mark.skipif(
    not hot_path.ACCELERATED, reason="the Python implementation may lose one that arrives at a callback's first line"
)
def test_ctrl_c_during_garbage_collection_is_not_lost(tmp_path):
    """An interrupt that arrived during the garbage collector's callback was printed and ignored."""
    script = tmp_path / "collecting.py"
    script.write_text(COLLECTING, encoding="utf-8")
    command = [sys.executable, "-m", "hotloop", "run", "--out", str(tmp_path / "run"), str(script)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_hooks_can_be_installed_if_classes_have_no_module(tmp_path):
    """SWIG, used by Box2D, creates classes without `__module__`; hooks and `--functions` failed on them."""
    pytest.importorskip("Box2D")
    script = (
        "import sys, Box2D, numba\n"
        "assert not hasattr(next(c for c in object.__subclasses__() if c.__name__ == 'SwigPyPacked'), '__module__')\n"
        "from hotloop.profiling.recorder.hooks import install\n"
        "from hotloop.profiling.recorder.deep import functions\n"
        "install()()\n"
        "functions._compiled()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_an_optimiser_of_an_earlier_recording_does_not_hide_updates(tmp_path):
    """The first 49 updates were lost while the main optimiser of the previous recording was still alive."""
    import torch

    import hotloop

    kept = []
    for name in ("first", "second"):
        weight = torch.nn.Parameter(torch.zeros(1))
        optimiser = torch.optim.SGD([weight], lr=0.1)
        kept.append(optimiser)
        with hotloop.record(tmp_path / name, hooks=True):
            for _ in range(60):
                weight.grad = torch.ones(1)
                optimiser.step()
        assert load(tmp_path / name).main.counts["updates"] == 60


def test_the_end_of_the_recorder_is_not_the_trainings_time(tmp_path, monkeypatch):
    """stop() folded up to the moment at which the recorder had ended: that time was the loop's own code."""
    with scripted_run(tmp_path, monkeypatch) as run:
        for _ in range(10):
            run.during("env.step", 10_000_000, "env_steps")
        stopped_at = run.now
        run.spend(200_000_000)
        run.recorder.stop(stopped_at)
    assert load(tmp_path).thread.wall_ns == 100_000_000
