"""The file or folder of an export: never overwritten without `force`, and written completely or not at all."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from hotloop.errors import HotloopError
from hotloop.files import resolved

ERRORS = "backslashreplace"
"""Escapes names that UTF-8 cannot encode, such as a path with bytes of another encoding."""


def check(path: Path, folder: bool, force: bool) -> None:
    """Raise if the path exists, before anything is computed."""
    if not path.exists():
        return
    if path.is_dir() != folder:
        found, needed = ("a folder", "a file") if path.is_dir() else ("a file", "a folder")
        raise HotloopError(f"{path} is {found}, the export needs {needed}: choose another with --output")
    if folder and not any(path.iterdir()):
        return
    if not force:
        raise HotloopError(f"{path} already exists: choose another with --output, or replace it with --force")


def place(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` create a file or folder under a temporary name, then rename it.

    If the folder exists, the files are moved into it one by one, and its other files are kept.
    """
    path = resolved(path)  # "." has no name for a temporary file next to it
    # The ending stays, for a writer may go by it.
    temporary = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        write(temporary)
        if temporary.is_dir() and path.is_dir():
            for file in temporary.iterdir():
                os.replace(file, path / file.name)
        else:
            os.replace(temporary, path)
    finally:
        if temporary.is_dir():
            shutil.rmtree(temporary)
        else:
            temporary.unlink(missing_ok=True)


@contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """Open a new text file, compressed if its name ends in .gz."""
    if path.suffix == ".gz":
        # A fast level: higher ones hardly make these files smaller.
        with gzip.open(path, "wt", compresslevel=3, encoding="utf-8", errors=ERRORS, newline="\n") as file:
            yield file
    else:
        with open(path, "w", encoding="utf-8", errors=ERRORS, newline="\n") as file:
            yield file
