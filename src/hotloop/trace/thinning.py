"""Spans that were timed in some blocks and only counted in others: how many calls there were, and how long they took.

Counts are exact. Times are not: blocks in which a span was only counted may lie where a call was quick, or slow. So
what a call took is looked up window by window; one in which it was hardly timed borrows from the nearest that tells.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hotloop.trace.columns import Table, by_window, of_thread, of_windows, sum_by

Nodes = Mapping[int, Mapping[int, Mapping[str, Any]]]
"""The nodes of each thread, as recorded, by their ids."""
Floats = NDArray[np.float64]
LEAST_TIMED = 5
"""Calls timed in a window that tell how long a call takes in it."""


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
    timed, _ = _timed(windows, nodes)
    return {code: begun[code] / n for code, n in timed.items() if n and begun.get(code)}


def _time_scales(windows: Table, spans: Table, nodes: Nodes, kept: set[int]) -> dict[int, float]:
    """By code, the time of all calls per time of those that were timed."""
    order = sorted(kept)
    seen, begun = by_window(of_windows(windows, kept)), by_window(of_windows(spans, kept))
    timed = {w: _timed(table, nodes) for w, table in seen.items()}
    counted = {w: sum_by(table["code"], table["counted"]) for w, table in begun.items()}
    found = {}
    for code in {code for each in counted.values() for code, n in each.items() if n}:
        columns = np.array(
            [
                (timed[w][0][code], timed[w][1][code], counted.get(w, {}).get(code, 0)) if w in timed else (0, 0, 0)
                for w in order
            ],
            dtype=np.float64,
        )
        calls, ns, missed = columns.T
        if ns.sum() > 0:
            found[code] = float((ns + missed * _call_ns(calls, ns)).sum() / ns.sum())
    return found


def _call_ns(calls: Floats, ns: Floats) -> Floats:
    """What a call took in each window; where too few were timed, in the nearest window that has enough, else in all."""
    told = np.flatnonzero(calls >= LEAST_TIMED)
    if not len(told):
        return np.full(len(calls), ns.sum() / calls.sum() if calls.sum() else 0.0)
    nearest = told[np.abs(np.arange(len(calls))[:, None] - told).argmin(axis=1)]
    return ns[nearest] / calls[nearest]


def _timed(windows: Table, nodes: Nodes) -> tuple[Counter[int], Counter[int]]:
    """Calls whose time was kept, and that time, by code."""
    calls, ns = Counter[int](), Counter[int]()
    for index, known in nodes.items():
        rows = of_thread(windows, index)
        for name, sums in (("calls", calls), ("total_ns", ns)):
            for node, amount in sum_by(rows["node"], rows[name]).items():
                sums[known.get(node, {}).get("code", 0)] += amount
    return calls, ns
