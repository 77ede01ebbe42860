"""Files that a full disk, a lost directory or a kill leaves as they were, never half-written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


def write_whole(path: Path, data: bytes) -> None:
    """Write a file under a passing name and rename it.

    Raises:
        OSError: It could not be written. What was there before is still there.
    """
    with replacing(path) as temporary:
        temporary.write_bytes(data)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a passing name to write a file under; it takes the place of `path` if no error is raised."""
    path = path.resolve()
    if path.exists() and not path.is_file():
        yield path  # a device or a pipe has no place to take
        return
    # The ending stays, for a writer may go by it.
    temporary = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def make_private(folder: Path) -> None:
    """Make a folder that only its owner may enter. One that is there stays as it is."""
    # What is above it is the user's: it follows their umask.
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def open_private(path: str, flags: int) -> int:
    """Open a file that only its owner may read: for the `opener` of `open`."""
    return os.open(path, flags, 0o600)


def silence(stream: TextIO) -> None:
    """Discard what is still to be written to stdout or stderr.

    The interpreter would flush it once more at exit, and end with a code of its own if that fails.
    """
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):  # it is closed, or no file
        return
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, descriptor)
    os.close(nothing)


class Appender:
    """A file to which pieces are appended, each completely or not at all.

    Args:
        path: The file; what it held is lost.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb", buffering=0)
        self._end = 0

    def append(self, data: bytes) -> None:
        """Append a piece.

        Raises:
            OSError: It could not be written; the file ends where it did before.
        """
        left = memoryview(data)
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError:
            self._file.seek(self._end)
            self._file.truncate()
            raise
        self._end += len(data)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
