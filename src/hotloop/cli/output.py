"""How subcommands print and write: lines whose names cannot control the terminal, rich layouts, files.

Rich output is coloured and fits a terminal; into a pipe it is plain and wide. Rich is imported only when used, because
`hotloop run` must not import it into the training process.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from hotloop.errors import HotloopError
from hotloop.escaping import printable
from hotloop.files import silence

if TYPE_CHECKING:
    from rich.console import RenderableType

PIPE_WIDTH = 110
"""For a pipe, rich assumes 80 columns, too few for a call tree."""


def say(line: str) -> None:
    """Print a line to standard output. Text in it cannot control the terminal."""
    print(printable(line))


def note(line: str) -> None:
    """Print a line that starts with `hotloop:` to standard error. If that cannot be written, the line is lost."""
    if sys.stderr is None:
        return
    try:
        print(f"hotloop: {printable(line)}", file=sys.stderr, flush=True)
    except OSError:
        silence(sys.stderr)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Report that the block wrote a file, or raise an error if it could not."""
    try:
        yield
    except OSError as error:
        raise HotloopError(f"cannot write {path} ({error.strerror or error}): choose another file") from error
    note(f"wrote {path}")


def print_rich(*parts: RenderableType, most_width: int | None = None) -> None:
    """Print parts below each other to standard output, at most `most_width` columns wide."""
    from rich.console import Console

    terminal = sys.stdout.isatty()
    console = Console(width=None if terminal else PIPE_WIDTH, highlight=False, emoji=False)
    width = min(console.width, most_width or console.width)
    # Captured first: rich itself exits when a pipe breaks, with exit code 1.
    with console.capture() as captured:
        for part in parts:
            console.print(part, width=width)
    text = captured.get()
    if not terminal:
        text = "\n".join(line.rstrip() for line in text.split("\n"))
    sys.stdout.write(text)
