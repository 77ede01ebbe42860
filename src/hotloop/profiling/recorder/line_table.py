"""Reads the table of source positions in a code object (Python 3.11 and later).

`code.co_positions()` does the same, but the sampler has only a copy of the table: the code object may no longer exist.
"""

from __future__ import annotations

from typing import NamedTuple

UNIT_BYTES = 2
"""Size of an instruction or cache entry."""


class Position(NamedTuple):
    """Where an instruction's source is. Columns are UTF-8 bytes from 0; -1 is unknown."""

    line: int
    end_line: int = -1
    column: int = -1
    end_column: int = -1


def positions(table: bytes, first_line: int) -> list[Position | None]:
    """Return the position of each instruction; None for those without a source line.

    The format is described in CPython's Objects/locations.md.
    """
    found: list[Position | None] = []
    line, at = first_line, 0
    while at < len(table):
        code, length = table[at] >> 3 & 15, (table[at] & 7) + 1
        at += 1
        position: Position | None
        if code == 15:  # no location
            position = None
        elif code == 14:  # long form
            delta, at = _signed(table, at)
            end_delta, at = _unsigned(table, at)
            column, at = _unsigned(table, at)
            end_column, at = _unsigned(table, at)
            line += delta
            position = Position(line, line + end_delta, column - 1, end_column - 1)
        elif code == 13:  # no columns
            delta, at = _signed(table, at)
            line += delta
            position = Position(line, line)
        elif code >= 10:  # one line, up to two lines further down
            line += code - 10
            position = Position(line, line, table[at], table[at + 1])
            at += 2
        else:  # short form: the same line, columns below 80
            column = code << 3 | table[at] >> 4
            position = Position(line, line, column, column + (table[at] & 15))
            at += 1
        found += [position] * length
    return found


def _unsigned(table: bytes, at: int) -> tuple[int, int]:
    """Return a number written in groups of six bits, the lowest first, and where it ends."""
    value, shift = table[at] & 63, 0
    while table[at] & 64:
        at += 1
        shift += 6
        value |= (table[at] & 63) << shift
    return value, at + 1


def _signed(table: bytes, at: int) -> tuple[int, int]:
    """Return a signed number: its lowest bit is the sign."""
    value, at = _unsigned(table, at)
    return (-(value >> 1) if value & 1 else value >> 1), at
