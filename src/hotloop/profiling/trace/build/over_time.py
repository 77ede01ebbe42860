"""The phases of each window, corrected like those of the whole run.

A span that was timed in some blocks of a window only is scaled up to its calls in that window. One that was hardly
timed in it takes as long a call as in the whole run: counts are exact, so no window shows less of it than there was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from hotloop.phases import Phase
from hotloop.profiling.trace.build.columns import Ints, Table, grouped, sum_by
from hotloop.profiling.trace.build.overhead_correction import Costs, Entry, corrected
from hotloop.profiling.trace.build.thinning import LEAST_TIMED
from hotloop.profiling.trace.model import Thread
from hotloop.profiling.trace.reading.names import NodeName, code_of

Known = Mapping[int, NodeName]
Sums = dict[int, tuple[int, int, int]]
"""Calls, total and self time by node."""
SUMS = ("calls", "total_ns", "self_ns")


def phases_by_window(
    rows: Table, spans: Table, known: Known, costs: Costs, thread: Thread, place: Mapping[int, int]
) -> dict[Phase, Ints]:
    """Return the self time of each phase in each window.

    `rows` has the timed calls by window and node, `spans` the calls that were only counted by window and code. `place`
    maps the number of a window to its index in the result.
    """
    whole = _sums(rows)
    kept = _calls(whole, known)
    counted = {window: sum_by(table["code"], table["counted"]) for window, table in grouped(spans, "window").items()}
    found: dict[Phase, Ints] = {}
    for window, table in grouped(rows, "window").items():
        if window not in place:
            continue
        seen = _sums(table)
        timed = _calls(seen, known)
        scale = _scale(timed, counted.get(window, {}), kept)
        unseen = frozenset(code for code in scale if timed[code] < LEAST_TIMED)
        entries = _entries(seen, whole, known, unseen) if 0 in seen else []
        for entry in corrected(entries, scale, costs)[0] if entries else ():
            if (node := thread.by_id.get(entry.id)) is not None:
                column = found.setdefault(node.phase, np.zeros(len(place), np.int64))
                column[place[window]] += round(entry.self_ns)
    return found


def _sums(table: Table) -> Sums:
    """Add up a table by node."""
    calls, total, own = (sum_by(table["node"], table[name]) for name in SUMS)
    return {node: (calls[node], total[node], own[node]) for node in calls}


def _calls(sums: Sums, known: Known) -> Counter[int]:
    """Calls whose time is in the sums, by code."""
    found: Counter[int] = Counter()
    for node, (calls, _, _) in sums.items():
        found[code_of(known, node)] += calls
    return found


def _scale(timed: Mapping[int, int], counted: Mapping[int, int], kept: Mapping[int, int]) -> dict[int, float]:
    """By code, how the numbers of spans that were not always timed are scaled: the window's own, else the run's."""
    found = {}
    for code, n in counted.items():
        own = timed.get(code, 0)
        of = own if own >= LEAST_TIMED else kept.get(code, 0)
        if n and of:
            found[code] = (own + n) / of
    return found


def _entries(seen: Sums, whole: Sums, known: Known, unseen: frozenset[int]) -> list[Entry]:
    """Return the tree of one window.

    Spans in `unseen`, which have too few timed calls in the window, and missing gaps use the sums of the whole run.
    """
    gapped = {known[node].parent for node in seen if node in known and known[node].lit_gap}
    chosen: dict[int, tuple[int, int, int]] = {}
    for number, node in known.items():
        borrowed = node.kind == "span" and node.code in unseen
        borrowed |= node.lit_gap and node.parent not in gapped
        sums = (whole if borrowed else seen).get(number)
        if sums is not None:
            chosen[number] = sums
    for number in list(chosen):
        while (number := known[number].parent) >= 0 and number not in chosen:
            chosen[number] = (0, 0, 0)
    return [
        Entry(number, node.parent, node.kind, node.code, *chosen[number], node.dark)
        for number, node in sorted(known.items())
        if number in chosen
    ]
