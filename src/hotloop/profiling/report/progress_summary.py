"""A few lines about a run in progress. They are printed between the lines of the training itself: plain and short."""

from __future__ import annotations

from hotloop import numbers
from hotloop.escaping import printable
from hotloop.profiling.report import view
from hotloop.profiling.trace.model import Trace

PHASES_SHOWN = 5
BAR_WIDTH = 24


def periodic(trace: Trace, prefix: str = "hotloop") -> str:
    """Return five to eight lines: rates of the loop so far, phases, memory."""
    report = view.build(trace, ())
    lines = [f"{prefix}: profile of {printable(report.name)}, {numbers.seconds(report.wall_s)} of the loop recorded"]
    rates = []
    for name, label in (("env_steps", "env steps"), ("updates", "updates"), ("episodes", "episodes")):
        here, total = getattr(report.counts, name), getattr(report.counts_total, name)
        if here:
            rate = numbers.rate(report.rates[f"{name}_per_s"].median)
            rates.append(f"{rate} {label}/s ({numbers.with_total(here, total)})")
    lines.append("  " + (", ".join(rates) or "no environment step or update counted yet"))
    rows = report.phases
    for row, percent in list(zip(rows, numbers.percents([row.share for row in rows]), strict=True))[:PHASES_SHOWN]:
        if percent:
            bar = "█" * max(1, round(row.share * BAR_WIDTH))
            lines.append(f"  {row.phase:<13}{percent:>3} %  {bar}")
    if report.rss_bytes:
        growth = ("+" if report.rss_growth_bytes >= 0 else "") + numbers.size(report.rss_growth_bytes)
        lines.append(f"  memory {numbers.size(report.rss_bytes)} ({growth} since the start)")
    return "\n".join(lines)
