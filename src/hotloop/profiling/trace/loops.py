"""The loops of a source file: which of them a line is in."""

from __future__ import annotations

from hotloop.profiling.trace.model import Frame
from hotloop.profiling.trace.source_text import SourceText

COMPREHENSIONS = frozenset({"<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>"})
"""Names of comprehensions, which run as functions of their own."""
Block = tuple[str, int, int]
"""File, first and last line of a loop or comprehension."""


def function_name(frame: Frame) -> str:
    """Return the name of the function that a frame belongs to; a comprehension belongs to the one around it."""
    parts = frame.function.split(".")
    while parts[-1] in COMPREHENSIONS:
        parts.pop()
        if parts and parts[-1] == "<locals>":
            parts.pop()
        if not parts:
            return "<module>"
    return ".".join(parts)


def loops_around(source: SourceText | None, frame: Frame) -> tuple[Block, ...]:
    """Return the loops that a frame's line is in, of its own function, outermost first."""
    if source is None:
        return ()
    nested, module = frame.function.rpartition(".")[2] in COMPREHENSIONS, frame.function == "<module>"
    return tuple(
        (frame.file, first, last)
        for first, last, begin, end in source.loops
        if first <= frame.line <= last and (nested or module or begin <= max(frame.first_line, 1) <= end)
    )
