"""A scripted loop, recorded with a clock turned by hand: every phase is exact to the nanosecond."""

from __future__ import annotations

import numpy as np
import pytest
from tests.scripted import START_NS, Run, scripted_run

from hotloop.phases import Phase
from hotloop.profiling.recorder.call_tree import thread_totals as account
from hotloop.profiling.recorder.call_tree.thread_totals import Account
from hotloop.profiling.trace import summary
from hotloop.profiling.trace.load import load
from hotloop.profiling.trace.model import Node, Thread, Trace
from hotloop.spans import registry
from hotloop.spans.registry import hook_span

MS = 1_000_000
PER_ITERATION_MS = {
    "env": 90 + 10,
    "store": 20,
    "sample": 50,
    "forward": 60,
    "backward": 120,
    "optimise": 30,
    "act": 40,
    "own code": 3 + 2 + 7 + 11 + 4 + 6 + 5,
}
STARTUP_MS = 300


def step(run: Run, cut: bool = False) -> None:
    """An environment step: a wrapper around the environment itself."""
    with run.open(hook_span("TimeLimit.step", Phase.ENV)):
        run.spend(10 * MS)
        if cut:
            run.second()
        run.during(hook_span("CartPoleEnv.step", Phase.ENV), 90 * MS, "env_steps")


def iteration(run: Run) -> None:
    """What comes between two environment steps."""
    network = hook_span("QNetwork", Phase.FORWARD)
    run.spend(3 * MS)
    run.during(hook_span("ReplayBuffer.add", Phase.STORE), 20 * MS)
    run.spend(2 * MS)
    run.during(hook_span("ReplayBuffer.sample", Phase.SAMPLE), 50 * MS)
    run.spend(7 * MS)
    run.during(network, 60 * MS)
    run.spend(11 * MS)
    run.during(hook_span("backward", Phase.BACKWARD), 120 * MS)
    run.spend(4 * MS)
    run.during(hook_span("Adam.step", Phase.OPTIMISE), 30 * MS, "updates")
    run.spend(6 * MS)
    run.during(network, 40 * MS)
    run.spend(5 * MS)


def scripted_loop(run: Run, iterations: int, cut_every: int) -> None:
    run.spend(STARTUP_MS * MS)
    step(run)
    for i in range(iterations):
        iteration(run)
        step(run, cut=i % cut_every == cut_every - 1)


def phases_ms(trace: Trace) -> dict[str, float]:
    return {row.phase: row.self_s * 1e3 for row in summary.phases(trace.thread)}


def expected_ms(iterations: int) -> dict[str, float]:
    return {phase: ms * iterations + (100 if phase == "env" else 0) for phase, ms in PER_ITERATION_MS.items()}


@pytest.mark.parametrize("cut_every", [1, 2, 3, 7, 100])
def test_every_phase_of_a_scripted_loop_is_exact(tmp_path, monkeypatch, cut_every):
    with scripted_run(tmp_path, monkeypatch) as run:
        scripted_loop(run, 12, cut_every)
    trace = load(tmp_path)
    assert phases_ms(trace) == pytest.approx(expected_ms(12), abs=1e-6)
    assert trace.startup_ns == STARTUP_MS * MS
    assert trace.loop_start_ns == START_NS + STARTUP_MS * MS
    assert trace.thread.wall_ns == sum(expected_ms(12).values()) * MS
    assert trace.wall_s * 1e9 == trace.thread.wall_ns
    counts = summary.counts(trace)
    assert (counts.env_steps, counts.updates) == (13, 12)
    assert node_of(trace.thread, "TimeLimit.step", "CartPoleEnv.step").counts == {"env_steps": 13}


def node_of(thread: Thread, *path: str, phase: Phase | None = None) -> Node:
    found = [n for n in thread.nodes if thread.path(n) == path and phase in (None, n.phase)]
    assert len(found) == 1, (path, found)
    return found[0]


def test_every_node_of_a_scripted_loop_is_exact(tmp_path, monkeypatch):
    with scripted_run(tmp_path, monkeypatch) as run:
        scripted_loop(run, 12, 5)
    thread = load(tmp_path).thread
    outer, inner = node_of(thread, "TimeLimit.step"), node_of(thread, "TimeLimit.step", "CartPoleEnv.step")
    assert (outer.calls, outer.total_ns, outer.self_ns) == (13, 1300 * MS, 130 * MS)
    assert (inner.calls, inner.total_ns, inner.self_ns) == (13, 1170 * MS, 1170 * MS)
    assert (inner.min_ns, inner.max_ns) == (90 * MS, 90 * MS)
    assert inner.p50_ns == pytest.approx(90 * MS, rel=0.05)
    forward, act = (node_of(thread, "QNetwork", phase=p) for p in (Phase.FORWARD, Phase.ACT))
    assert (forward.calls, forward.total_ns) == (12, 720 * MS)
    assert (act.calls, act.total_ns) == (12, 480 * MS)
    gap = node_of(thread, "(QNetwork → backward)")
    assert (gap.kind, gap.phase, gap.self_ns) == ("gap", Phase.OWN, 132 * MS)
    assert node_of(thread).self_ns == 0, "all time between spans is in gaps"


