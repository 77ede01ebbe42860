"""Experience goes through a locked queue one transition at a time.

Each transition is pickled, written to a pipe by a feeder thread, and read and unpickled under a lock.

**Seen by.** At least 0.2 calls of queues and locks in the main thread per environment step of all processes. The
evidence shows the time that other processes and feeder threads spend in queues. Waiting for the workers of a vector
environment is not covered.

**Residual.** Without queues, a run takes as long as its busiest process computes, and at least as long as the cores
need for all work. If that is more than the learner's own work, the difference is still spent waiting.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hotloop.phases import Phase
from hotloop.profiling.diagnosis.claims import indices, passes_through
from hotloop.profiling.diagnosis.env_processes import used_cpu_ns
from hotloop.profiling.diagnosis.evidence import duration, hottest, percent, times
from hotloop.profiling.diagnosis.finding import Cause, Causes, Residual, clamped
from hotloop.profiling.diagnosis.time_slices import Loop, total_ns
from hotloop.profiling.trace.model import Node, Thread

QUEUES = re.compile(r"[/\\](multiprocessing[/\\](queues|connection|reduction|synchronize|managers)|queue)\.py$")
NAMES = re.compile(r"queue|lock|semaphore|condition", re.IGNORECASE)
PROCESSES = re.compile(r"[/\\]multiprocessing[/\\](queues|connection|reduction|synchronize|managers)\.py$")
LEAST_BETWEEN = 0.2
"""Least part of the time in queues between processes: between threads, nothing is pickled."""
LEAST_PER_STEP = 0.2
"""With this many messages per environment step, the queue carries single items and not fragments."""
ADVICE = """\
Let each collector write whole fragments into its own stripe of shared memory, and send only "ready" words:
    block = shared_memory.SharedMemory(create=True, size=slots * slot_bytes)
    frames = np.ndarray((slots, T, 84, 84), np.uint8, block.buf)   # in every process, no copy
    frames[slot, t] = frame                                        # collector: one writer a stripe
    ready.send(slot)                                               # once in T steps, not once a step
Nothing is pickled, and no lock is held while copying."""


@dataclass(frozen=True, slots=True)
class Work:
    """CPU time of a process over the loop, and the part of it that goes into queues."""

    name: str
    cpu_ns: float
    queue_ns: float


def find(loop: Loop) -> Causes:
    """Find time in queues and their pickling, where they carry about one item an environment step."""
    claimed = loop.where(lambda atom: _of_queue(loop, atom.node) or passes_through(atom, QUEUES))
    calls = sum(node.calls for node in loop.spans if _is_queue(node) and not _of_queue(loop, loop.parent(node)))
    per_step = calls / max(loop.env_steps, 1)
    between = [atom for atom in claimed if passes_through(atom, PROCESSES)]
    if not claimed or per_step < LEAST_PER_STEP or total_ns(between) < LEAST_BETWEEN * total_ns(claimed):
        return
    works = [
        Work(process.name, used_cpu_ns(process), sum(map(_queue_cpu_ns, process.threads)))
        for process in loop.trace.processes
    ]
    waiting = 1.0 - sum(atom.cpu_ns for atom in claimed) / max(total_ns(claimed), 1.0)
    elsewhere = [
        f"{work.name}: {percent(work.queue_ns / work.cpu_ns)} of its processor time goes into queues"
        for work in works[1:]
        if work.cpu_ns and work.queue_ns > 0.05 * work.cpu_ns
    ]
    yield Cause(
        title="Experience passes one item at a time through a locked, pickling queue.",
        atoms=indices(claimed),
        residual=_residual(loop, works, total_ns(claimed)),
        evidence=(
            f"{times(per_step)} queue calls an environment step, {duration(total_ns(claimed) / max(calls, 1))} each",
            f"{percent(waiting)} of that time is waiting, the rest pickling and copying",
            *elsewhere[:3],
            hottest(loop, claimed),
        ),
    )


def _residual(loop: Loop, works: list[Work], claimed_ns: float) -> Residual:
    """Predict what remains of the time in queues once nothing is pickled.

    Without queues, the run is as long as its busiest process computes, and as long as the cores need for
    the work of all of them; what exceeds the learner's own work is still spent waiting.
    """
    own_ns = loop.wall_ns - claimed_ns
    left = [max(work.cpu_ns - work.queue_ns, 0.0) for work in works]
    cores = max(loop.machine.cores or 1, 1)
    needed_ns = max(own_ns, max(left[1:], default=0.0), sum(left) / cores)
    wait = max(needed_ns - own_ns, 0.0) / max(claimed_ns, 1.0)
    return clamped(wait + 0.03, 0.6 * wait, 1.4 * wait + 0.1)


def _is_queue(node: Node) -> bool:
    return node.phase is Phase.WAIT and node.kind == "span" and NAMES.search(node.name) is not None


def _of_queue(loop: Loop, node: Node | None) -> bool:
    return node is not None and any(_is_queue(each) for each in loop.lineage(node))


def _queue_cpu_ns(thread: Thread) -> float:
    return float(
        sum(
            sample.cpu_ns
            for sample in thread.samples
            if NAMES.search(thread.by_id[sample.node].name) or passes_through(sample, QUEUES)
        )
    )
