"""Whether a run is still going, as far as that can be known from here.

A process id says something only on the machine, in the boot and in the process namespace that it is from. Elsewhere a
run that has not written its end may be alive, however long it has been silent, so it is never taken for dead.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Literal

import psutil

from hotloop.errors import INTERRUPTED
from hotloop.profiling.trace.host import this_host
from hotloop.profiling.trace.model import State
from hotloop.profiling.trace.reading.records import Manifest
from hotloop.profiling.trace.reading.run_files import MANIFEST

BY_SIGNAL = (129, INTERRUPTED, 143)
"""Exit codes that shells report for a program ended by Ctrl-C, and by SIGHUP, Ctrl-C or SIGTERM."""
SAME_PROCESS_S = 1.0
"""A process id whose process began later than this after the recorded one belongs to another program."""
SILENT_S = 60.0
"""A run writes every second. One that has written within this time is not removed, whatever else is known."""
SILENT_WITHOUT_HOST_S = 86_400.0
"""The same for recordings of an earlier version, which do not say where they ran."""


def state_of(path: Path, manifest: Manifest) -> State:
    """Return the state of a run: one that says "running" but whose process is gone was killed."""
    if manifest.state != "running":
        # The exit code may have been written after the state, when the interpreter was gone.
        return state_of_exit(manifest.exit_code) if manifest.exit_code is not None else manifest.state or "finished"
    here = this_host()
    if manifest.host is None or manifest.host.shares_processes(here):
        if _is_alive(manifest):
            return "running"
    elif not manifest.host.was_restarted(here):
        return "unknown"
    # The manifest is written twice, at the start and at the end: a second one that is not whole is an end.
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
    """Say why a run must not be removed; "" if it surely has ended."""
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
    """Return for how long nothing was written to a run, by the clock of the file system that it is on."""
    written = [path / MANIFEST, *path.glob("*/state.json")]
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".hotloop-") as now:
        return Path(now.name).stat().st_mtime - max(file.lstat().st_mtime for file in written)
