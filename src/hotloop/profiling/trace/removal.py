"""Remove the files that hotloop wrote for a run, and nothing else.

Folders are opened without following symbolic links, and files are removed relative to their descriptors. So a folder
that is, or is replaced by, a symbolic link cannot redirect a removal.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hotloop.errors import HotloopError
from hotloop.profiling.trace.liveness import why_kept
from hotloop.profiling.trace.reading import limits
from hotloop.profiling.trace.reading.open_files import Malformed, read_bytes
from hotloop.profiling.trace.reading.plain_json import parse_object
from hotloop.profiling.trace.reading.run_files import MANIFEST, PROCESS, STREAMS
from hotloop.profiling.trace.run_list import RunInfo, info

TABLES = (
    *(f"{name}.arrows" for name in (*STREAMS, "raw")),
    *(f"{name}.tail.arrow" for name in STREAMS),
    "totals.arrow",
)
RECORDS = (
    PROCESS,
    "names.jsonl",
    "state.json",
    "claims.json",
    "functions.json",
    "operators.json",
    "layers.json",
    "sources.json",
    "calls.json",
    "observed.json",
)
OWN_NAMES = frozenset(f"{name}{ending}" for name in (*TABLES, *RECORDS) for ending in ("", ".part"))
FOLDER = re.compile(r"\d+-\d{9}")
"""Name of a process's folder."""
TRAINED_NAMES = frozenset({"checkpoints", "config.toml", "progress.csv", "result.json", "tensorboard"})
"""Results of `hotloop train`. Removing a recording keeps them, because they may have taken hours."""


def remove(run: RunInfo, force: bool = False) -> list[Path]:
    """Delete the files that hotloop wrote for a run; return the files that remain.

    With `force`, it is deleted even if it may still be running elsewhere.

    Raises:
        HotloopError: The path is now another run, or the run may still be in progress.
    """
    now = info(run.path)
    reason = "" if force and now.state != "running" else why_kept(now.path, now.manifest, now.state)
    if now.started_unix_ns != run.started_unix_ns:
        reason = "another run is there by now"
    if reason:
        raise HotloopError(f"{run.path} was not removed: {reason}")
    with _opened(str(run.path)) as folder:
        for name in _folders(folder):
            _remove_process(name, folder)
        for name in (f"{MANIFEST}.part", MANIFEST):
            if _is_regular(name, folder):
                os.unlink(name, dir_fd=folder)
        left = sorted(os.listdir(folder))
    if not left:
        os.rmdir(run.path)
    return [run.path / name for name in left]


def _remove_process(name: str, run: int) -> None:
    with _opened(name, run) as folder:
        if not FOLDER.fullmatch(name) and not _has_process(folder):
            return
        for file in os.listdir(folder):
            if file in OWN_NAMES and _is_regular(file, folder):
                os.unlink(file, dir_fd=folder)
        empty = not os.listdir(folder)
    if empty:
        os.rmdir(name, dir_fd=run)


def _has_process(folder: int) -> bool:
    """Return whether a folder has a `process.json` written by hotloop: other programs use that name as well."""
    try:
        content = parse_object(read_bytes(Path(PROCESS), limits.JSON_BYTES, folder) or b"")
    except Malformed:
        return False
    return {"pid", "main", "clock_ns"} <= content.keys()


def _folders(folder: int) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]


def _is_regular(name: str, folder: int) -> bool:
    try:
        return stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


@contextmanager
def _opened(path: str, parent: int | None = None) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