@pytest.mark.parametrize("cost_ns", [400, 4000])
def test_what_the_spans_cost_is_taken_out_again(tmp_path, monkeypatch, cost_ns):
    with scripted_run(tmp_path, monkeypatch, span_cost_ns=cost_ns) as run:
        scripted_loop(run, 12, 4)
    trace = load(tmp_path)
    # 13 steps of two spans and 12 iterations of six; the first and the last span lie half outside the loop.
    calls = 13 * 2 + 12 * 6
    assert phases_ms(trace) == pytest.approx(expected_ms(12), abs=cost_ns * 13 / MS)
    # What lies between spans bears its part by its length; the spans themselves are exact.
    thread = trace.thread
    assert node_of(thread, "ReplayBuffer.sample").total_ns == 600 * MS
    assert node_of(thread, "TimeLimit.step").total_ns == 1300 * MS
    assert node_of(thread, "TimeLimit.step", "CartPoleEnv.step").total_ns == 1170 * MS
    wall = sum(expected_ms(12).values()) * MS
    assert trace.thread.wall_ns == pytest.approx(wall, abs=cost_ns)
    assert trace.main.overhead.span_ns == pytest.approx(cost_ns)
    assert trace.main.overhead.spans_timed == calls


def test_a_run_that_is_going_shows_the_seconds_so_far(tmp_path, monkeypatch):
    with scripted_run(tmp_path, monkeypatch) as run:
        run.spend(STARTUP_MS * MS)
        step(run)
        for _ in range(4):
            iteration(run)
            step(run)
        run.second()
        trace = load(tmp_path)
        assert phases_ms(trace) == pytest.approx(expected_ms(4), abs=1e-6)
        iteration(run)
        step(run)
    assert phases_ms(load(tmp_path)) == pytest.approx(expected_ms(5), abs=1e-6)


def test_windows_show_drift(tmp_path, monkeypatch):
    with scripted_run(tmp_path, monkeypatch) as run:
        for length in (100, 200, 400):
            for _ in range(2000 // length):
                run.during("env.step", length * MS, "env_steps")
            run.second()
    windows = load(tmp_path).main.windows
    assert windows.counts["env_steps"][windows.in_loop].tolist() == [20, 10, 5]
    assert windows.phase_self_ns[Phase.ENV][windows.in_loop].tolist() == [2000 * MS] * 3


def test_a_loop_without_environment_steps_is_looked_at_whole(tmp_path, monkeypatch):
    with scripted_run(tmp_path, monkeypatch) as run:
        run.spend(5 * MS)
        for _ in range(10):
            run.during("loss", 30 * MS)
        run.second()
    trace = load(tmp_path)
    assert trace.loop_start_ns == START_NS
    assert trace.thread.wall_ns == 305 * MS
    assert phases_ms(trace) == pytest.approx({"forward": 300, "own code": 5})
    assert any("no environment steps" in each for each in trace.warnings)


def test_an_account_keeps_the_place_of_stacks_and_of_memory():
    account = Account(0, 0, "test", 100)
    each = registry.span("account.place", Phase.ENV)
    from hotloop.profiling.recorder.call_tree.tree import codes_of

    account.sightings = [
        (105, 1, 10, 10, 0, 0, 0, 0),
        (115, 2, 10, 3, 1, 2, 4, 5),
        (199, 3, 10, 10, 0, 0, 0, 0),
    ]
    account.rises = [(116, 4096, 9000, 0), (117, -96, 8904, 0)]
    import numpy as np

    account.fold(np.array([[each.code, 110], [-each.code, 120]]), 150, codes_of(registry.known_spans()), False)
    place = next(i for i, key in enumerate(account.tree.keys) if key.kind == "span")
    assert account.samples[place, 2] == [1, 10, 3, 1, 2, 4, 5]
    assert [key for key in account.samples if key[1] == 1] != []
    assert [each[0] for each in account.sightings] == [199], "later samples wait for their fold"
    assert account.grown[place] == (4000, 9000, 0)


def test_time_without_a_core_is_seen_before_the_system_reports_it():
    account = Account(0, 0, "test", 0)
    assert account.starved_ns(0, 10, 0, running=True) == 10
    assert account.starved_ns(0, 10, 0, running=True) == 10
    assert account.starved_ns(23, 10, 6, running=True) == 3, "of the 23 reported now, 20 were seen before"
    assert account.starved_ns(9, 10, 6, running=True) == 4, "no more than the time without CPU time"
    assert account.starved_ns(0, 10, 0, running=False) == 0, "a blocked thread waits"


@pytest.mark.parametrize("accelerated", [True, False])
def test_begins_and_counters_are_counted(monkeypatch, accelerated):
    if not accelerated:
        monkeypatch.setattr(account, "begun", None)
    elif account.begun is None:
        pytest.skip("the accelerator is not built")
    base = registry.COUNTER_BASE
    events = np.array([[3, 10], [5, 11], [base + 1, 7], [-5, 12], [-3, 13], [3, 14], [base, 1]], np.int64)
    assert account.calls_begun(events) == ({3: 2, 5: 1}, 2)
    assert account.calls_begun(events[:0]) == ({}, 0)


def test_what_comes_after_a_fold_waits_for_the_next():
    thread = Account(0, 1, "main", 0)
    thread.pending = [np.array([[3, 10], [-3, 20]], np.int64), np.array([[3, 30], [-3, 40]], np.int64)]
    assert thread.take_pending(25)[:, 1].tolist() == [10, 20]
    assert (thread.take_pending(40)[:, 1].tolist(), thread.pending_events) == ([30, 40], 0)
    assert len(thread.take_pending(50)) == 0
