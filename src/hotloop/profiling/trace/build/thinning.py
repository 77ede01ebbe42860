"""Estimates calls and times of thinned spans, which are timed in some blocks and only counted in others.

Counts are exact. Times are estimated window by window, because the blocks in which a span was only counted may have had
faster or slower calls. A window with too few timed calls uses the nearest window that has enough.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hotloop.counters import SAMPLED
from hotloop.profiling.trace.build.columns import Ints, Table, grouped, of_windows, sum_by
from hotloop.profiling.trace.reading.names import Names, Nodes
from hotloop.profiling.trace.reading.run_files import ProcessParts

Floats = NDArray[np.float64]
LEAST_TIMED = 5
"""Timed calls that a window needs for an estimate of its time per call."""


class Scale(NamedTuple):
    """By code: all calls per timed call, and the time of all calls per time of the timed ones."""

    calls: dict[int, float]
    time: dict[int, float]


def scales(windows: Table, spans: Table, nodes: Nodes, kept: set[int]) -> Scale:
    """Return how to scale up the spans in the `kept` windows.

    Calls are counted over the whole run, where counts agree exactly: a call may start in one window and be timed in the
    next.
    """
    return Scale(call_scales(windows, spans, nodes), _time_scales(windows, spans, nodes, kept))


def call_scales(windows: Table, spans: Table, nodes: Nodes) -> dict[int, float]:
    """Return, by code, all calls per timed call."""
    begun = sum_by(spans["code"], spans["timed"] + spans["counted"])
    timed = sum_by(_codes(windows, nodes), windows["calls"])
    return {code: begun[code] / n for code, n in timed.items() if n and begun.get(code)}


def scaled_counters(parts: ProcessParts, names: Names) -> Table:
    """Scale up what hooks counted only in the calls that they looked at more closely."""
    counters, spans, looked = parts.counters, parts.spans, parts.state.looked
    partial = [code for code, name in names.counters.items() if name in SAMPLED]
    every, timed = sum_by(spans["code"], spans["timed"] + spans["counted"]), sum_by(spans["code"], spans["timed"])
    hooked = {code: looked.get(code, n) for code, n in timed.items() if code in names.spans and names.spans[code].hook}
    factors = {code: every[code] / n for code, n in hooked.items() if n and n != every[code]}
    if not partial or not factors:
        return counters
    codes = _codes(counters, names.nodes)
    factor = np.ones(len(codes))
    for code, by in factors.items():
        factor[codes == code] = by
    factor[~np.isin(counters["counter"], partial)] = 1.0
    return {**counters, "amount": np.rint(counters["amount"] * factor).astype(np.int64)}


def _time_scales(windows: Table, spans: Table, nodes: Nodes, kept: set[int]) -> dict[int, float]:
    """Return, by code, the time of all calls per time of the timed ones."""
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
    """Return the time per call in each window, or in the nearest window with enough timed calls, or in all windows."""
    enough = np.flatnonzero(calls >= LEAST_TIMED)
    if not len(enough):
        return np.full(len(calls), ns.sum() / calls.sum() if calls.sum() else 0.0)
    here = np.arange(len(calls))
    after = np.minimum(np.searchsorted(enough, here), len(enough) - 1)
    before = np.maximum(after - 1, 0)
    nearest = enough[np.where(np.abs(enough[before] - here) <= np.abs(enough[after] - here), before, after)]
    return ns[nearest] / calls[nearest]
