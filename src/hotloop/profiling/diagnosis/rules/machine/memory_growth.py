"""Memory keeps growing and will be full within hours, or the machine is already paging.

Something is kept that should be released. Unless it is detached, a tensor keeps the graph it was computed from, with
all inputs and activations: 130 kB per step for a critic with two layers of 128 and 128 environments. So do lists and
dicts that are only added to. A detached scalar is small, but fragments the heap: in `values_keep_graphs`, acting
without gradients and keeping scalar tensors still grew by 60 kB per step; keeping Python numbers did not grow.

**Seen by.** Resident or device memory that grew by at least 48 MiB and 5 %, in both halves of the recording, at more
than twice the rate at which bytes are stored in replay, and would fill the machine within a day. At least 30 % of the
growth must be newly allocated: a preallocated replay buffer becomes resident as it fills and is no leak. Or a hundred
major page faults per second: the machine is paging. The reported line is the busiest one that keeps something without
detaching it. It is a hint, not a proof, because memory is sampled only a few times per second.

**Residual.** None: the gain is 1, because time is lost only once memory is full.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hotloop.profiling.diagnosis.claims import indices, matching
from hotloop.profiling.diagnosis.evidence import hot_lines, quoted, size
from hotloop.profiling.diagnosis.finding import Cause, Causes
from hotloop.profiling.diagnosis.time_slices import Loop

KEEPS = re.compile(
    r"\.(append|extend|appendleft|update|setdefault|add)\((?!.*(\.item\(|\.detach\(|\.tolist\(|\bfloat\(|\.numpy\())"
    r"|\w\s*\+=\s*(self\.)?\w*loss\w*\s*$"
)
LEAST_BYTES = 48 << 20
"""Allocators and caches settle within that."""
LEAST_PART = 0.05
FEWEST = 6
"""Readings of memory, one per window: two in each third of the loop."""
EVEN = 0.2
"""Least part of the growth in each half: what grows only at first has settled."""
FULL_WITHIN_S = 24 * 3600
FILLING = 2.0
"""Replay that fills up takes the bytes given to it, and some for the objects around them."""
RESERVED = 0.3
"""Least part of the growth that is newly allocated. Allocators reserve memory ahead, so it is not all of it."""
PAGING_PER_S = 100
"""Major page faults: each waits for the disk."""
LINES = 3
ADVICE = """\
Keep numbers, not tensors with a graph, and bound every list:
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


def find(loop: Loop) -> Causes:
    """Find memory that grows evenly, faster than replay is filled; and page faults that wait for the disk."""
    seconds = loop.wall_ns / 1e9
    paging = loop.trace.main.counts.get("page_faults_major", 0) / seconds
    memory, machine = loop.trace.main.memory, loop.machine
    kinds = (
        ("resident memory", memory.rss_bytes, float(machine.memory_bytes or 0)),
        ("device memory", memory.gpu_bytes, float(machine.gpu_memory_bytes or 0)),
    )
    evidence: list[str] = []
    for name, series, limit in kinds:
        found = even_growth(memory.at_ns, series, loop.trace.loop_start_ns, loop.trace.loop_end_ns)
        if found is None or not _unbounded(loop, found, limit):
            continue
        if series is memory.rss_bytes and _had_it_before(loop, found):
            continue
        steps = max(loop.env_steps, 1) / seconds
        evidence.append(
            f"{name} grew by {size(found.last_bytes - found.first_bytes)} to {size(found.last_bytes)}: "
            f"{size(found.bytes_per_s)}/s, {size(found.bytes_per_s / steps)} an environment step"
        )
        if limit:
            evidence.append(f"at that rate the machine's {size(limit)} are full in {_hours(found.full_in_s(limit))}")
    if paging >= PAGING_PER_S:
        evidence.append(f"{paging:.0f} major page faults a second: memory is being read back from disk")
    return [_cause(loop, evidence)] if evidence else []


def even_growth(at_ns: NDArray[np.int64], series: NDArray[np.int64], start_ns: int, end_ns: int) -> Growth | None:
    """Return how a series grows if it does so throughout; None if it is flat, settles, or is too short."""
    inside = (at_ns >= start_ns) & (at_ns <= end_ns)
    if inside.sum() < FEWEST:
        return None
    low, mid, high = _thirds(series[inside])
    grown = high - low
    if grown < max(LEAST_BYTES, LEAST_PART * low) or min(mid - low, high - mid) < EVEN * grown:
        return None
    first, _, last = _thirds(at_ns[inside])
    seconds = (last - first) / 1e9
    return Growth(grown / seconds, low, high) if seconds > 0 else None


def _thirds(series: NDArray[np.int64]) -> list[float]:
    """Return the medians of the thirds of a series."""
    return [float(np.median(part)) for part in np.array_split(series, 3)]


def _unbounded(loop: Loop, found: Growth, limit: float) -> bool:
    """Return whether the growth is more than replay filling up, and matters within a day."""
    stored = loop.counts.get("replay_adds_bytes", 0) / (loop.wall_ns / 1e9)
    return found.bytes_per_s > FILLING * stored and (not limit or found.full_in_s(limit) < FULL_WITHIN_S)


def _had_it_before(loop: Loop, found: Growth) -> bool:
    """Return whether memory was allocated before and only becomes resident: a preallocated buffer that fills up."""
    memory, trace = loop.trace.main.memory, loop.trace
    inside = (memory.at_ns >= trace.loop_start_ns) & (memory.at_ns <= trace.loop_end_ns)
    reserved = memory.reserved_bytes[inside]
    if not reserved.any():
        return False
    low, _, high = _thirds(reserved)
    return high - low < RESERVED * (found.last_bytes - found.first_bytes)


def _cause(loop: Loop, evidence: list[str]) -> Cause:
    keeping = matching(loop.atoms, KEEPS)
    lines = hot_lines(keeping)[:LINES]
    seen = "; ".join(map(quoted, lines))
    grower = max(loop.thread.nodes, key=lambda node: node.cpu_memory_bytes + node.gpu_memory_bytes)
    atoms = keeping or loop.of_nodes([grower]) or list(loop.atoms)
    return Cause(
        title="Memory keeps growing: something is kept that should be released.",
        atoms=indices(atoms),
        evidence=(
            *evidence,
            f"lines that keep something without detaching it: {seen}" if lines else "",
            f"most of the growth was in {grower.name}",
        ),
        informs=True,
        blame=(lines[0].file, lines[0].line) if lines else None,
    )


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f} hours" if seconds >= 3600 else f"{seconds / 60:.0f} minutes"
