"""Where the time goes that no rule explains: the lines, loops and functions of the user's code that take much of it.

A hotspot says what is there and what could be gained at most. It names the place where a change would be made: not
in a library, and not in a small function that a loop calls a thousand times, but at that loop.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from hotloop.phases import Phase
from hotloop.profiling.diagnosis.claims import indices
from hotloop.profiling.diagnosis.evidence import duration, percent
from hotloop.profiling.diagnosis.finding import Finding, amdahl
from hotloop.profiling.diagnosis.pricing import UNSURE, Z90, share_error, span_name
from hotloop.profiling.diagnosis.time_slices import Atom, Loop, total_ns
from hotloop.profiling.trace.hot_lines import LineCalls, callee_of
from hotloop.profiling.trace.loops import Block, function_name, loops_around
from hotloop.profiling.trace.model import Frame, Node
from hotloop.profiling.trace.observed import operands_of
from hotloop.profiling.trace.source_text import module_of
from hotloop.profiling.trace.time_kinds import KIND_NAMES, Kinds, place_of

LEAST_SHARE = 0.05
"""Smaller hotspots are among the hot lines of the report, not among its findings."""
MOST = 5
"""More hotspots than that are not worth reading."""
NEARLY_ALL = 0.8
"""A loop in which so much of the time is spent is that of training."""
MUCH_ELSE = 0.25
"""A loop that calls a network and does so much else does several things: it plays or learns."""
MAINLY = 0.5
"""A line that takes this part of a loop's or function's time is reported instead of the loop."""
NETWORK = frozenset({Phase.ACT, Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMISE, Phase.SYNC_WEIGHTS})
CALLED = frozenset({Phase.ACT, Phase.FORWARD})
MANY_CALLS = 8
"""A network that a loop calls at least so often for each update is reported, if the loop does nothing else."""
STEPPING = frozenset({Phase.ENV})
OWN_PIPELINES = "/hotloop/training/"
RULE = "hotspot"

Unit = tuple[str, str, int, int]
"""File, function, and first and last line of what would be changed as a whole: a line, a loop or a function."""


@dataclass(frozen=True, slots=True)
class _Spot:
    unit: Unit
    atoms: tuple[Atom, ...]
    ns: float


def find_hotspots(loop: Loop, taken: Iterable[int] = ()) -> list[Finding]:
    """Return the hotspots, largest first, without the atoms that findings have claimed."""
    claimed = set(taken)
    free = [atom for atom in loop.atoms if atom.index not in claimed and _is_to_change(atom)]
    units = Units(loop)
    by_unit: dict[Unit, list[Atom]] = {}
    for atom in free:
        if not _is_expected(loop, atom, units):
            by_unit.setdefault(units.of(atom), []).append(atom)
    inner: dict[Unit, list[Atom]] = {}
    for unit, atoms in by_unit.items():
        for each, part in units.descended(unit, atoms).items():
            inner.setdefault(each, []).extend(part)
    spots = [_Spot(unit, tuple(atoms), total_ns(atoms)) for unit, atoms in inner.items()]
    large = [spot for spot in spots if spot.ns >= LEAST_SHARE * loop.wall_ns]
    tell = _Tell(loop)
    return [tell.finding(spot) for spot in sorted(large, key=lambda spot: (-spot.ns, spot.unit))[:MOST]]


def _is_to_change(atom: Atom) -> bool:
    """Return whether an atom is in code that a user can change: the pipelines that come with hotloop are not."""
    return atom.own is not None and OWN_PIPELINES not in atom.own.file.replace("\\", "/")


def _is_expected(loop: Loop, atom: Atom, units: Units) -> bool:
    """Return whether this is what training is for: network arithmetic, or the dynamics of a library's environment.

    Lines of the user's own that run inside of such a span are not, but for plain calls of torch in a `forward`. Neither
    is a network that a loop calls many times where one call for all could do.
    """
    spans = [node for node in loop.lineage(atom.node) if node.kind == "span"]
    span = next((node for node in spans if node.phase in NETWORK | STEPPING), None)
    if span is None:
        return False
    if span.phase in CALLED and span.calls >= MANY_CALLS * max(loop.updates, 1) and units.is_loop(units.of(atom)):
        return False
    inside = _frames_inside(atom, span)
    if not inside:
        return True
    if span.phase in STEPPING:
        return False
    sources = loop.trace.sources
    looping = any(loops_around(sources.get(frame.file), frame) for frame in inside)
    return not looping and _is_torch(loop, atom)


def _frames_inside(atom: Atom, span: Node) -> list[Frame]:
    """Return the user's frames inside of a span: those of its function and of what that calls, innermost first."""
    entered = {span.name.rpartition(".")[2]} | ({"forward"} if span.phase in (Phase.ACT, Phase.FORWARD) else set())
    own = [frame for frame in atom.stack if frame.own]
    names = [function_name(frame).rpartition(".")[2] for frame in own]
    last = max((i for i, name in enumerate(names) if name in entered), default=-1)
    return own[: last + 1]


