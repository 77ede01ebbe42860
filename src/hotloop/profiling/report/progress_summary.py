"""A few lines about a run that is still going: printed in the training's own output, so plain and short."""

from __future__ import annotations

from hotloop import numbers
from hotloop.escaping import printable
from hotloop.profiling.trace import summary
from hotloop.profiling.trace.model import Trace

PHASES_SHOWN = 5
BAR_WIDTH = 24


def periodic(trace: Trace, prefix: str = "hotloop") -> str:
    """Return five to eight lines: rates of the loop so far, phases, memory.

    Args:
        trace: The run.
        prefix: Whose line it is, among others of the training's output.
    """
    rates = summary.rates(trace)
    counts, total = summary.counts(trace), summary.counts_total(trace)
    memory = trace.main.memory
    lines = [f"{prefix}: profile of {printable(trace.name)}, {numbers.seconds(trace.wall_s)} of the loop recorded"]
    doing = []
    for name, label in (("env_steps", "env steps"), ("updates", "updates"), ("episodes", "episodes")):
        here, in_all = getattr(counts, name), getattr(total, name)
        if here:
            doing.append(f"{numbers.rate(rates[f'{name}_per_s'].mean)} {label}/s ({numbers.in_all(here, in_all)})")
    lines.append("  " + (", ".join(doing) or "no environment step or update counted yet"))
    rows = summary.phases(trace)
    for row, percent in list(zip(rows, numbers.percents([row.share for row in rows]), strict=True))[:PHASES_SHOWN]:
        if percent:
            bar = "█" * max(1, round(row.share * BAR_WIDTH))
            lines.append(f"  {row.phase:<13}{percent:>3} %  {bar}")
    if len(memory.rss_bytes):
        grown = int(memory.rss_bytes[-1] - memory.rss_bytes[0])
        lines.append(f"  memory {numbers.size(int(memory.rss_bytes[-1]))} ({_signed(grown)} since the start)")
    return "\n".join(lines)


def _signed(value_bytes: int) -> str:
    return ("+" if value_bytes >= 0 else "") + numbers.size(value_bytes)
