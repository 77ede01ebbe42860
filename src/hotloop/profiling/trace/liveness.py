"""Detects whether a run is still in progress.

A process id is valid only on its machine, boot and process namespace. Seen from elsewhere, a run that has not written
its end may still be running, however long it has written nothing, so it is never considered dead.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Literal

import psutil

from hotloop.errors import INTERRUPTED
from hotloop.profiling.trace.host import this_host
from hotloop.profiling.trace.model import State
from hotloop.profiling.trace.reading.json_schemas import Manifest
from hotloop.profiling.trace.reading.run_files import MANIFEST

BY_SIGNAL = (129, INTERRUPTED, 143)
"""Exit codes that shells report for a program ended by Ctrl-C, and by SIGHUP, Ctrl-C or SIGTERM."""
SAME_PROCESS_S = 1.0
"""If start times differ by more than this, the process id was reused by another program."""
SILENT_S = 60.0
"""A run writes every second. One that has written within this time is never removed."""
SILENT_WITHOUT_HOST_S = 86_400.0
"""The same for recordings of an earlier version, which do not say where they ran."""


def state_of(path: Path, manifest: Manifest) -> State:
    """Return the state of a run: one that says "running" but has no process was killed."""
    if manifest.state != "running":
        # The exit code may be written after the state, when the interpreter has already exited.
        return state_of_exit(manifest.exit_code) if manifest.exit_code is not None else manifest.state or "finished"
    here = this_host()
    if manifest.host is None or manifest.host.shares_processes(here):
        if _is_alive(manifest):
            return "running"
    elif not manifest.host.was_restarted(here):
        return "unknown"
    # The manifest is written at the start and at the end. An incomplete second one means that the run ended.
    return "ended" if (path / f"{MANIFEST}.part").exists() else "killed"


def state_of_exit(exit_code: int) -> Literal["finished", "failed", "interrupted"]:
    """Return the state of a run that ended with an exit code."""
    if exit_code in BY_SIGNAL:
        return "interrupted"
    return "failed" if exit_code else "finished"


def _is_alive(manifest: Manifest) -> bool:
    if manifest.pid is None:
        return False
    try:
        process = psutil.Process(manifest.pid)
        created = manifest.process_create_time
        same = created is None or abs(process.create_time() - created) < SAME_PROCESS_S
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def why_kept(path: Path, manifest: Manifest, state: State) -> str:
    """Return why a run must not be removed; "" if it has certainly ended."""
    if manifest.state != "running":
        return ""
    if state == "running":
        return "it is still running"
    if state == "unknown":
        return "it may be running on another machine or in another container (--force removes it)"
    silent_s = _silent_s(path)
    least_s = SILENT_S if manifest.host is not None else SILENT_WITHOUT_HOST_S
    if silent_s < least_s:
        return f"it was written to {max(silent_s, 0):.0f} s ago and may still be running (--force removes it)"
    return ""


def _silent_s(path: Path) -> float:
    """Return the seconds since a run was last written to, by the clock of its file system."""
    written = [path / MANIFEST, *path.glob("*/state.json")]
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".hotloop-") as now:
        return Path(now.name).stat().st_mtime - max(file.lstat().st_mtime for file in written)
