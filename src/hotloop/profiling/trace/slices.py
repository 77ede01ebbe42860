"""What single lines are for, by following data backwards: from the action of a step, and from a loss.

What the action was made of, back to the call of a network or another choice, acts; what that was made of, back to what
came out of the last step, observes. What a loss was made of, back to the calls of networks, is their forward pass; what
these were called with, back to what is kept from earlier, was sampled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from hotloop.phases import Phase
from hotloop.profiling.trace.observed import Observed, Row
from hotloop.profiling.trace.roles import CHOICES, LEARNING, PUTS, Function, is_step

Line = tuple[str, int]
MOSTLY = 0.6
LEAST_PASSES = 3
MOST_ROWS = 4_000
"""Of one slice."""
MUTATIONS = frozenset({"LIST_APPEND", "LIST_EXTEND", "SET_ADD", "SET_UPDATE", "DICT_UPDATE"})


@dataclass(frozen=True, slots=True)
class Known:
    """What is certain: steps of environments, and networks."""

    steps: Collection[str]
    own_steps: Collection[Function]
    networks: Collection[str]


def find_line_roles(observed: Observed, known: Known) -> dict[Line, Phase]:
    """Return the phase of each line of the user's that has one."""
    votes: dict[Line, Counter[Phase]] = {}
    passes = Counter[Line]()
    for window in observed.windows:
        for i, phase in enumerate(_Slices(window, known).phases()):
            line = window[i].place.file, window[i].place.line
            passes[line] += 1
            if phase is not None:
                votes.setdefault(line, Counter())[phase] += 1
    found = {}
    for line, counts in votes.items():
        phase, n = max(counts.items(), key=lambda each: (each[1], each[0]))
        if n >= LEAST_PASSES and n >= MOSTLY * passes[line]:
            found[line] = phase
    return found


@dataclass(slots=True)
class _Made:
    """The rows that made an object: the one it is the result of, and those that put something into it."""

    by: int = -1
    filled: list[int] = field(default_factory=list)


class _Slices:
    """The backward slices of one window."""

    def __init__(self, window: tuple[Row, ...], known: Known) -> None:
        self._rows = window
        self._known = known
        self._sources: list[tuple[tuple[int, ...], ...]] = []
        """Of each row, the rows that made its operands."""
        self._phase: list[Phase | None] = [None] * len(window)
        self._steps: list[int] = []
        self._losses: list[int] = []
        self._stepping: set[int] = set()
        """Rows that step an environment: what came before them is another matter."""
        self._link()

    def phases(self) -> list[Phase | None]:
        """Return the phase of each row."""
        for at, i in enumerate(self._losses):
            self._follow(i, self._losses[at - 1] if at else -1, Phase.FORWARD, Phase.SAMPLE)
        # Acting last: a network's call that acts may also be part of a loss.
        for at, i in enumerate(self._steps):
            self._follow(i, self._steps[at - 1] if at else -1, Phase.ACT, Phase.OBSERVE)
        return self._phase

    def _link(self) -> None:
        made: dict[int, _Made] = {}
        called: int | None = None
        entered: list[int] = []
        for i, row in enumerate(self._rows):
            operation = row.place.operation
            if operation == "FUNCTION" and called is not None:
                entered.append(called)
            while entered and self._rows[entered[-1]].frame == row.frame:
                self._return(entered.pop(), made)
            called = i if operation in ("CALL", "CALL_FUNCTION_EX") else None
            self._sources.append(tuple(_rows_of(made.get(each)) for each in row.operands))
            self._note(i, row)
            for each in row.results:
                made[each] = _Made(i)
            filled = self._filled(row)
            if filled:
                made.setdefault(filled, _Made()).filled.append(i)

    def _return(self, call: int, made: dict[int, _Made]) -> None:
        """The results of a network are its call's; those of other functions of the user's were made in them, too."""
        row = self._rows[call]
        for each in row.results:
            inside = made.get(each)
            if inside is None or inside.by < call or self._chooses(row):
                made[each] = _Made(call)
            else:
                inside.filled.append(call)

    def _filled(self, row: Row) -> int:
        """Return the object that a row puts something into; 0 for none."""
        place = row.place
        if place.operation in MUTATIONS and row.operands:
            return row.operands[0]
        if place.operation == "STORE_SUBSCR":
            return row.operands[1]
        # The first operand is what is called; of a method, the second is its object.
        if place.operation == "CALL" and place.callee.rpartition(".")[2] in PUTS and len(row.operands) > 2:
            return row.operands[1]
        return 0

    def _note(self, i: int, row: Row) -> None:
        place = row.place
        if place.operation == "FUNCTION":
            if (place.file, place.function, place.first_line) in self._known.own_steps:
                self._steps.append(i)
                self._stepping |= {i - 1, i}  # the call of this function, too
        elif place.operation in ("CALL", "CALL_FUNCTION_EX"):
            if is_step(place.callee, self._known.steps):
                self._steps.append(i)
                self._stepping.add(i)
            elif place.callee in LEARNING:
                self._losses.append(i)

    def _follow(self, start: int, since: int, near: Phase, far: Phase) -> None:
        """Mark the rows after `since` that made a row's operands: `near` up to the networks, then `far`."""
        operands = self._sources[start]
        # What is called, and the environment itself, are not the action.
        own = 1 if self._rows[start].place.operation == "FUNCTION" else 2
        first = operands[own:] or operands[-1:] if near is Phase.ACT else operands
        pending = [(row, near) for rows in first for row in rows]
        seen: set[tuple[int, Phase]] = set()
        while pending and len(seen) < MOST_ROWS:
            i, phase = pending.pop()
            if i <= since or (i, phase) in seen or i in self._stepping:
                continue
            seen.add((i, phase))
            if self._phase[i] is None or near is Phase.ACT:
                self._phase[i] = phase
            if phase is near and self._chooses(self._rows[i]):
                if not self._stepping:
                    continue  # where steps of the environment are not known, what came before may be one
                phase = far
            pending += [(row, phase) for rows in self._sources[i] for row in rows]

    def _chooses(self, row: Row) -> bool:
        name = row.place.callee.rpartition(".")[2]
        return bool(name) and (name in self._known.networks or name in CHOICES)


def _rows_of(made: _Made | None) -> tuple[int, ...]:
    if made is None:
        return ()
    return (*((made.by,) if made.by >= 0 else ()), *made.filled[-8:])
