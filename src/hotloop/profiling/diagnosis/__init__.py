"""From a recorded run to its bottlenecks: pure functions, one rule per file.

`explain` runs every rule on the main thread's time, counts no time for two causes, and ranks findings by the
throughput that a fix is expected to gain. A clean loop gets no findings.
"""

from __future__ import annotations

from hotloop.profiling.diagnosis.finding import Finding
from hotloop.profiling.diagnosis.pricing import settle
from hotloop.profiling.diagnosis.rules import find_causes
from hotloop.profiling.diagnosis.time_slices import study
from hotloop.profiling.trace.model import Trace

__all__ = ["Finding", "explain"]


def explain(trace: Trace, top: int | None = None) -> list[Finding]:
    """Return what makes a run slow, best fix first, at most `top` findings. The run may be in progress."""
    loop = study(trace)
    if loop.wall_ns <= 0:
        return []
    findings = settle(loop, find_causes(loop))
    return findings if top is None else findings[:top]
