"""The loops of a source file: which of them a line is in."""

from __future__ import annotations

from hotloop.profiling.trace.model import Frame
from hotloop.profiling.trace.source_text import SourceText

NESTED = (".<locals>.<listcomp>", ".<locals>.<genexpr>", ".<locals>.<dictcomp>", ".<locals>.<setcomp>")
"""Ends of the names of comprehensions, which run as functions of their own."""
Block = tuple[str, int, int]
"""File, first and last line of a loop or comprehension."""


def function_name(frame: Frame) -> str:
    """Return the name of the function that a frame belongs to; a comprehension belongs to the one around it."""
    name = frame.function
    while name.endswith(NESTED):
        name = name.rpartition(".<locals>.")[0]
    return name


def loops_around(source: SourceText | None, frame: Frame) -> tuple[Block, ...]:
    """Return the loops that a frame's line is in, of its own function, outermost first."""
    if source is None:
        return ()
    nested, module = frame.function.endswith(NESTED), frame.function == "<module>"
    return tuple(
        (frame.file, first, last)
        for first, last, begin, end in source.loops
        if first <= frame.line <= last and (nested or module or begin <= max(frame.first_line, 1) <= end)
    )
