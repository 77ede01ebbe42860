"""One-line messages on stderr, from code that runs inside somebody's training.

They are not Python warnings: a script may turn those into errors, and a failing recorder must never stop it.
"""

from __future__ import annotations

import os
import sys

from hotloop.escaping import printable

STDERR = 2
_own_stderr: tuple[int, int] | None = None


def keep_to_descriptor() -> None:
    """Write to the present stderr itself, whatever the script does with `sys.stderr`.

    A script may replace `sys.stderr` with an object of its own, or close descriptor 2 and open a file that gets its
    number: into neither are messages written.
    """
    global _own_stderr
    _own_stderr = _identity() or (-1, -1)


def notice(text: str) -> None:
    """Print one line that starts with `hotloop:`; do nothing where that fails."""
    try:
        line = f"hotloop: {printable(text)}\n"
        if _own_stderr is None:
            if sys.stderr is not None:
                sys.stderr.write(line)
        elif _own_stderr == _identity():
            os.write(STDERR, line.encode(errors="backslashreplace"))
    except Exception:
        pass  # A closed stream, a full disk, or a script that replaced what this needs: nobody can read it.


def _identity() -> tuple[int, int] | None:
    """Return what descriptor 2 is open for, by device and inode."""
    try:
        found = os.fstat(STDERR)
    except OSError:
        return None
    return found.st_dev, found.st_ino
