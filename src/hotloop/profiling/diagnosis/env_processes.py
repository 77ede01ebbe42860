"""Whether environments are stepped in the main thread, one after the other, or in worker processes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hotloop.phases import Phase
from hotloop.profiling.diagnosis.claims import bare_name, most_time
from hotloop.profiling.diagnosis.time_slices import Atom, Line, Loop
from hotloop.profiling.trace.model import Node, Process, Thread

LEAST_STEPS = 0.3
"""Part of the run's environment steps that worker processes must have counted. It is not 1, because their windows
begin and end at other times than those of the main process."""


@dataclass(frozen=True, slots=True)
class Steps:
    """How long one environment's step takes in a worker process."""

    processes: int
    median_ns: float
    fastest_ns: float


def outermost_steps(thread: Thread) -> list[Node]:
    """Return the environment spans of a thread that lie in no other environment span."""
    found = []
    for node in thread.nodes:
        parent = thread.by_id.get(node.parent)
        while parent is not None and parent.phase is not Phase.ENV:
            parent = thread.by_id.get(parent.parent)
        if node.kind == "span" and node.phase is Phase.ENV and parent is None:
            found.append(node)
    return found


def vector_nodes(loop: Loop) -> list[Node]:
    """Return the outermost environment spans of the main thread that step several environments a call."""
    return [node for node in outermost_steps(loop.thread) if "step" in node.name] if loop.num_envs >= 2 else []


def worker_steps(loop: Loop) -> Steps | None:
    """Return what an environment's step takes in the worker processes; None if they step none."""
    workers = [process for process in loop.trace.processes[1:] if process.counts.get("env_steps", 0)]
    counted = sum(process.counts["env_steps"] for process in workers)
    if not workers or counted < LEAST_STEPS * loop.env_steps or not loop.trace.main.counts.get("env_steps", 0):
        return None
    nodes = [node for process in workers for node in outermost_steps(process.main_thread)]
    nodes = [node for node in nodes if node.name.endswith("step")]
    calls = max(sum(node.calls for node in nodes), 1)
    median_ns = sum(node.p50_ns * node.calls for node in nodes) / calls
    fastest_ns = sum(node.min_ns * node.calls for node in nodes) / calls
    return Steps(len(workers), median_ns, fastest_ns) if median_ns else None


def idle_cores(loop: Loop) -> float:
    """Return the average number of cores that no process of this run uses."""
    used_ns = sum(map(used_cpu_ns, loop.trace.processes))
    return max(float(loop.machine.cores or 1) - used_ns / max(loop.wall_ns, 1.0), 0.0)


def used_cpu_ns(process: Process) -> float:
    """Return the processor time of a process: as the system counted it, but at least that of its threads."""
    return float(max(process.counts.get("cpu_ns", 0), sum(thread.cpu_ns for thread in process.threads)))


def stepped_from(atoms: Iterable[Atom]) -> Line | None:
    """Return the line of the user's call that steps the vector environment, outside of any `step`."""
    callers: list[tuple[Line, float]] = []
    for atom in atoms:
        steps = [i for i, each in enumerate(atom.stack) if bare_name(each) in ("step", "step_wait")]
        outside = atom.stack[steps[-1] + 1 :] if steps else ()
        caller = next((each for each in outside if each.own), None)
        if caller is not None:
            callers.append(((caller.file, caller.line), atom.ns))
    return most_time(callers)
