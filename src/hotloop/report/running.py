"""A few lines about a run that is still going: printed in the training's own output, so plain and short."""

from __future__ import annotations

from hotloop.report import words
from hotloop.trace import summary
from hotloop.trace.model import Trace

PHASES_SHOWN = 6
BAR_WIDTH = 24


def periodic(trace: Trace) -> str:
    """Return five to eight lines: rates now, phases, memory."""
    rates = summary.rates(trace)
    counts = summary.counts(trace)
    memory = trace.main.memory
    lines = [f"hotloop: {trace.name}, {words.seconds(trace.wall_s)} of the loop recorded"]
    doing = [
        f"{words.rate(rates[f'{name}_per_s'].last)} {label}/s ({words.count(getattr(counts, name))})"
        for name, label in (("env_steps", "env steps"), ("updates", "updates"), ("episodes", "episodes"))
        if getattr(counts, name)
    ]
    lines.append("  " + (", ".join(doing) or "no environment step or update counted yet"))
    rows = summary.phases(trace)
    for row in rows[: PHASES_SHOWN - 1]:
        if row.share >= 0.005:
            bar = "█" * max(1, round(row.share * BAR_WIDTH))
            lines.append(f"  {row.phase:<13}{words.percent(row.share):>7}  {bar}")
    if len(memory.rss_bytes):
        grown = int(memory.rss_bytes[-1] - memory.rss_bytes[0])
        lines.append(f"  memory {words.size(int(memory.rss_bytes[-1]))} ({_signed(grown)} since the start)")
    return "\n".join(lines)


def _signed(value_bytes: int) -> str:
    return ("+" if value_bytes >= 0 else "") + words.size(value_bytes)
