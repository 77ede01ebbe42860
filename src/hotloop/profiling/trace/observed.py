"""What was seen while the main thread was followed: the places that ran, and the objects that went through them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from hotloop.profiling.trace.operands import Operand, parse
from hotloop.profiling.trace.reading.json_schemas import ObservedPlace, ObservedRecord

Position = tuple[str, int, int, int, int]
"""File, line, last line, first and last column of an expression."""


@dataclass(frozen=True, slots=True)
class Row:
    """A place that was passed. Objects have the same number as long as they live; 0 is none."""

    place: ObservedPlace
    frame: int
    """Number of the call of the function that the place is in."""
    operands: tuple[int, ...]
    results: tuple[int, ...]


@dataclass(frozen=True)
class Observed:
    """The places and windows of a run."""

    record: ObservedRecord = field(default_factory=ObservedRecord)

    @cached_property
    def places(self) -> dict[int, ObservedPlace]:
        """The places by number."""
        return {each.id: each for each in self.record.places}

    @cached_property
    def windows(self) -> tuple[tuple[Row, ...], ...]:
        """The rows of each window, as they came."""
        return tuple(tuple(self._rows(window.rows)) for window in self.record.windows)

    def _rows(self, texts: tuple[str, ...]) -> Iterator[Row]:
        for text in texts:
            try:
                place, frame, n, *objects = map(int, text.split())
            except ValueError:
                continue  # damaged
            if place in self.places and n >= 0:
                yield Row(self.places[place], frame, tuple(objects[:n]), tuple(objects[n:]))

    @cached_property
    def passes(self) -> Counter[int]:
        """How often each place was passed, by its number."""
        return Counter(row.place.id for window in self.windows for row in window)

    @cached_property
    def counts(self) -> Counter[str]:
        """What was counted in all windows together: environment steps, updates and so on."""
        return sum((Counter(window.counts) for window in self.record.windows), Counter())

    @cached_property
    def _by_position(self) -> dict[tuple[Position, str], ObservedPlace]:
        found: dict[tuple[Position, str], ObservedPlace] = {}
        for each in sorted(self.record.places, key=lambda each: self.passes[each.id]):
            found[position_of(each), each.operation] = each
        return found

    def at(self, position: Position, operation: str) -> ObservedPlace | None:
        """Return the place of an instruction, the most frequent one if it calls several things; None if unseen."""
        return self._by_position.get((position, operation))


def position_of(place: ObservedPlace) -> Position:
    """Return where a place is."""
    return place.file, place.line, place.end_line, place.column, place.end_column


def operands_of(place: ObservedPlace | None) -> tuple[Operand, ...]:
    """Return what a place works on."""
    return tuple(parse(each) for each in place.operands) if place is not None else ()
