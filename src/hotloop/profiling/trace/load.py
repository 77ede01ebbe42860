"""Read a run directory into a Trace. The run may be in progress, finished or killed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import psutil

from hotloop.errors import RunUnreadable
from hotloop.profiling.trace.build.phases_by_role import with_roles
from hotloop.profiling.trace.build.process import build_process
from hotloop.profiling.trace.build.stretches import build_stretches
from hotloop.profiling.trace.build.training_loop import find_training_loop
from hotloop.profiling.trace.deep import Pace, build_traced
from hotloop.profiling.trace.drift import BLOCKS, cut
from hotloop.profiling.trace.liveness import state_of
from hotloop.profiling.trace.model import UNENDED, Process, State, Trace
from hotloop.profiling.trace.observed import Observed
from hotloop.profiling.trace.reading import limits
from hotloop.profiling.trace.reading.json_schemas import Manifest, ProcessRecord
from hotloop.profiling.trace.reading.open_files import Budget, Malformed
from hotloop.profiling.trace.reading.run_files import (
    PROCESS,
    ProcessParts,
    process_folders,
    read_calls,
    read_claims,
    read_looks,
    read_manifest,
    read_observed,
    read_process,
    read_record,
    read_sources,
)
from hotloop.profiling.trace.source_text import SourceText

LONG_ENOUGH_S = 2.0
"""A recording of this length must have written something: the recorder writes every second."""
STARVED = 0.1
"""Warn if the main thread had no core for more than this share of the loop."""
LEAST_SECONDS = 3
"""Warn about shorter recordings."""


@dataclass(frozen=True, slots=True)
class Loop:
    """The part of a run that the tables cover."""

    start_ns: int
    end_ns: int


def load(path: str | Path) -> Trace:
    """Read a run directory.

    Raises:
        RunNotFound: There is nothing there.
        RunUnreadable: It is not a run, was written by a newer version, or holds nothing yet.
    """
    folder = Path(path)
    manifest, content = read_manifest(folder)
    state = state_of(folder, manifest)
    budget = Budget()
    main, others, damage = _read_processes(folder, budget)
    if main is None or not len(main.memory["window"]):
        why = damage[0] if damage else _why_empty(manifest)
        raise RunUnreadable(f"{folder} holds no measurement: {why}")
    sources, sources_damage = read_sources(folder, budget)
    loop = _find_loop(main, others, sources)
    processes = [build_process(main, loop.start_ns, loop.end_ns, state, budget)]
    if not any(thread.main for thread in processes[0].threads):
        raise RunUnreadable(f"{folder} has lost the times or names of its main thread: record the run again")
    for each in others:
        process = build_process(each, loop.start_ns, loop.end_ns, _state_of(each, state), budget)
        if process.threads:
            processes.append(process)
    claimed, claims_damage = read_claims(folder, budget)
    looks, looks_damage = read_looks(folder, budget)
    calls, calls_damage = read_calls(folder, budget)
    observed, observed_damage = read_observed(folder, budget)
    missing = [*damage, *claims_damage, *looks_damage, *sources_damage, *calls_damage, *observed_damage]
    if why := manifest.recorder_failed:
        missing.insert(0, f"the recorder stopped before the script did ({why}): what came after is missing")
    unread = [f"timings that the script printed were not read ({claimed.failed})"] if claimed.failed else []
    counts = processes[0].counts
    pace = Pace(counts.get("env_steps", 0), counts.get("updates", 0), processes[0].main_thread.wall_ns)
    trace = Trace(
        path=str(folder),
        name=manifest.name or folder.name,
        manifest=content,
        processes=tuple(processes),
        state=state,
        warnings=(*_warnings(processes, state), *_edited(sources), *unread, *missing),
        loop_start_ns=loop.start_ns,
        loop_end_ns=loop.end_ns,
        startup_ns=_startup_ns(main, loop),
        paused_ns=_paused_ns(main, loop),
        traced=build_traced(looks, pace),
        claimed=claimed,
        counts_before=manifest.counts_before,
        missing=tuple(missing),
        sources=sources,
        calls=calls,
        observed=Observed(observed),
        unix_offset_ns=main.process.wall_ns - main.process.clock_ns,
    )
    return with_roles(_with_stretches(trace, main))


def _edited(sources: Mapping[str, SourceText]) -> list[str]:
    edited = [file for file, source in sources.items() if source.edited_since()]
    return [f"{file} was edited after the run: lines are those of the version that ran" for file in edited]


def _why_empty(manifest: Manifest) -> str:
    if manifest.options and manifest.options.after_steps:
        return f"the run ended before --after {manifest.options.after_steps} environment steps; ask for fewer"
    if manifest.options and manifest.options.after_s:
        return f"the run ended before --after {manifest.options.after_s:g}s; ask for less, or run it for longer"
    if manifest.seconds is not None and manifest.seconds > LONG_ENOUGH_S:
        return f"the files of its {manifest.seconds:.0f} s are missing; record it again"
    return "the run ended before its first second; record it for longer"


def _read_processes(folder: Path, budget: Budget) -> tuple[ProcessParts | None, list[ProcessParts], list[str]]:
    """Return the main process, the others in order of their start and on its clock, and what could not be read."""
    main: ProcessParts | None = None
    others: list[ProcessParts] = []
    folders = process_folders(folder)
    damage = (
        [f"only {limits.PROCESSES} of {len(folders)} processes are read"] if len(folders) > limits.PROCESSES else []
    )
    for each in sorted(folders, key=_is_not_main)[: limits.PROCESSES]:
        try:
            parts = read_process(each, budget)
            damage += parts.damage
            if parts.process.main and main is None:
                main = parts
            elif main is not None:
                others.append(_aligned(parts, main))
        except Malformed as error:
            damage.append(f"process {each.name} is left out: {error}")
    others.sort(key=lambda each: each.process.clock_ns)
    return main, others, damage


def _is_not_main(folder: Path) -> bool:
    try:
        process = read_record(ProcessRecord, folder / PROCESS)
    except Malformed:
        return True
    return process is None or not process.main


def _with_stretches(trace: Trace, parts: ProcessParts) -> Trace:
    """Add the stretches of the main thread that drift is detected from, if the run is long enough."""
    blocks = cut(trace)
    if blocks is None:
        return trace
    windows = parts.memory["window"]
    groups = [set(windows[blocks.place == i].tolist()) for i in range(BLOCKS)]
    main = trace.thread
    cut_up = replace(main, stretches=build_stretches(parts, groups))
    threads = tuple(cut_up if thread is main else thread for thread in trace.main.threads)
    return replace(trace, processes=(replace(trace.main, threads=threads), *trace.processes[1:]))


def _startup_ns(main: ProcessParts, loop: Loop) -> int:
    start_ns = main.state.start_ns
    return max(loop.start_ns - start_ns, 0) if start_ns is not None else 0


def _paused_ns(main: ProcessParts, loop: Loop) -> int:
    """Return the time between windows. Windows are contiguous except for pauses during deep profiling."""
    starts, ends = main.memory["start_ns"][1:], main.memory["end_ns"][:-1]
    inside = (ends >= loop.start_ns) & (starts <= loop.end_ns)
    return int(np.maximum(starts - ends, 0)[inside].sum())


def _aligned(parts: ProcessParts, main: ProcessParts) -> ProcessParts:
    """Convert a process to the main process's clock, on systems where processes do not share a clock.

    A process that started later but has a smaller clock reading has its own clock. Then wall time relates the two.

    Raises:
        Malformed: It would be years before or after the main process.
    """
    mine, theirs = main.process, replace(parts.process, main=False)
    if theirs.clock_ns >= mine.clock_ns:
        return replace(parts, process=theirs)
    shift = (theirs.wall_ns - theirs.clock_ns) - (mine.wall_ns - mine.clock_ns)
    if abs(shift) > limits.LARGEST:
        raise Malformed("its clock is years from that of the main process")
    memory = dict(parts.memory) | {name: parts.memory[name] + shift for name in ("start_ns", "end_ns")}
    loop_start_ns = parts.state.loop_start_ns
    state = replace(parts.state, loop_start_ns=loop_start_ns + shift if loop_start_ns is not None else None)
    process = replace(theirs, clock_ns=theirs.clock_ns + shift)
    return replace(parts, memory=memory, state=state, process=process, shift_ns=shift)


def _find_loop(main: ProcessParts, others: list[ProcessParts], sources: Mapping[str, SourceText]) -> Loop:
    """Return the loop: from the first environment step to the end of the last window with a step or an update.

    Updates are included because a loop that collects, then learns, ends with learning. If the main process makes no
    steps because workers do, theirs are used. Without any steps, it is the loop in the source in which most of the time
    is spent, or the whole run.
    """
    whole = Loop(int(main.memory["start_ns"].min()), int(main.memory["end_ns"].max()))
    stepping = [each for each in (main,) if _steps(each)] or [each for each in others if _steps(each)]
    if not stepping:
        found = find_training_loop(main, sources)
        return Loop(*found) if found is not None else whole
    start = min(each.state.loop_start_ns or 0 for each in stepping)
    stepped = max(_last_counted_ns(each, "env_steps") for each in stepping)
    updated = max(_last_counted_ns(each, "updates") for each in (main, *others))
    return Loop(start, min(max(stepped, updated), whole.end_ns))


def _steps(parts: ProcessParts) -> bool:
    return parts.state.loop_start_ns is not None and _last_counted_ns(parts, "env_steps") > 0


def _last_counted_ns(parts: ProcessParts, counter: str) -> int:
    """Return the end of the last window in which the counter advanced; 0 if there is none."""
    counted = (parts.counters["counter"] == parts.names.code_of(counter)) & (parts.counters["amount"] > 0)
    windows = parts.counters["window"][counted]
    return int(parts.memory["end_ns"][np.isin(parts.memory["window"], windows)].max(initial=0))


def _state_of(parts: ProcessParts, run: State) -> State:
    if parts.state.state == "finished":
        return "finished"
    if run == "unknown":
        return run
    return "running" if run == "running" and psutil.pid_exists(parts.process.pid) else "killed"


def _warnings(processes: list[Process], state: State) -> list[str]:
    found = [warning for process in processes for warning in process.warnings]
    found += [UNENDED[state]] if state in UNENDED and state != "running" else []
    if not any(process.counts.get("env_steps") for process in processes):
        found.append(
            "no environment steps were counted: rates are unknown, and the loop is the one that takes most of the time"
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
    return found
