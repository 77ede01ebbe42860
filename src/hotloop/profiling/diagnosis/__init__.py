"""From a recorded run to its bottlenecks: pure functions, one rule per file.

`explain` runs every rule on the main thread's time, gives no moment to two causes, and ranks what is left by
the throughput that a fix is expected to gain. A clean loop gets no findings.
"""

from __future__ import annotations

from hotloop.profiling.diagnosis.finding import Finding
from hotloop.profiling.diagnosis.pricing import settle
from hotloop.profiling.diagnosis.rules import RULES
from hotloop.profiling.diagnosis.time_slices import study
from hotloop.profiling.trace.model import Trace

__all__ = ["Finding", "explain"]


def explain(trace: Trace, top: int | None = None) -> list[Finding]:
    """Find what makes a run slow, best fix first.

    Args:
        trace: A recorded run, finished or still going.
        top: At most so many findings; all if not given.
    """
    loop = study(trace)
    if loop.wall_ns <= 0:
        return []
    findings = settle(loop, [cause for rule in RULES for cause in rule.find(loop)])
    return findings if top is None else findings[:top]
