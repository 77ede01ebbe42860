"""Read a run directory into a Trace: while it is going, after it has ended, or after it was killed."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from hotloop.errors import RunUnreadable
from hotloop.trace import store
from hotloop.trace.build import ProcessParts, build_process, build_stretches
from hotloop.trace.claims import Claims, read_claims
from hotloop.trace.drift import BLOCKS, cut
from hotloop.trace.model import Process, State, Trace
from hotloop.trace.runs import read_manifest, state_of
from hotloop.trace.traced import Pace, read_traced

STARVED = 0.1
"""Share of the time without a core from which on speeds are not the loop's own."""
LEAST_SECONDS = 3
"""Of a recording that tells something."""
PROCESS_KEYS = {"pid", "parent_pid", "main", "clock_ns", "wall_ns"}


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
    try:
        return _load(folder, manifest)
    except (KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise RunUnreadable(f"the files of {folder} do not fit together ({reason}): record the run again") from error


def _why_empty(manifest: dict[str, Any]) -> str:
    options = manifest.get("options") or {}
    if options.get("after_steps"):
        return f"the run ended before --after {options['after_steps']} environment steps; ask for fewer"
    if options.get("after_s"):
        return f"the run ended before --after {options['after_s']:g}s; ask for less, or run it for longer"
    return "the run ended before its first second; record it for longer"


def _load(folder: Path, manifest: dict[str, Any]) -> Trace:
    parts = [each for each in map(_read_process, sorted(folder.glob("*/process.json"))) if each is not None]
    main = next((each for each in parts if each.process["main"]), None)
    if main is None or not len(main.memory["window"]):
        raise RunUnreadable(f"{folder} holds no measurement: {_why_empty(manifest)}")
    state = state_of(manifest)
    others = [_aligned(each, main) for each in parts if each is not main]
    others.sort(key=lambda each: each.process["clock_ns"])
    loop = _find_loop(main, others)
    processes: list[Process] = [build_process(main, loop.start_ns, loop.end_ns, state)]
    if not any(thread.main for thread in processes[0].threads):
        raise RunUnreadable(f"{folder} has lost the times or names of its main thread: record the run again")
    for each in others:
        process = build_process(each, loop.start_ns, loop.end_ns, _state_of(each, state))
        if process.threads:
            processes.append(process)
    claimed = read_claims(folder)
    trace = Trace(
        path=str(folder), name=manifest.get("name", folder.name), manifest=manifest, processes=tuple(processes),
        state=state, warnings=(*_warnings(processes, state), *_unread(claimed), *_ended_early(manifest)),
        loop_start_ns=loop.start_ns, loop_end_ns=loop.end_ns,
        startup_ns=max(loop.start_ns - int(main.state.get("start_ns", loop.start_ns)), 0),
        paused_ns=_paused_ns(main, loop), traced=read_traced(folder, _pace(processes[0])),
        claimed=claimed,
    )  # fmt: skip
    return _with_stretches(trace, main)


def _with_stretches(trace: Trace, parts: ProcessParts) -> Trace:
    """Add the stretches of the main thread that are compared to see a drift, if the run is long enough."""
    blocks = cut(trace)
    if blocks is None:
        return trace
    windows = np.sort(parts.memory["window"])
    groups = [set(windows[blocks.place == i].tolist()) for i in range(BLOCKS)]
    main = trace.thread
    cut_up = replace(main, stretches=build_stretches(parts, groups))
    threads = tuple(cut_up if thread is main else thread for thread in trace.main.threads)
    return replace(trace, processes=(replace(trace.main, threads=threads), *trace.processes[1:]))


def _paused_ns(main: ProcessParts, loop: Loop) -> int:
    """What lies between windows: where one ends the next begins, but for a closer look."""
    order = np.argsort(main.memory["window"], kind="stable")
    starts, ends = main.memory["start_ns"][order][1:], main.memory["end_ns"][order][:-1]
    inside = (ends >= loop.start_ns) & (starts <= loop.end_ns)
    return int(np.maximum(starts - ends, 0)[inside].sum())


def _pace(main: Process) -> Pace:
    return Pace(main.counts.get("env_steps", 0), main.counts.get("updates", 0), main.main_thread.wall_ns)


def _read_process(path: Path) -> ProcessParts | None:
    folder = path.parent
    try:
        process = json.loads(path.read_text(encoding="utf-8"))
        state_path = folder / "state.json"
        state = json.loads(state_path.read_text(encoding="utf-8")) if state_path.exists() else {}
    except (OSError, ValueError):
        return None
    if not isinstance(process, dict) or not process.keys() >= PROCESS_KEYS:
        return None
    tables = {name: store.read_table(folder, name) for name in ("windows", "spans", "counters", "samples", "memory")}
    return ProcessParts(process, state, store.read_names(folder), store.read_totals(folder), **tables)


def _aligned(parts: ProcessParts, main: ProcessParts) -> ProcessParts:
    """Bring a process onto the main process's clock, where the system does not give all the same one.

    A later process whose clock shows less has a clock of its own: then both clocks are tied to wall-clock time.
    """
    mine, theirs = main.process, parts.process
    if theirs["clock_ns"] >= mine["clock_ns"]:
        return parts
    shift = (theirs["wall_ns"] - theirs["clock_ns"]) - (mine["wall_ns"] - mine["clock_ns"])
    memory = dict(parts.memory) | {name: parts.memory[name] + shift for name in ("start_ns", "end_ns")}
    begun = parts.state.get("loop_start_ns")
    state = parts.state | {"loop_start_ns": begun + shift if begun is not None else None}
    return replace(parts, memory=memory, state=state, process=theirs | {"clock_ns": theirs["clock_ns"] + shift})


def _find_loop(main: ProcessParts, others: list[ProcessParts]) -> Loop:
    """From the first environment step to the end of the last window that has one; else everything.

    The main process's steps count; where it makes none, because collectors do, theirs.
    """
    stepping = [each for each in map(_stepped, [main]) if each] or [each for each in map(_stepped, others) if each]
    if not stepping:
        return Loop(int(main.memory["start_ns"].min()), int(main.memory["end_ns"].max()))
    end = min(max(each.end_ns for each in stepping), int(main.memory["end_ns"].max()))
    return Loop(min(each.start_ns for each in stepping), end)


def _stepped(parts: ProcessParts) -> Loop | None:
    memory, start = parts.memory, parts.state.get("loop_start_ns")
    code = next((e["code"] for e in parts.names if e["is"] == "counter" and e["name"] == "env_steps"), None)
    windows = np.unique(parts.counters["window"][parts.counters["counter"] == code]) if code is not None else []
    ends = memory["end_ns"][np.isin(memory["window"], windows)]
    return Loop(int(start), int(ends.max())) if start is not None and len(ends) else None


def _state_of(parts: ProcessParts, run: State) -> State:
    if parts.state.get("state") == "finished":
        return "finished"
    return "running" if run == "running" and psutil.pid_exists(parts.process["pid"]) else "killed"


def _unread(claimed: Claims) -> list[str]:
    return [f"timings that the script printed were not read ({claimed.failed})"] if claimed.failed else []


def _ended_early(manifest: dict[str, Any]) -> list[str]:
    why = manifest.get("recorder_failed")
    return [f"the recorder stopped before the script did ({why}): what came after is missing"] if why else []


def _warnings(processes: list[Process], state: State) -> tuple[str, ...]:
    found = [warning for process in processes for warning in process.warnings]
    if state == "killed":
        found.append("the run was killed: what it did in its last second is missing")
    if not any(process.counts.get("env_steps") for process in processes):
        found.append(
            "no environment steps were counted: rates and the loop's begin are unknown; shares are of the whole run"
        )
    windows = processes[0].windows
    lengths_s = (windows.end_ns - windows.start_ns) / 1e9
    seconds, in_loop_s = float(lengths_s.sum()), float(lengths_s[windows.in_loop].sum())
    starved_s = processes[0].counts.get("starved_ns", 0) / 1e9
    if seconds >= LEAST_SECONDS and starved_s > STARVED * in_loop_s:
        found.append(
            f"the main thread was ready to run but had no core for {starved_s:.1f} s of the loop: other programs, or "
            "more threads than cores, were in its way, so these speeds are not the loop's own"
        )
    if seconds < LEAST_SECONDS:
        found.append(f"only {seconds:.1f} s were recorded: shares are rough below 10 s")
    return tuple(found)
