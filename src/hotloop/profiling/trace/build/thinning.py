"""Estimates calls and times of thinned spans, which are timed in some blocks and only counted in others.

Counts are exact. Times are estimated window by window, because the blocks in which a span was only counted may have had
faster or slower calls. A window with too few timed calls uses the nearest window that has enough.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hotloop.profiling.trace.build.columns import Ints, Table, grouped, of_windows, sum_by
from hotloop.profiling.trace.reading.names import Nodes

Floats = NDArray[np.float64]
LEAST_TIMED = 5
"""Timed calls that a window needs for an estimate of its time per call."""


class Scale(NamedTuple):
    """By code, what has to be multiplied: calls that were timed to get all, and their time to get that of all."""

    calls: dict[int, float]
    time: dict[int, float]


def scales(windows: Table, spans: Table, nodes: Nodes, kept: set[int]) -> Scale:
    """Say how to scale spans up.

    Args:
        windows: What was timed, by window, thread and node.
        spans: Calls that were timed and calls that were only counted, by window and code.
        nodes: To which code a node belongs.
        kept: The windows whose times are to be scaled. Calls are taken from the whole run, where their counts agree
            exactly: at the edge of a window a call may be begun in one and timed in the next.
    """
    return Scale(call_scales(windows, spans, nodes), _time_scales(windows, spans, nodes, kept))


def call_scales(windows: Table, spans: Table, nodes: Nodes) -> dict[int, float]:
    """By code, how many calls there were per call whose time was kept."""
    begun = sum_by(spans["code"], spans["timed"] + spans["counted"])
    timed = sum_by(_codes(windows, nodes), windows["calls"])
    return {code: begun[code] / n for code, n in timed.items() if n and begun.get(code)}


def _time_scales(windows: Table, spans: Table, nodes: Nodes, kept: set[int]) -> dict[int, float]:
    """By code, the time of all calls per time of those that were timed."""
    order = np.array(sorted(kept), np.int64)
    windows, begun = of_windows(windows, kept), grouped(of_windows(spans, kept), "code")
    seen = grouped({**windows, "code": _codes(windows, nodes)}, "code")
    has_times = np.isin(order, windows["window"])
    found = {}
    for code in begun.keys() & seen.keys():
        missed = has_times * _by_window(begun[code], "counted", order)
        calls, ns = (_by_window(seen[code], name, order) for name in ("calls", "total_ns"))
        if missed.any() and ns.sum() > 0:
            found[code] = float((ns + missed * _call_ns(calls, ns)).sum() / ns.sum())
    return found


def _codes(windows: Table, nodes: Nodes) -> Ints:
    """Return the code of each row's span; 0 where it is none."""
    known = sorted(
        (thread << 31 | number, node.code) for thread, each in nodes.items() for number, node in each.items()
    )
    if not known:
        return np.zeros(len(windows["node"]), np.int64)
    keys, codes = np.array(known, np.int64).T
    wanted = windows["thread"] << 31 | windows["node"]
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[place] == wanted, codes[place], 0)


def _by_window(table: Table, name: str, order: Ints) -> Floats:
    """Add up a column in each of some windows."""
    sums = np.zeros(len(order))
    np.add.at(sums, np.searchsorted(order, table["window"]), table[name])
    return sums


def _call_ns(calls: Floats, ns: Floats) -> Floats:
    """What a call took in each window; where too few were timed, in the nearest window that has enough, else in all."""
    enough = np.flatnonzero(calls >= LEAST_TIMED)
    if not len(enough):
        return np.full(len(calls), ns.sum() / calls.sum() if calls.sum() else 0.0)
    here = np.arange(len(calls))
    after = np.minimum(np.searchsorted(enough, here), len(enough) - 1)
    before = np.maximum(after - 1, 0)
    nearest = enough[np.where(np.abs(enough[before] - here) <= np.abs(enough[after] - here), before, after)]
    return ns[nearest] / calls[nearest]
