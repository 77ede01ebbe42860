"""From a recorded run to its bottlenecks: pure functions, one rule per file.

`explain` runs every rule on the main thread's time, counts no time for two causes, and ranks findings by the
throughput that a fix is expected to gain. A clean loop gets no findings.
"""

from __future__ import annotations

from dataclasses import replace

from hotloop.profiling.diagnosis.finding import Finding
from hotloop.profiling.diagnosis.hotspots import find_hotspots
from hotloop.profiling.diagnosis.ranking import ranked, settle
from hotloop.profiling.diagnosis.rules import find_causes
from hotloop.profiling.diagnosis.time_slices import study
from hotloop.profiling.trace.hot_lines import hot_lines
from hotloop.profiling.trace.model import Trace

__all__ = ["Finding", "explain"]


def explain(trace: Trace, top: int | None = None) -> list[Finding]:
    """Return what makes a run slow, best fix first, at most `top` findings. The run may be in progress."""
    loop = study(trace)
    if loop.wall_ns <= 0:
        return []
    findings, taken = settle(loop, find_causes(loop))
    findings = _located(ranked([*findings, *find_hotspots(loop, taken)]), trace)
    return findings if top is None else findings[:top]


def _located(findings: list[Finding], trace: Trace) -> list[Finding]:
    """Add what is known of the lines that the findings blame."""
    lines = {(line.file, line.line): line for line in hot_lines(trace)}
    found = []
    for finding in findings:
        line = lines.get((finding.file, finding.line))
        if line is not None:
            what = line.expression or None
            finding = replace(finding, function=line.function, expression=what, callee=line.callee, time_kind=line.kind)
        found.append(finding)
    return found
