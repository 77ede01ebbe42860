from __future__ import annotations

import pytest
from tests.traces import gap, make_process, make_thread, make_trace, place

from hotloop.phases import Phase
from hotloop.profiling.trace import summary


def rows_by_phase(trace):
    return {row.phase: row for row in summary.phases(trace.thread)}


def test_phase_shares_sum_to_one_and_root_time_is_own_code():
    trace = make_trace([place("env.step", Phase.ENV, 3.0, 10), gap("(a → b)", Phase.STORE, 1.0)], unattributed_s=1.0)
    rows = summary.phases(trace.thread)
    assert [row.phase for row in rows] == ["env", "own code", "store"]
    assert sum(row.share for row in rows) == pytest.approx(1.0)
    assert rows[0].share == pytest.approx(0.6)
    assert rows[1] == summary.PhaseRow("own code", "Own code", 1.0, pytest.approx(0.2), 0)
    assert summary.attributed_share(trace) == pytest.approx(0.8)


def test_phase_calls_count_entries_from_outside_the_phase():
    inner = place("CartPoleEnv.step", Phase.ENV, 1.0, 10, [place("draw", Phase.RENDER, 0.5, 10)])
    trace = make_trace([place("TimeLimit.step", Phase.ENV, 0.1, 10, [inner])])
    rows = rows_by_phase(trace)
    assert rows["env"].calls == 10
    assert rows["env"].self_s == pytest.approx(1.1)
    assert rows["render"].calls == 10


def test_spans_merge_call_paths_but_not_phases():
    acting = place("QNetwork", Phase.ACT, 1.0, 100)
    learning = place("train", Phase.OTHER, 0.0, 10, [place("QNetwork", Phase.FORWARD, 2.0, 10)])
    again = place("QNetwork", Phase.FORWARD, 1.0, 30)
    rows = {(row.name, row.phase): row for row in summary.spans(make_trace([acting, learning, again]).thread)}
    assert rows["QNetwork", "act"].calls == 100
    merged = rows["QNetwork", "forward"]
    assert (merged.calls, merged.total_s, merged.self_s) == (40, 3.0, 3.0)
    assert merged.mean_s == pytest.approx(3.0 / 40)
    assert merged.min_s == pytest.approx(1.0 / 30)
    assert merged.max_s == pytest.approx(0.2)


def test_a_recursive_span_is_not_counted_twice_in_its_total():
    inner = place("search", Phase.ENV, 1.0, 3, [place("other", Phase.ENV, 0.5)])
    between = place("expand", Phase.ENV, 0.25, 1, [inner])
    trace = make_trace([place("search", Phase.ENV, 2.0, 1, [between])])
    row = next(row for row in summary.spans(trace.thread) if row.name == "search")
    assert row.calls == 4
    assert row.self_s == pytest.approx(3.0)
    assert row.total_s == pytest.approx(3.75)
    assert row.total_s <= trace.wall_s


def test_self_times_of_all_spans_and_unattributed_time_are_the_wall_time():
    child = place("b", Phase.ENV, 0.7, 3)
    trace = make_trace([place("a", Phase.OTHER, 0.3, 2, [child]), gap("(a → ·)", Phase.LOG, 0.1)], unattributed_s=0.2)
    assert sum(row.self_s for row in summary.spans(trace.thread)) + 0.2 == pytest.approx(trace.wall_s)


def test_score_without_a_gpu_scales_the_other_weights_up():
    trace = make_trace(
        [
            place("all", Phase.SAMPLE, 4.0, 4, cpu_memory_bytes=100),
            place("half", Phase.ENV, 2.0, 4, cpu_memory_bytes=0),
        ]
    )
    scores = {row.name: row.score for row in summary.spans(trace.thread)}
    assert scores["all"] == pytest.approx(1.0)
    assert scores["half"] == pytest.approx((0.40 * 0.5 + 0.30 * 0.5) / 0.85)


