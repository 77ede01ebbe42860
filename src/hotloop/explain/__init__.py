"""EXPLAIN: from a recorded run to its bottlenecks. Pure functions, one rule a file.

`explain` runs every rule on the main thread's time, gives no moment to two causes, and ranks what is left by
the throughput that a fix is expected to gain. A clean loop gets no findings.
"""

from __future__ import annotations

import sys
import types
from typing import Any

from hotloop.explain.finding import Finding
from hotloop.explain.loop import study
from hotloop.explain.ranking import settle
from hotloop.explain.rules import RULES
from hotloop.trace.model import Trace

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
    findings = settle(loop, [cause for find in RULES for cause in find(loop)])
    return findings if top is None else findings[:top]


class _Callable(types.ModuleType):
    """`hotloop.explain` is this package and also the function: importing the package gives the name to it."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return explain(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
