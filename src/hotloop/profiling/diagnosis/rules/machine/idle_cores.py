"""Torch is limited to few threads although the network is large and cores are idle.

`torch.set_num_threads(1)`, right for small networks, was copied into a script with a large one.

**Seen by.** Fewer torch threads than free cores, and forward or backward passes of at least 500 MFLOP per call that
reach a fifth of one core's measured peak. Smaller calls gain little from threads, and slower ones are not bound by
arithmetic.

**Cure.**
```python
torch.set_num_threads(n)  # the cores that the environments do not use; or remove the call
```

**Residual.** Amdahl's law with 90 % of a call divided among threads (60 to 100 %).

**Not covered.** Worker processes, which should keep one thread each, and networks whose update takes less than about a
millisecond.
"""

from __future__ import annotations

from hotloop.phases import Phase
from hotloop.profiling.diagnosis.claims import indices
from hotloop.profiling.diagnosis.env_processes import idle_cores
from hotloop.profiling.diagnosis.evidence import duration, meeting_line, size, times
from hotloop.profiling.diagnosis.finding import Cause, Causes, clamped
from hotloop.profiling.diagnosis.time_slices import Loop, total_ns
from hotloop.profiling.trace.model import Node

COMPUTES = frozenset({Phase.FORWARD, Phase.BACKWARD, Phase.ACT})
LEAST_FLOPS = 5e8
"""Arithmetic of a call that is worth dividing among threads: five to ten milliseconds of one core."""
LEAST_SPEED = 0.2
"""Part of one core's peak that a call must reach: slower calls are not bound by arithmetic."""
PARALLEL = 0.9
"""Part of a large call that is divided among threads; the rest is Python, allocation and small operations."""
LEAST_IDLE = 0.7


def find(loop: Loop) -> Causes:
    """Find large networks computed by fewer threads than there are cores for them."""
    torch = loop.trace.torch
    threads = torch.threads or 0
    idle = idle_cores(loop)
    wanted = min(threads + int(idle + 1.0 - LEAST_IDLE), loop.machine.cores or threads)
    nodes = [node for node in loop.spans if _is_large(loop, node)]
    claimed = loop.of_nodes(nodes)
    if loop.machine.gpu or threads < 1 or wanted <= threads or not claimed:
        return
    flops = sum(loop.counted("flops", node) for node in nodes)
    calls = sum(node.calls for node in nodes)
    ratio = _time(wanted, PARALLEL) / _time(threads, PARALLEL)
    yield Cause(
        title=f"Torch computes a large network with {threads} thread{'s' * (threads > 1)} while cores are idle.",
        atoms=indices(claimed),
        residual=clamped(ratio, threads / wanted, _time(wanted, 0.6) / _time(threads, 0.6)),
        evidence=(
            f"{idle:.1f} of {loop.machine.cores} cores are idle; torch uses {threads} of them",
            f"{size(flops / calls, 'FLOP')} a call in {duration(total_ns(claimed) / calls)}, {times(calls)} calls",
        ),
        advice=_advice(wanted),
        general=True,
        blame=torch.set_at or meeting_line(claimed),
    )


def _time(threads: int, parallel: float) -> float:
    """Return how long work takes if a part of it is divided among threads; on one thread it takes 1 (Amdahl)."""
    return 1.0 - parallel + parallel / threads


def _is_large(loop: Loop, node: Node) -> bool:
    flops = loop.counted("flops", node)
    peak = float(loop.machine.peak_flops_1 or 0.0)
    fast = flops >= LEAST_SPEED * peak * node.total_ns / 1e9
    return node.phase in COMPUTES and node.calls > 0 and flops >= LEAST_FLOPS * node.calls and fast


def _advice(wanted: int) -> str:
    return (
        f"Let the learner use the cores that are free; the workers, if there are any, keep one thread each:\n"
        f"    torch.set_num_threads({wanted})      # in the learner's process; or leave the call out\n"
        "and unset OMP_NUM_THREADS where it was set for the whole run. Measure both: for calls of about a\n"
        "millisecond, one thread is as fast or faster."
    )
