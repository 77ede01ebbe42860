"""Writes files atomically: a full disk, a missing directory or a kill never leaves a file half-written.

Reads files from untrusted sources: only regular files, and only up to a size limit.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

CHUNK = 1 << 20


class UnfitFile(Exception):
    """A file that is not read. The message says why, without the file's name."""


def open_regular(path: Path, *, folder: int | None = None, follow: bool = False) -> int:
    """Open a regular file to read it; return its descriptor.

    Opening a pipe could block, and reading a device might never end, so both are rejected before they are opened.

    Args:
        path: The file.
        folder: Descriptor of the folder that the path is relative to; None: the current one.
        follow: Whether the file may be a symbolic link, which could lead anywhere.

    Raises:
        UnfitFile: It is not a regular file.
        OSError: It cannot be opened.
    """
    _require_regular(os.stat(path, dir_fd=folder, follow_symlinks=follow))
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    descriptor = os.open(path, flags, dir_fd=folder)
    try:
        _require_regular(os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_regular(path: Path, limit: int, *, folder: int | None = None, follow: bool = False) -> bytes:
    """Return the content of a regular file.

    Args:
        path: The file.
        limit: Largest allowed size in bytes.
        folder: As for `open_regular`.
        follow: As for `open_regular`.

    Raises:
        UnfitFile: It is not a regular file, or is larger than the limit.
        OSError: It cannot be read.
    """
    parts: list[bytes] = []
    size = 0
    descriptor = open_regular(path, folder=folder, follow=follow)
    try:
        while part := os.read(descriptor, CHUNK):
            size += len(part)
            if size > limit:
                raise UnfitFile(f"it is larger than {limit >> 20} MiB")
            parts.append(part)
    finally:
        os.close(descriptor)
    return b"".join(parts)


def resolved(path: Path) -> Path:
    """Return a path with all symbolic links followed.

    Raises:
        OSError: The links form a circle. (`Path.resolve` raises RuntimeError or nothing, depending on the version.)
    """
    try:
        os.stat(path)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise
    return Path(os.path.realpath(path))


def _require_regular(status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise UnfitFile("it is a symbolic link")
    if not stat.S_ISREG(status.st_mode):
        raise UnfitFile("it is not a regular file")


def write_whole(path: Path, data: bytes) -> None:
    """Write a file under a temporary name, then rename it.

    Raises:
        OSError: It could not be written. An existing file is unchanged.
    """
    with replacing(path) as temporary:
        temporary.write_bytes(data)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; it replaces `path` if no error is raised."""
    path = resolved(path)
    if path.exists() and not path.is_file():
        yield path  # a device or a pipe cannot be replaced
        return
    # Keep the suffix, because a writer may choose the format by it.
    temporary = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def make_private(folder: Path) -> None:
    """Create a folder that only its owner may enter. An existing folder is left unchanged."""
    # Parent folders belong to the user and follow their umask.
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def open_private(path: str, flags: int) -> int:
    """Open a file that only its owner may read; use as `opener` of `open`."""
    return os.open(path, flags, 0o600)


def silence(stream: TextIO) -> None:
    """Discard what is still buffered for stdout or stderr, and all later output.

    Otherwise the interpreter would flush it again at exit and, if that fails, change the exit code.
    """
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):  # it is closed, or is not a file
        return
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, descriptor)
    os.close(nothing)


class Appender:
    """A file to which data is appended, each piece completely or not at all.

    Args:
        path: The file. An existing one is truncated.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb", buffering=0)
        self._end = 0

    def append(self, data: bytes) -> None:
        """Append a piece.

        Raises:
            OSError: It could not be written. The file is unchanged.
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
