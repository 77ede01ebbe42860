"""Corrects a thread's call tree: subtracts the overhead of spans and scales thinned spans up.

A span that was timed in some blocks and only counted in others has its total scaled up. The time that a parent's
children leave is divided among its gaps in proportion to the blocks in which everything was timed, and is never less
than the gaps took there.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Entry:
    """A node being worked on."""

    id: int
    parent: int
    kind: str
    code: int
    calls: float
    total_ns: float
    self_ns: float
    dark: bool = False


@dataclass(frozen=True, slots=True)
class Costs:
    """Recording overhead per call, in ns."""

    inside_ns: float
    """Part of a span's overhead that is contained in its own time."""
    outside_ns: float
    wrapper_ns: dict[int, float]
    """Cost of the hook's wrapper by code, paid also when a call is only counted."""
    within_ns: dict[int, float] = field(default_factory=dict)
    """By code, what the wrapper takes of a timed call's own time."""
    counted_ns: float = 0.0
    """Cost of a call that is only counted."""
    counted_in: frozenset[int] = frozenset()
    """Codes whose wrapper's cost includes it."""


def corrected(
    entries: list[Entry], scale: dict[int, float], costs: Costs, time_scale: dict[int, float] | None = None
) -> tuple[list[Entry], float]:
    """Return the tree as it would be without recording, and the recording overhead in ns.

    Entries have the root first and parents before children. `scale` and `time_scale` are those of `thinning.Scale`;
    without `time_scale`, times are scaled like calls.
    """
    by_id = {e.id: Entry(e.id, e.parent, e.kind, e.code, e.calls, e.total_ns, e.self_ns, e.dark) for e in entries}
    factor, longer = (
        {e.id: by_code.get(e.code, 1.0) if e.kind == "span" else 1.0 for e in entries}
        for by_code in (scale, scale if time_scale is None else time_scale)
    )
    below = _costs_below(by_id, factor, costs)
    for entry in by_id.values():
        entry.calls *= factor[entry.id]
        entry.total_ns = entry.total_ns * longer[entry.id] - below[entry.id]
        if entry.kind == "span":
            entry.total_ns -= (costs.inside_ns + costs.within_ns.get(entry.code, 0.0)) * entry.calls
        entry.total_ns = max(entry.total_ns, 0.0)
    taken = below[entries[0].id]
    children: dict[int, list[Entry]] = {}
    for entry in by_id.values():
        children.setdefault(entry.parent, []).append(entry)
    for entry in list(by_id.values()):
        if entry.kind != "gap":
            _share_out(entry, children.get(entry.id, []), longer)
    return [entry for entry in by_id.values() if not entry.dark], taken


def _costs_below(by_id: dict[int, Entry], factor: dict[int, float], costs: Costs) -> dict[int, float]:
    """Return the overhead of the spans below each entry, as contained in the entry's scaled total.

    An entry's total is scaled up from the calls that were timed, so what it contained then is scaled with it: a
    span below it that was timed R times counts as R times the entry's factor, the rest of its calls as counted.
    """
    below = dict.fromkeys(by_id, 0.0)
    for entry in by_id.values():
        if entry.kind != "span":
            continue
        every = entry.calls * factor[entry.id]
        wrapper, within = costs.wrapper_ns.get(entry.code, 0.0), costs.within_ns.get(entry.code, 0.0)
        counted_ns = 0.0 if entry.code in costs.counted_in else costs.counted_ns
        above = entry.parent
        while above in by_id:
            timed = min(entry.calls * factor[above], every)
            span_ns = costs.inside_ns + costs.outside_ns + within
            below[above] += timed * span_ns + (every - timed) * counted_ns + every * wrapper
            above = by_id[above].parent
    return below


def _share_out(entry: Entry, below: list[Entry], longer: dict[int, float]) -> None:
    """Split an entry's total among its children, which were scaled by `longer`, its gaps and itself."""
    spans = [each for each in below if each.kind == "span"]
    gaps = [each for each in below if each.kind == "gap" and not each.dark]
    in_spans = sum(each.total_ns for each in spans)
    known = sum(each.total_ns for each in gaps) + (entry.self_ns if gaps else 0.0)
    # Scaled-up totals are estimates: they may not exceed what they are part of, nor take what gaps surely had.
    timed = sum(each.total_ns / longer[each.id] for each in spans)
    room = min(max(entry.total_ns - known, timed), entry.total_ns)
    if in_spans > room:
        for each in spans:
            each.total_ns *= room / in_spans
        in_spans = room
    rest = entry.total_ns - in_spans
    if gaps and known > 0:
        for each in gaps:
            each.total_ns = each.self_ns = rest * each.total_ns / known
        entry.self_ns = rest * entry.self_ns / known
    else:
        entry.self_ns = rest
