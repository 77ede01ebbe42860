"""Memory grows without an end in sight, and will be full in hours; or the machine is paging already.

**Cause.** Something is kept that should be let go. A tensor keeps the graph it was computed from, with all inputs and
activations, unless it is detached: 130 kB a step for a critic of two layers of 128 and 128 environments. Lists and
dicts that are only added to do the same on a smaller scale. A detached scalar is small, but lies among large blocks
that are freed and then cannot be joined again: in `values_keep_graphs`, acting without gradients and keeping scalar
tensors still grew by 60 kB a step; keeping numbers did not grow.

**Seen by.** Resident or device memory that grew by at least 48 MiB and 5 % over the recording, in its first half as
well as in its second, at more than twice the rate at which bytes are given to replay, and would fill the machine
within a day. At least 30 % of the growth must be newly asked for of the system: a replay buffer that was made whole,
or that other processes write, comes into use as it fills, and is no leak. Or a hundred major page faults a second:
then the machine is paging already. The line blamed is the busiest one that keeps something without detaching it,
which is a hint and no proof: memory is read a few times a second, not at each line.

**Cure.**
```python
with torch.no_grad():  # while acting
    action, value = policy(obs)
losses.append(loss.item())  # a number
self.history = deque(maxlen=10_000)
```

**Residual.** None: it is listed with a gain of 1, because time is lost only once memory is full.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hotloop.profiling.diagnosis.evidence import hot_lines, indices, matching, quoted, size
from hotloop.profiling.diagnosis.finding import Cause, Residual
from hotloop.profiling.diagnosis.time_slices import Atom, Loop

KEEPS = re.compile(
    r"\.(append|extend|appendleft|update|setdefault|add)\((?!.*(\.item\(|\.detach\(|\.tolist\(|\bfloat\(|\.numpy\())"
    r"|\w\s*\+=\s*(self\.)?\w*loss\w*\s*$"
)
LEAST_BYTES = 48 << 20
"""Allocators and caches settle within that."""
LEAST_PART = 0.05
FEWEST = 6
"""Readings, one a window: two in each third."""
EVEN = 0.2
"""Least part of the growth in each half: what grows only at first has settled."""
FULL_WITHIN_S = 24 * 3600
FILLING = 2.0
"""Replay that fills up takes the bytes given to it, and some for the objects around them."""
RESERVED = 0.3
"""Least part of the growth that is newly asked for of the system. An allocator asks ahead, so it is not all of it."""
PAGING_PER_S = 100
"""Major page faults: each waits for the disk."""
LINES = 3
ADVICE = """\
Keep numbers, not tensors with a graph, and give every list an end:
    losses.append(loss.item())              # a number; a detached tensor still pins a piece of the heap
    with torch.no_grad():                   # while acting: no graph is built
        action, value = policy(obs)
    self.history = deque(maxlen=10_000)     # not a list that is only appended to"""


@dataclass(frozen=True, slots=True)
class Growth:
    """How memory grows over the recording."""

    bytes_per_s: float
    first_bytes: float
    last_bytes: float

    def full_in_s(self, limit_bytes: float) -> float:
        """Seconds until a limit is reached."""
        return max(limit_bytes - self.last_bytes, 0.0) / self.bytes_per_s


def find(loop: Loop) -> list[Cause]:
    """Find memory that grows evenly, faster than replay is filled; and page faults that wait for the disk."""
    seconds = loop.wall_ns / 1e9
    paging = loop.trace.main.counts.get("page_faults_major", 0) / seconds
    told: list[str] = []
    for name, series, limit in _kinds(loop):
        found = even_growth(loop.trace.main.memory.at_ns, series, loop.trace.loop_start_ns, loop.trace.loop_end_ns)
        if found is None or not _unbounded(loop, found, limit):
            continue
        if series is loop.trace.main.memory.rss_bytes and _had_it_before(loop, found):
            continue
        steps = max(loop.env_steps, 1) / seconds
        told.append(
            f"{name} grew by {size(found.last_bytes - found.first_bytes)} to {size(found.last_bytes)}: "
            f"{size(found.bytes_per_s)}/s, {size(found.bytes_per_s / steps)} an environment step"
        )
        if limit:
            told.append(f"at that rate the machine's {size(limit)} are full in {_hours(found.full_in_s(limit))}")
    if paging >= PAGING_PER_S:
        told.append(f"{paging:.0f} major page faults a second: memory is being read back from disk")
    return [_cause(loop, told)] if told else []