def _is_torch(loop: Loop, atom: Atom) -> bool:
    """Return whether torch works in an atom, called by the user's own code or by torch itself."""
    top = atom.stack[0]
    if not top.own:
        return module_of(top.file).partition(".")[0] == "torch"
    place = loop.trace.observed.at(place_of(top), top.operation)
    return place is not None and (
        place.callee.startswith("torch.") or any(each.form == "tensor" for each in operands_of(place))
    )


class Units:
    """Finds what would be changed as a whole."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._sources = loop.trace.sources
        self._cached: dict[tuple[str, int, str, int], tuple[Block, ...]] = {}
        self._busy = _phases_by_loop(loop, self._loops_of)

    def of(self, atom: Atom) -> Unit:
        """Return the outermost loop around an atom that does only one thing; else its innermost own line."""
        own = [frame for frame in atom.stack if frame.own]
        for frame in reversed(own):
            for each in self._loops_of(frame):
                if not self._trains(each):
                    return frame.file, function_name(frame), each[1], each[2]
        innermost = own[0]
        return innermost.file, function_name(innermost), innermost.line, innermost.line

    def is_loop(self, unit: Unit) -> bool:
        """Return whether a unit is a loop rather than a line."""
        file, _, first, last = unit
        return (file, first, last) in self._busy

    def descended(self, unit: Unit, atoms: list[Atom]) -> dict[Unit, list[Atom]]:
        """Go on to a loop in a function that a loop calls, while most of the time is in that one."""
        found: dict[Unit, list[Atom]] = {}
        while True:
            parts: dict[Unit, list[Atom]] = {}
            for atom in atoms:
                below = self._below(atom, unit)
                if below is not None:
                    parts.setdefault(below, []).append(atom)
            largest = max(parts, key=lambda each: (total_ns(parts[each]), each), default=None)
            if largest is None or total_ns(parts[largest]) < MAINLY * total_ns(atoms):
                found[unit] = atoms
                return found
            taken = indices(parts[largest])
            rest = [atom for atom in atoms if atom.index not in taken]
            if rest:
                found[unit] = rest
            unit, atoms = largest, parts[largest]

    def _below(self, atom: Atom, unit: Unit) -> Unit | None:
        """Return the outermost loop in the functions that a loop calls; None if there is none."""
        own = [frame for frame in atom.stack if frame.own]
        at = [i for i, frame in enumerate(own) if frame.file == unit[0] and function_name(frame) == unit[1]]
        for frame in reversed(own[: min(at)] if at else []):
            for each in self._loops_of(frame):
                return frame.file, function_name(frame), each[1], each[2]
        return None

    def _loops_of(self, frame: Frame) -> tuple[Block, ...]:
        key = frame.file, frame.line, frame.function, frame.first_line
        if key not in self._cached:
            self._cached[key] = loops_around(self._sources.get(frame.file), frame)
        return self._cached[key]

    def _trains(self, loop: Block) -> bool:
        """Return whether a loop is one of training: it goes through several of its parts, or holds nearly all time."""
        phases, ns, network_ns = self._busy.get(loop, (set(), 0.0, 0.0))
        if ns >= NEARLY_ALL * self._loop.wall_ns or (network_ns and ns - network_ns >= MUCH_ELSE * ns):
            return True
        kinds = ({Phase.ENV} & phases, {Phase.ACT, Phase.FORWARD} & phases, {Phase.BACKWARD, Phase.OPTIMISE} & phases)
        return sum(bool(kind) for kind in kinds) >= 2


def _phases_by_loop(
    loop: Loop, loops_of: Callable[[Frame], tuple[Block, ...]]
) -> Mapping[Block, tuple[set[Phase], float, float]]:
    """Return the phases that each loop goes through, its time, and that of networks which it calls."""
    found: dict[Block, tuple[set[Phase], float, float]] = {}
    network: dict[Block, float] = {}
    nodes: dict[Block, set[int]] = {}
    time: dict[Block, float] = {}
    for atom in loop.atoms:
        for each in {block for frame in atom.stack if frame.own for block in loops_of(frame)}:
            nodes.setdefault(each, set()).add(atom.node.id)
            time[each] = time.get(each, 0.0) + atom.ns
            if CALLED & loop.phases(atom.node):
                network[each] = network.get(each, 0.0) + atom.ns
    for each, ids in nodes.items():
        # A span that all of the loop's time is in contains the loop: it is not entered in it.
        lineages = [{node.id for node in loop.lineage(loop.thread.by_id[i])} for i in ids]
        around = set.intersection(*lineages)
        inside = set.union(*lineages) - around
        phases = {loop.thread.by_id[i].phase for i in inside} - {Phase.OWN}
        found[each] = phases, time[each], network.get(each, 0.0) if phases & CALLED else 0.0
    return found


class _Tell:
    """Writes findings."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._kinds = Kinds(loop.trace, loop.thread)
        self._calls = LineCalls(loop.trace, known=True)

    def finding(self, spot: _Spot) -> Finding:
        """Tell a hotspot."""
        loop, (file, _, first, last) = self._loop, spot.unit
        by_line = Counter[tuple[str, int]]()
        for atom in spot.atoms:
            by_line[atom.line or (file, first)] += round(atom.ns)
        (hot_file, hot_line), hot_ns = by_line.most_common(1)[0]
        hot = [atom for atom in spot.atoms if atom.line == (hot_file, hot_line)]
        alone = hot_ns >= MAINLY * spot.ns and self._is_place_to_change(hot, spot.unit)
        if alone:
            # A change there does away with what else its function does in the loop, but not with other functions.
            at = tuple(hot)
            names = {function_name(atom.own) for atom in at if atom.own is not None}
            near = tuple(atom for atom in spot.atoms if atom.own is not None and function_name(atom.own) in names)
            spot = _Spot(spot.unit, near, total_ns(near))
        else:
            at = spot.atoms
        share = spot.ns / loop.wall_ns
        frame = next(atom.own for atom in at if atom.own is not None)
        line = (hot_file, hot_line) if alone else (file, self._hottest_within(spot, first, last))
        kind, callee, expression, operands = self._describe(at)
        bound = amdahl(min(share + Z90 * share_error(loop, spot.atoms), 1.0), 0.0)
        what = self._title(spot, kind, callee, expression, frame, alone)
        evidence = [
            f"{percent(share)} of the loop's time ({sum(atom.n for atom in spot.atoms)} stack samples), "
            f"mainly {KIND_NAMES[kind]}",
            f"works on {', '.join(operands)}" if operands else "",
            self._rate(spot, line, callee, alone),
            "" if alone else "; ".join(self._lines(by_line, spot.ns)),
        ]
        return Finding(
            rule=RULE,
            title=what,
            phase=Counter(dict(_sum(atom for atom in at))).most_common(1)[0][0],
            span=span_name(loop, at[0]),
            file=line[0],
            line=line[1],
            share=share,
            gain=bound,
            gain_low=1.0,
            gain_high=bound,
            score=math.log(amdahl(share, 0.0)) * UNSURE,
            evidence=tuple(filter(None, evidence)),
            advice=ADVICE[kind],
            kind="hotspot",
        )

    def _is_place_to_change(self, hot: Sequence[Atom], unit: Unit) -> bool:
        """Return whether to report a line itself, rather than the loop that calls its function many times."""
        inside = any(atom.own is not None and function_name(atom.own) == unit[1] for atom in hot)
        in_torch = any(_is_torch(self._loop, atom) for atom in hot)
        return inside or (self._describe(hot)[0] != "interpreter" and not in_torch)

    def _hottest_within(self, spot: _Spot, first: int, last: int) -> int:
        """Return the line of the loop itself through which most of its time goes."""
        file, function = spot.unit[:2]
        through = Counter[int]()
        for atom in spot.atoms:
            lines = {
                frame.line
                for frame in atom.stack
                if frame.own and frame.file == file and first <= frame.line <= last and function_name(frame) == function
            }
            for each in lines:
                through[each] += round(atom.ns)
        return through.most_common(1)[0][0] if through else first

    def _describe(self, atoms: Sequence[Atom]) -> tuple[str, str | None, str, tuple[str, ...]]:
        """Return the kind of time, callee, expression and operands that take most of the time."""
        kinds, seen = Counter[str](), Counter[tuple[str | None, str, tuple[str, ...]]]()
        samples = {(sample.node, sample.stack): sample for sample in self._loop.thread.samples}
        for atom in atoms:
            own = atom.own
            if own is None:
                continue
            sample = samples.get((atom.node.id, atom.stack))
            for kind, ns in self._kinds.divide(sample).items() if sample is not None else ():
                kinds[kind] += ns
            place = self._kinds.observed.at(place_of(own), own.operation)
            source = self._loop.trace.sources.get(own.file)
            expression = source.expression(own) if source is not None else ""
            callee = callee_of(atom.stack, source, place)
            seen[callee, expression, place.operands if place is not None else ()] += round(atom.ns)
        kind = kinds.most_common(1)[0][0] if kinds else "interpreter"
        return (kind, *seen.most_common(1)[0][0]) if seen else (kind, None, "", ())

    def _title(self, spot: _Spot, kind: str, callee: str | None, expression: str, frame: Frame, alone: bool) -> str:
        _, function, first, last = spot.unit
        share = percent(spot.ns / self._loop.wall_ns)
        if alone and callee:
            return f"{share} of the time goes to {callee}, called in {function}"
        if alone:
            return f"{share} of the time goes to {_short(expression or frame.text)} in {function}"
        where = f"lines {first} to {last}" if last > first else f"line {first}"
        return f"{share} of the time goes to {where} of {function}"

    def _rate(self, spot: _Spot, line: tuple[str, int], callee: str | None, alone: bool) -> str:
        """Say how often it happens."""
        loop = self._loop
        calls = self._calls.of_line(*line, callee) if alone else None
        parts = []
        if (per_step := self._calls.per_env_step(calls)) is not None:
            parts.append(f"{per_step:.3g} calls for each environment step")
        if (per_update := self._calls.per_update(calls)) is not None:
            parts.append(f"{per_update:.3g} for each update")
        if loop.env_steps:
            parts.append(f"{duration(spot.ns / loop.env_steps)} for each environment step")
        return ", ".join(parts)

    def _lines(self, by_line: Counter[tuple[str, int]], whole: float) -> list[str]:
        found = []
        for (file, line), ns in by_line.most_common(3):
            source = self._loop.trace.sources.get(file)
            text = source.line(line) if source is not None else ""
            found.append(f"line {line} ({percent(ns / whole)} of it): {_short(text)}")
        return found


ADVICE = {
    "interpreter": "Python itself takes the time. Do it once rather than each time, for a whole array in NumPy or "
    "torch at once, or compile it with numba.",
    "native": "Look at what is called, how often, and with what: call it less often, with less data, or prepare it "
    "once.",
    "torch_dispatch": "Many small operations: each costs some microseconds whatever its size. Do them for a batch at "
    "once, or compile them.",
    "torch_compute": "Arithmetic of the network: smaller layers or batches, or more cores or a GPU.",
    "memory": "Bytes are moved: smaller types, fewer copies, memory that is allocated once.",
    "gc": "Python's garbage collector: create fewer objects, or freeze those that stay (gc.freeze()).",
    "wait": "The loop waits. Let what it waits for run meanwhile, or wait less often.",
    "io": "Files: write less often, or in another thread.",
    "starved": "Another process or thread had the core: use fewer of them.",
}


def _short(text: str, most: int = 60) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _sum(atoms: Iterable[Atom]) -> dict[Phase, float]:
    found: dict[Phase, float] = {}
    for atom in atoms:
        phase = Phase.OWN if atom.node.kind == "gap" else atom.node.phase
        found[phase] = found.get(phase, 0.0) + atom.ns
    return found
