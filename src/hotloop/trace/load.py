"""Read a run directory into a Trace: while it is going, after it has ended, or after it was killed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from hotloop.errors import RunNotFound, RunUnreadable
from hotloop.trace import store
from hotloop.trace.build import ProcessParts, build_process
from hotloop.trace.model import FORMAT_VERSION, Process, State, Trace

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Loop:
    """The part of a run that is looked at."""

    start_ns: int
    end_ns: int


def load(path: str | Path) -> Trace:
    """Read a run.

    Args:
        path: The run directory.

    Raises:
        RunNotFound: There is nothing there.
        RunUnreadable: It is not a run, was written by a newer version, or holds nothing yet.
    """
    folder = Path(path)
    manifest = read_manifest(folder)
    parts = [each for each in map(_read_process, sorted(folder.glob("*/process.json"))) if each is not None]
    main = next((each for each in parts if each.process["main"]), None)
    if main is None or not len(main.memory["window"]):
        raise RunUnreadable(f"{folder} holds no measurement: the run ended before its first second; record it for longer")
    state = run_state(manifest)
    loop = _find_loop(main)
    others = [each for each in parts if each is not main]
    others.sort(key=lambda each: each.process["clock_ns"])
    processes: list[Process] = [build_process(main, loop.start_ns, loop.end_ns, state)]
    for each in others:
        process = build_process(each, loop.start_ns, loop.end_ns, _state_of(each, state))
        if process.threads:
            processes.append(process)
    return Trace(
        path=str(folder), name=manifest.get("name", folder.name), manifest=manifest, processes=tuple(processes),
        state=state, warnings=_warnings(processes, state), loop_start_ns=loop.start_ns, loop_end_ns=loop.end_ns,
        startup_ns=max(loop.start_ns - int(main.state.get("start_ns", loop.start_ns)), 0),
    )  # fmt: skip


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read and check a run's manifest."""
    if not folder.exists():
        raise RunNotFound(f"there is no run {folder}: `hotloop ls` shows those kept here")
    path = folder / "run.json"
    if not path.is_file():
        raise RunUnreadable(f"{folder} is not a run of hotloop (no run.json): give a directory that `hotloop run` made")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        version = int(manifest["format"])
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise RunUnreadable(f"{path} cannot be read ({error}): it is damaged or not hotloop's; record again") from None
    if version > FORMAT_VERSION:
        raise RunUnreadable(
            f"{folder} was written in format {version}, this hotloop reads up to {FORMAT_VERSION}: update hotloop"
        )
    return manifest


def run_state(manifest: dict[str, Any]) -> State:
    """Say whether a run is going, has finished, or was killed: then it says "running" but its process is gone."""
    if manifest.get("state") == "finished":
        return "finished"
    try:
        process = psutil.Process(int(manifest["pid"]))
        same = abs(process.create_time() - float(manifest["process_create_time"])) < 1.0
        return "running" if same and process.status() != psutil.STATUS_ZOMBIE else "killed"
    except (psutil.Error, KeyError, ValueError, TypeError):
        return "killed"


def _read_process(path: Path) -> ProcessParts | None:
    folder = path.parent
    try:
        process = json.loads(path.read_text(encoding="utf-8"))
        state_path = folder / "state.json"
        state = json.loads(state_path.read_text(encoding="utf-8")) if state_path.exists() else {}
    except (OSError, ValueError):
        return None
    tables = {name: store.read_table(folder, name) for name in ("windows", "spans", "counters", "samples", "memory")}
    return ProcessParts(process, state, store.read_names(folder), store.read_totals(folder), **tables)


def _find_loop(main: ProcessParts) -> Loop:
    """From the first environment step to the end of the last window that has one; else everything."""
    memory = main.memory
    code = next((e["code"] for e in main.names if e["is"] == "counter" and e["name"] == "env_steps"), None)
    stepped = np.unique(main.counters["window"][main.counters["counter"] == code]) if code is not None else []
    start = main.state.get("loop_start_ns")
    if start is None or not len(stepped):
        return Loop(int(memory["start_ns"].min()), int(memory["end_ns"].max()))
    end = memory["end_ns"][np.isin(memory["window"], stepped)].max()
    return Loop(int(start), int(end))


def _state_of(parts: ProcessParts, run: State) -> State:
    if parts.state.get("state") == "finished":
        return "finished"
    return "running" if run == "running" and psutil.pid_exists(parts.process["pid"]) else "killed"


def _warnings(processes: list[Process], state: State) -> tuple[str, ...]:
    found = [warning for process in processes for warning in process.warnings]
    if state == "killed":
        found.append("the run was killed: what it did in its last second is missing")
    if not processes[0].counts.get("env_steps"):
        found.append("no environment steps were counted: rates and the loop's begin are unknown; shares are of the whole run")
    seconds = sum(end - start for start, end in zip(processes[0].windows.start_ns, processes[0].windows.end_ns, strict=True)) / 1e9
    if seconds < 3:
        found.append(f"only {seconds:.1f} s were recorded: shares are rough below 10 s")
    return tuple(found)