def _kinds(loop: Loop) -> list[tuple[str, NDArray[np.int64], float]]:
    memory, machine = loop.trace.main.memory, loop.machine
    return [
        ("resident memory", memory.rss_bytes, float(machine.get("memory_bytes") or 0)),
        ("device memory", memory.gpu_bytes, float(machine.get("gpu_memory_bytes") or 0)),
    ]


def even_growth(at_ns: NDArray[np.int64], series: NDArray[np.int64], start_ns: int, end_ns: int) -> Growth | None:
    """Return how a series grows if it does so all the time; None if it is flat, settles, or is too short."""
    inside = (at_ns >= start_ns) & (at_ns <= end_ns)
    at_ns, series = at_ns[inside], series[inside]
    if len(series) < FEWEST:
        return None
    low, mid, high = (float(np.median(part)) for part in np.array_split(series, 3))
    grown = high - low
    if grown < max(LEAST_BYTES, LEAST_PART * low) or min(mid - low, high - mid) < EVEN * grown:
        return None
    first, _, last = (float(np.median(part)) for part in np.array_split(at_ns, 3))
    seconds = (last - first) / 1e9
    return Growth(grown / seconds, low, high) if seconds > 0 else None


def _unbounded(loop: Loop, found: Growth, limit: float) -> bool:
    """Say whether the growth is more than replay filling up, and matters within a day."""
    stored = loop.counts.get("replay_adds_bytes", 0) / (loop.wall_ns / 1e9)
    return found.bytes_per_s > FILLING * stored and (not limit or found.full_in_s(limit) < FULL_WITHIN_S)


def _had_it_before(loop: Loop, found: Growth) -> bool:
    """Say whether memory that was asked for long ago only comes into use: a buffer made whole, which fills."""
    memory, trace = loop.trace.main.memory, loop.trace
    inside = (memory.at_ns >= trace.loop_start_ns) & (memory.at_ns <= trace.loop_end_ns)
    reserved = memory.reserved_bytes[inside]
    if not reserved.any():
        return False
    low, _, high = (float(np.median(part)) for part in np.array_split(reserved, 3))
    return high - low < RESERVED * (found.last_bytes - found.first_bytes)


def _cause(loop: Loop, told: list[str]) -> Cause:
    keeping = matching([atom for atom in loop.atoms if atom.own is not None], KEEPS)
    lines = hot_lines(keeping)[:LINES]
    seen = "; ".join(quoted(line) for line in lines)
    grower = max(loop.thread.nodes, key=lambda node: node.cpu_memory_bytes + node.gpu_memory_bytes)
    atoms = keeping or _of(loop, grower.id) or list(loop.atoms)
    return Cause(
        rule="memory_growth",
        title="Memory keeps growing: something is kept that should be let go.",
        atoms=indices(atoms),
        residual=Residual(1.0, 1.0, 1.0),
        evidence=(
            *told,
            *([f"lines that keep something without detaching it: {seen}"] if lines else []),
            f"most of it was seen growing in {grower.name}",
        ),
        advice=ADVICE,
        informs=True,
        blame=(lines[0].file, lines[0].line) if lines else None,
    )


def _of(loop: Loop, node_id: int) -> list[Atom]:
    return [atom for atom in loop.atoms if atom.node.id == node_id]


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f} hours" if seconds >= 3600 else f"{seconds / 60:.0f} minutes"
