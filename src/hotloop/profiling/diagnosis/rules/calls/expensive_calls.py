"""A call that is known to be expensive takes much of the time: searching lists, growing arrays, deep copies, sleeping.

**Seen by.** What the innermost line of the user's calls, by its full name, or the operator that runs there, and the
types and sizes of its operands, as they were observed. `catalogue.py` lists what is known, and what to use instead.

**Residual.** As the catalogue says for each kind of call: an assumption with wide bounds.
"""

from __future__ import annotations

from collections import Counter

from hotloop.phases import Phase
from hotloop.profiling.diagnosis.catalogue import CATALOGUE, Entry, Needs
from hotloop.profiling.diagnosis.claims import indices
from hotloop.profiling.diagnosis.evidence import hottest
from hotloop.profiling.diagnosis.finding import Cause, Causes, Residual
from hotloop.profiling.diagnosis.hotspots import Units
from hotloop.profiling.diagnosis.time_slices import Atom, Loop, total_ns
from hotloop.profiling.trace.hot_lines import LineCalls
from hotloop.profiling.trace.loops import function_name
from hotloop.profiling.trace.observed import operands_of
from hotloop.profiling.trace.operands import Operand
from hotloop.profiling.trace.source_text import module_of
from hotloop.profiling.trace.time_kinds import place_of

ADVICE = "Each entry of the catalogue has its own advice."
LEAST_SHARE = 0.08
"""Smaller ones are only among the hot lines."""


def find(loop: Loop) -> Causes:
    """Find calls of the catalogue."""
    seen = _Seen(loop)
    found: dict[tuple[int, str, str], list[Atom]] = {}
    for atom in loop.atoms:
        if atom.own is None:
            continue
        number = seen.entry_of(atom)
        if number is not None:
            found.setdefault((number, atom.own.file, function_name(atom.own)), []).append(atom)
    units = Units(loop)
    for (number, _, _), atoms in sorted(found.items(), key=lambda each: -total_ns(each[1])):
        entry = CATALOGUE[number]
        claimed = _with_loops(loop, units, atoms) if entry.loop else atoms
        if loop.share(claimed) * (1 - entry.remains[0]) < LEAST_SHARE:
            continue
        yield Cause(
            title=entry.title,
            atoms=indices(claimed),
            evidence=(seen.example(atoms), hottest(loop, atoms)),
            advice=entry.advice,
            residual=Residual(*entry.remains),
            general=True,
            is_hotspot=not entry.sure,
        )


def _with_loops(loop: Loop, units: Units, atoms: list[Atom]) -> list[Atom]:
    """Add what else is done in the loops around."""
    wanted = {units.of(atom) for atom in atoms}
    mine = indices(atoms)
    return [atom for atom in loop.atoms if atom.index in mine or (atom.own is not None and units.of(atom) in wanted)]


class _Seen:
    """What the atoms of a loop call."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._calls = LineCalls(loop.trace, known=True)
        self._cached: dict[object, int | None] = {}

    def entry_of(self, atom: Atom) -> int | None:
        """Return the number of the entry of an atom."""
        own = atom.own
        if own is None or (atom.node.kind == "span" and atom.node.phase in (Phase.BACKWARD, Phase.OPTIMISE)):
            return None
        modules = tuple(module_of(frame.file) for frame in atom.stack[: atom.stack.index(own)])
        key = place_of(own), own.operation, modules
        if key not in self._cached:
            callee, operands = self._call(atom)
            numbers = (i for i, entry in enumerate(CATALOGUE) if self._is(entry, atom, callee, operands, modules))
            self._cached[key] = next(numbers, None)
        return self._cached[key]

    def _call(self, atom: Atom) -> tuple[str, tuple[Operand, ...] | None]:
        """Return what an atom calls, and with what; None if that was not observed."""
        own = atom.own
        if own is None:
            return "", None
        place = self._loop.trace.observed.at(place_of(own), own.operation)
        if place is not None:
            return place.callee, operands_of(place)
        source = self._loop.trace.sources.get(own.file)
        callee = source.callee(own) if source is not None and own.operation.startswith("CALL") else None
        return callee or "", None

    def _is(
        self, entry: Entry, atom: Atom, callee: str, operands: tuple[Operand, ...] | None, modules: tuple[str, ...]
    ) -> bool:
        own = atom.own
        called = any(callee == each or (each.endswith(".") and callee.startswith(each)) for each in entry.calls)
        operator = own is not None and not callee and own.operation in entry.operations
        below = any(each == module or module.startswith(each + ".") for module in modules for each in entry.through)
        if not ((callee and called) or operator or below):
            return False
        if entry.needs and (operands is None or not all(fits(each, operands) for each in entry.needs)):
            return False
        return not entry.often or self._is_often(entry, atom, callee)

    def _is_often(self, entry: Entry, atom: Atom, callee: str) -> bool:
        own = atom.own
        if own is None:
            return False
        observed = self._loop.trace.observed
        place = observed.at(place_of(own), own.operation)
        if place is None:
            return False
        amounts = [n for name in ("env_steps", "updates") if (n := observed.counts.get(name, 0))]
        return observed.passes[place.id] >= entry.often * min(amounts, default=1)

    def example(self, atoms: list[Atom]) -> str:
        """Say what is called with what."""
        texts = Counter[str]()
        for atom in atoms:
            callee, operands = self._call(atom)
            if operands:
                texts[f"{callee or 'works on'}({', '.join(each.text for each in operands)})"] += round(atom.ns)
        return texts.most_common(1)[0][0].replace("works on(", "works on (") if texts else ""


def fits(needs: Needs, operands: tuple[Operand, ...]) -> bool:
    """Return whether an operand is as needed."""
    if needs.at is not None:
        return needs.at < len(operands) and _is_such(needs, operands[needs.at])
    return any(_is_such(needs, each) for each in operands)


def _is_such(needs: Needs, operand: Operand) -> bool:
    return (
        (not needs.container or operand.container in needs.container)
        and operand.length >= needs.length
        and (not needs.form or operand.form == needs.form)
        and operand.elements >= needs.elements
        and (needs.most is None or operand.elements <= needs.most)
        and (not needs.text or operand.text.startswith(needs.text))
    )
