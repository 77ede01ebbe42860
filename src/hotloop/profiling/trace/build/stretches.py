"""What was timed in each stretch of the loop, without corrections. Drift is detected from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from hotloop.profiling.trace.build.columns import Table, of_thread, of_windows, sum_by
from hotloop.profiling.trace.build.thinning import call_scales
from hotloop.profiling.trace.model import Stretch
from hotloop.profiling.trace.reading.names import NodeName, code_of
from hotloop.profiling.trace.reading.run_files import ProcessParts


def build_stretches(parts: ProcessParts, groups: list[set[int]]) -> tuple[dict[int, Stretch], ...]:
    """Return, for each group of windows, the nodes of the main thread that were timed in it."""
    names, index = parts.names, parts.names.main_thread
    known = names.nodes.get(index, {}) if index is not None else {}
    if index is None or not known:
        return ()
    neighbours = _neighbours(known)
    shares = _shares_of_code(of_thread(parts.windows, index), known)
    found = []
    for group in groups:
        rows = of_thread(of_windows(parts.windows, group), index)
        calls, self_ns = (sum_by(rows["node"], rows[name]) for name in ("calls", "self_ns"))
        scale = call_scales(of_windows(parts.windows, group), of_windows(parts.spans, group), names.nodes)
        stretch = _only_counted(of_windows(parts.spans, group), known, shares)
        for node, ns in self_ns.items():
            entry = known.get(node)
            if entry is not None and entry.kind != "root" and not entry.dark:
                counted = node if entry.kind == "span" else neighbours.get(node, -1)
                timed = calls.get(counted, 0)
                stretch[node] = Stretch(timed, ns, timed * scale.get(code_of(known, counted), 1.0))
        found.append(stretch)
    return tuple(found)


def _shares_of_code(rows: Table, known: Mapping[int, NodeName]) -> dict[int, float]:
    """Return for each span node its share of all timed calls of the span."""
    calls = {node: n for node, n in sum_by(rows["node"], rows["calls"]).items() if code_of(known, node)}
    of_code = Counter[int]()
    for node, n in calls.items():
        of_code[code_of(known, node)] += n
    return {node: n / of_code[code_of(known, node)] for node, n in calls.items() if n}


def _only_counted(spans: Table, known: Mapping[int, NodeName], shares: Mapping[int, float]) -> dict[int, Stretch]:
    """Return the nodes of spans that were called but not timed: their calls are known, their time is not."""
    counted = sum_by(spans["code"], spans["counted"])
    calls = {node: counted.get(code_of(known, node), 0) * share for node, share in shares.items()}
    return {node: Stretch(0, 0, n) for node, n in calls.items() if n}


def _neighbours(known: Mapping[int, NodeName]) -> dict[int, int]:
    """Return for each gap the span before it, or after it, which is called as often as the gap occurs."""
    spans: dict[tuple[int, str], int] = {}
    for number, entry in known.items():
        if entry.kind == "span":
            spans.setdefault((entry.parent, entry.name), number)
    sides = {number: entry.before or entry.after for number, entry in known.items() if entry.kind == "gap"}
    return {
        number: spans[known[number].parent, side.name]
        for number, side in sides.items()
        if side is not None and (known[number].parent, side.name) in spans
    }