def test_score_with_a_gpu_uses_all_four_weights():
    trace = make_trace(
        [
            place("host", Phase.SAMPLE, 4.0, 4, cpu_memory_bytes=100),
            place("device", Phase.FORWARD, 1.0, 1, gpu_memory_bytes=50, cpu_memory_bytes=-7),
        ]
    )
    scores = {row.name: row.score for row in summary.spans(trace.thread)}
    assert scores["host"] == pytest.approx(0.40 + 0.30 + 0.15)
    assert scores["device"] == pytest.approx(0.40 * 0.25 + 0.30 + 0.15)


def test_an_empty_trace_does_not_divide_by_zero():
    trace = make_trace([])
    assert summary.spans(trace.thread) == []
    assert summary.phases(trace.thread) == []
    assert summary.attributed_share(trace) == 0.0
    assert summary.rates(trace)["env_steps_per_s"].median == 0.0
    assert summary.counts(trace).steps_per_episode is None


def test_a_span_that_was_never_called_has_no_mean():
    row = summary.spans(make_trace([place("never", Phase.ENV, 0.0, 0), place("b", Phase.ENV, 1.0)]).thread)[-1]
    assert (row.name, row.mean_s, row.p50_s, row.min_s) == ("never", 0.0, 0.0, 0.0)


def test_the_four_counts_are_kept_apart():
    trace = make_trace(
        [place("a", self_s=4.0)], counts={"env_steps": 400, "frames": 1600, "updates": 50, "episodes": 8}
    )
    assert summary.counts(trace) == summary.Counts(400, 1600, 50, 8, 50.0)


def test_counts_of_workers_are_used_if_the_main_process_has_none():
    def worker(pid, steps):
        thread = make_thread([place("env.step", Phase.ENV, 4.0, steps)])
        return make_process([thread], {"env_steps": steps, "updates": 1}, pid=pid, main=False)

    trace = make_trace([place("learn", self_s=4.0)], counts={"updates": 10}, others=[worker(7, 400), worker(8, 800)])
    assert summary.counts(trace).env_steps == 1200
    assert summary.counts(trace).updates == 10
    assert summary.rates(trace)["env_steps_per_s"].median == pytest.approx(300.0)


def test_a_rate_has_the_mean_of_the_loop_and_the_median_and_range_of_its_windows():
    steps = [1000, 100, 100, 100, 50]
    trace = make_trace([place("a", self_s=5.0)], counts={"env_steps": 1350}, windows={"env_steps": steps})
    rate = summary.rates(trace)["env_steps_per_s"]
    assert rate.mean == pytest.approx(270.0)
    assert rate.median == pytest.approx(100.0)
    assert rate.last == pytest.approx(50.0)
    assert rate.low < 100.0 < rate.high


def test_mean_and_median_differ_where_collecting_and_learning_take_turns():
    steps = [2000, 2000, 2000, 10, 10] * 3
    trace = make_trace([place("a", self_s=15.0)], counts={"env_steps": 18_060}, windows={"env_steps": steps})
    rate = summary.rates(trace)["env_steps_per_s"]
    assert (rate.mean, rate.median, rate.low, rate.high) == pytest.approx((1204.0, 2000.0, 10.0, 2000.0))


def test_a_loop_that_updates_in_bursts_still_has_an_update_rate():
    bursts = [0, 0, 0, 80] * 4
    trace = make_trace([place("a", self_s=16.0)], counts={"updates": 320}, windows={"updates": bursts})
    assert summary.rates(trace)["updates_per_s"].median == pytest.approx(20.0)


def test_the_rate_of_a_single_event_is_taken_over_the_whole_loop():
    trace = make_trace([place("a", self_s=4.0)], counts={"episodes": 1}, windows={"episodes": [0, 0, 1, 0]})
    assert summary.rates(trace)["episodes_per_s"].median == pytest.approx(0.25)
