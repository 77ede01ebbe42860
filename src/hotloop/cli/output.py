"""How subcommands print: lines whose quoted names cannot control the terminal, and what rich lays out.

Rich is coloured and fitted to a terminal, plain and wide into a pipe. It is imported when it is used: `hotloop run`
prints a line, and must not bring it into the training process.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from hotloop.escaping import printable
from hotloop.files import silence

if TYPE_CHECKING:
    from rich.console import RenderableType


PIPE_WIDTH = 110
"""Into a pipe, rich would assume 80 columns, too few for a call tree."""


def say(line: str) -> None:
    """Print a line to standard output. What it quotes cannot control the terminal."""
    print(printable(line))


def note(line: str) -> None:
    """Print a line about what the command did to standard error, marked as hotloop's.

    Where that cannot be written, the line is lost, and the command goes on: its exit code tells how it ended.
    """
    if sys.stderr is None:
        return
    try:
        print(f"hotloop: {printable(line)}", file=sys.stderr, flush=True)
    except OSError:
        silence(sys.stderr)


def print_rich(*parts: RenderableType, most_width: int | None = None) -> None:
    """Print to standard output.

    Args:
        parts: What to print, one below the other.
        most_width: Columns to use at most, however wide the terminal is.
    """
    from rich.console import Console

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
