"""How subcommands print what rich lays out: coloured and fitted to a terminal, plain and wide into a pipe."""

from __future__ import annotations

import sys

from rich.console import Console, RenderableType

PIPE_WIDTH = 110
"""Into a pipe, rich would assume 80 columns, too few for a call tree."""


def print_rich(*parts: RenderableType, most_width: int | None = None) -> None:
    """Print to standard output.

    Args:
        parts: What to print, one below the other.
        most_width: Columns to use at most, however wide the terminal is.
    """
    terminal = sys.stdout.isatty()
    console = Console(width=None if terminal else PIPE_WIDTH, highlight=False, emoji=False)
    width = min(console.width, most_width or console.width)
    # Captured first: rich ends the program by itself when a pipe breaks, with the exit code of bad news.
    with console.capture() as captured:
        for part in parts:
            console.print(part, width=width)
    text = captured.get()
    if not terminal:
        text = "\n".join(line.rstrip() for line in text.split("\n"))
    sys.stdout.write(text)
