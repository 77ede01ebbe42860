"""Scaling of spans that were not always timed, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from hotloop.profiling.trace.build.columns import Table
from hotloop.profiling.trace.build.thinning import Scale, scales
from hotloop.profiling.trace.reading.names import NodeName

NODES = {0: {0: NodeName(0, 0, -1, "root"), 1: NodeName(0, 1, 0, "span", code=7)}}


def table(**columns: list[int]) -> Table:
    return {name: np.array(values, np.int64) for name, values in columns.items()}


def scaled(timed: list[int], ns: list[int], counted: list[int], kept: set[int] | None = None) -> Scale:
    """Scale one span that was timed and counted so in windows 0, 1, ..."""
    number = list(range(len(timed)))
    windows = table(window=number, thread=[0] * len(number), node=[1] * len(number), calls=timed, total_ns=ns)
    spans = table(window=number, code=[7] * len(number), timed=timed, counted=counted)
    return scales(windows, spans, NODES, set(number) if kept is None else kept)


def test_a_span_that_was_always_timed_is_not_scaled():
    assert scaled([10, 20], [1_000, 2_000], [0, 0]) == Scale({7: 1.0}, {})


def test_counted_calls_take_as_long_as_timed_calls_of_their_window():
    # 10 calls of 1,000 ns, all timed; then 10 of 50 ns timed and 90 counted. The calls alone would say 5.5 times.
    found = scaled([10, 10], [10_000, 500], [0, 90])
    assert found.calls == {7: 5.5}
    assert found.time[7] == pytest.approx((10_500 + 90 * 50) / 10_500)


def test_a_window_with_too_few_timed_calls_uses_the_nearest_that_has_enough():
    found = scaled([10, 0, 4, 10], [10_000, 0, 4, 1_000], [0, 5, 5, 0])
    # Window 1 borrows from window 0 (1,000 ns a call), window 2 from window 3 (100 ns).
    assert found.time[7] == pytest.approx((11_004 + 5 * 1_000 + 5 * 100) / 11_004)


def test_without_enough_timed_calls_in_any_window_the_mean_is_used():
    found = scaled([2, 2], [200, 600], [4, 0])
    assert found.time[7] == pytest.approx((800 + 4 * 200) / 800)


def test_times_are_those_of_the_windows_kept_and_calls_those_of_the_run():
    found = scaled([10, 10], [10_000, 1_000], [10, 20], kept={1})
    assert found.calls == {7: 2.5}
    assert found.time == {7: pytest.approx(3.0)}
