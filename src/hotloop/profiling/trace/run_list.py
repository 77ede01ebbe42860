"""Find and list the runs in a directory. A run is a directory with hotloop's `run.json`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hotloop.errors import HotloopError, RunNotFound, RunUnreadable
from hotloop.profiling.trace.liveness import state_of
from hotloop.profiling.trace.model import State
from hotloop.profiling.trace.reading.json_schemas import Manifest
from hotloop.profiling.trace.reading.open_files import Malformed
from hotloop.profiling.trace.reading.plain_json import read_json
from hotloop.profiling.trace.reading.run_files import MANIFEST, read_manifest

DEFAULT_ROOT = Path("runs")
REPORT_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class RunInfo:
    """A run according to its manifest, without reading its streams."""

    path: Path
    name: str
    state: State
    started_unix_ns: int
    seconds: float | None
    """Length of the recording; None if it was not written, as while the run is in progress or after it was killed."""
    exit_code: int | None
    """Exit code of the script; None if it was not written."""
    size_bytes: int
    manifest: Manifest

    @property
    def complete(self) -> bool:
        """Whether the recorder ran until the script ended, according to the manifest."""
        return not self.manifest.recorder_failed


def info(path: Path) -> RunInfo:
    """Return one run, from its manifest."""
    manifest, _ = read_manifest(path)
    return RunInfo(
        path=path,
        name=manifest.name or path.name,
        state=state_of(path, manifest),
        started_unix_ns=manifest.started_unix_ns,
        seconds=manifest.seconds,
        exit_code=manifest.exit_code,
        size_bytes=size_of(path),
        manifest=manifest,
    )


def survey(root: Path = DEFAULT_ROOT) -> tuple[list[RunInfo], list[str]]:
    """Return the runs directly below a directory, newest first, and why others cannot be read."""
    found: list[RunInfo] = []
    unreadable: list[str] = []
    for path in root.iterdir() if root.is_dir() else ():
        try:
            if not path.is_symlink() and os.path.lexists(path / MANIFEST):
                found.append(info(path))
        except HotloopError as error:
            unreadable.append(str(error))
        except OSError as error:
            unreadable.append(f"{path} cannot be read ({error.strerror or error}): check its rights")
    return sorted(found, key=lambda run: (-run.started_unix_ns, run.path.name)), sorted(unreadable)


def list_runs(root: Path = DEFAULT_ROOT) -> list[RunInfo]:
    """Return the readable runs directly below a directory, newest first."""
    return survey(root)[0]


def newest(root: Path = DEFAULT_ROOT) -> Path:
    """Return the run that was started last.

    Raises:
        RunNotFound: There is none.
    """
    found = list_runs(root)
    if not found:
        raise RunNotFound(f"no run in {root}: record one with `hotloop run script.py`, or name a directory")
    return found[0].path


def find(name: str | None, root: Path = DEFAULT_ROOT) -> Path:
    """Return the run that a user means: a directory, a report on one, a name below `root`, or if None the newest."""
    if name is None:
        return newest(root)
    path = Path(name)
    if path.is_file():
        path = _reported(path)
    if not path.exists() and (root / name).exists():
        return root / name
    read_manifest(path)
    return path


def _reported(file: Path) -> Path:
    """Return the run that a JSON report (`--profile-report`, `explain --detailed`) was made from."""
    try:
        run = (read_json(file, limit=REPORT_BYTES) or {}).get("run")
    except Malformed:
        run = None
    if not isinstance(run, str):
        raise RunUnreadable(f"{file} is not a report of hotloop: give a run directory, see `hotloop ls`")
    if not Path(run).is_dir():
        raise RunNotFound(f"{file} reports on {run}, which no longer exists: give a run directory")
    return Path(run)


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder. Symbolic links are not followed."""
    return path.stat().st_size if path.is_file() else sum(_sizes(path))


def _sizes(folder: Path) -> Iterator[int]:
    waiting = [str(folder)]
    while waiting:
        try:
            entries = list(os.scandir(waiting.pop()))
        except OSError:
            continue  # removed by the run itself in the meantime, or not readable
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    yield entry.stat(follow_symlinks=False).st_size
            except OSError:
                continue
