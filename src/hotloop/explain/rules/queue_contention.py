"""queue_contention: experience goes through a locked queue one transition at a time.

Each item is pickled, written to a pipe by a feeder thread, read and unpickled under a lock; the learner waits
meanwhile. Fragments in shared memory cost one copy and no lock.
"""

from __future__ import annotations

import re

from hotloop.explain.evidence import duration, hottest, indices, percent, times, total_ns
from hotloop.explain.finding import Cause, clamped
from hotloop.explain.loop import Atom, Loop
from hotloop.spans import Phase
from hotloop.trace.model import Thread

QUEUES = re.compile(
    r"[/\\](multiprocessing[/\\](queues|connection|reduction|synchronize|managers)|queue)\.py$"
)
NAMES = re.compile(r"queue|lock|semaphore|condition", re.IGNORECASE)
LEAST_PER_STEP = 0.2
"""Messages for each environment step from which the queue carries single items rather than fragments."""
ADVICE = """\
Let each collector write whole fragments into its own stripe of shared memory, and send only "ready" words:
    block = shared_memory.SharedMemory(create=True, size=slots * slot_bytes)
    frames = np.ndarray((slots, T, 84, 84), np.uint8, block.buf)   # in every process, no copy
    frames[slot, t] = frame                                        # collector: one writer a stripe
    ready.send(slot)                                               # once in T steps, not once a step
Nothing is pickled on the way, and nobody holds a lock while copying."""


def find(loop: Loop) -> list[Cause]:
    """Find time in queues and their pickling, where they carry about one item an environment step."""
    claimed = loop.where(_queues)
    calls = sum(n.calls for n in loop.thread.nodes if n.phase is Phase.WAIT and NAMES.search(n.name))
    per_step = calls / max(loop.env_steps, 1)
    if not claimed or per_step < LEAST_PER_STEP:
        return []
    waiting = 1.0 - sum(atom.cpu_ns for atom in claimed) / max(total_ns(claimed), 1.0)
    return [
        Cause(
            rule="queue_contention",
            title="Experience passes one item at a time through a locked, pickling queue.",
            atoms=indices(claimed),
            residual=clamped(0.3, 0.1, 0.6),
            evidence=(
                f"{times(per_step)} queue calls an environment step, "
                f"{duration(total_ns(claimed) / max(calls, 1))} each",
                f"{percent(waiting)} of that time is waiting, the rest pickling and copying",
                *_elsewhere(loop),
                hottest(loop, claimed),
            ),
            advice=ADVICE,
        )
    ]


def _queues(atom: Atom) -> bool:
    if atom.node.phase is Phase.WAIT and NAMES.search(atom.node.name):
        return True
    return any(QUEUES.search(frame.file) for frame in atom.stack)


def _elsewhere(loop: Loop) -> list[str]:
    """Say how much time the other threads and processes spend in queues."""
    told: list[str] = []
    for process in loop.trace.processes:
        for thread in process.threads:
            share = _queue_share(thread)
            if thread is not loop.thread and share > 0.05:
                told.append(f"{process.name}, thread {thread.name}: {percent(share)} of its time in queues")
    return told[:3]


def _queue_share(thread: Thread) -> float:
    inside = sum(
        sample.cpu_ns if not thread.main else sample.wall_ns
        for sample in thread.samples
        if any(QUEUES.search(frame.file) for frame in sample.stack)
    )
    return inside / thread.wall_ns if thread.wall_ns else 0.0
