"""One-line messages on stderr, from code that runs inside a user's training.

They are not Python warnings: a script may turn those into errors, and a failing recorder must never stop it.
"""

from __future__ import annotations

import os
import sys

from hotloop.escaping import printable

STDERR = 2
_own_stderr: tuple[int, int] | None = None


def keep_to_descriptor() -> None:
    """Write to the current stderr, even if the script replaces `sys.stderr`.

    If the script closes descriptor 2 and then opens a file that gets the same number, nothing is written to that file.
    """
    global _own_stderr
    _own_stderr = _identity() or (-1, -1)


def notice(text: str) -> None:
    """Print one line that starts with `hotloop:`. Ignore failures."""
    try:
        line = f"hotloop: {printable(text)}\n"
        if _own_stderr is None:
            if sys.stderr is not None:
                sys.stderr.write(line)
        elif _own_stderr == _identity():
            os.write(STDERR, line.encode(errors="backslashreplace"))
    except Exception:
        pass  # a closed stream, a full disk, or a script that replaced what this needs


def _identity() -> tuple[int, int] | None:
    """Return device and inode of the file behind descriptor 2."""
    try:
        found = os.fstat(STDERR)
    except OSError:
        return None
    return found.st_dev, found.st_ino
