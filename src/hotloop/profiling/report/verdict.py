"""The verdict: how fast the loop is, what limits it, and the best next change, in one sentence each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hotloop import numbers
from hotloop.profiling.report.layout import place
from hotloop.profiling.trace.hot_lines import HotLine
from hotloop.profiling.trace.summary import Counts, Rate
from hotloop.profiling.trace.time_kinds import KIND_NAMES

if TYPE_CHECKING:
    from hotloop.profiling.diagnosis.finding import Finding

LEAST_GAIN = 1.005
"""Findings below this gain say that a measurement is wrong, not what limits the loop."""
LEAST_SHARE = 0.05
"""A line with less of the time than this does not limit anything."""
MOST_SOURCE = 60


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a user needs first."""

    text: str
    """All sentences."""
    throughput: str
    limit: str
    """What limits the throughput."""
    file: str | None
    line: int | None
    next_change: str | None
    """None if no cause is known."""
    gain: float | None
    """Expected factor of throughput from the next change; None if only an upper bound is known."""


def make_verdict(
    wall_s: float, counts: Counts, rates: Mapping[str, Rate], findings: Sequence[Finding], lines: Sequence[HotLine]
) -> Verdict:
    """Return the verdict on a loop."""
    throughput = _throughput(wall_s, counts, rates)
    best = next((each for each in findings if each.gain >= LEAST_GAIN), None)
    if best is not None:
        where = f" ({place(best.file, best.line)})" if best.file else ""
        share = "" if best.kind == "hotspot" else f"{numbers.percent(best.share)} of the time: "
        limit = f"{share}{best.title.rstrip('.')}{where}."
        change = f"{_first_sentence(best.advice)} {best.expectation[0].upper()}{best.expectation[1:]}."
        text = f"{throughput} {limit} {change}"
        gain = None if best.kind == "hotspot" else best.gain
        return Verdict(text, throughput, limit, best.file or None, best.line or None, change, gain)
    if not lines or lines[0].share < LEAST_SHARE:
        limit = "No single line takes much of the time." if lines else "No line was sampled."
        return Verdict(f"{throughput} {limit}", throughput, limit, None, None, None, None)
    line = lines[0]
    where = f"{place(line.file, line.line)} in {line.function}, {KIND_NAMES[line.kind]}"
    limit = f"{numbers.percent(line.share)} of the time is one line: {_shortened(line.source)} ({where})."
    bound = f"No known cause. Without this line the loop would be at most {1 / max(1 - line.share, 1e-3):.1f}× as fast."
    return Verdict(f"{throughput} {limit} {bound}", throughput, limit, line.file, line.line, None, None)


def _throughput(wall_s: float, counts: Counts, rates: Mapping[str, Rate]) -> str:
    parts = [
        f"{numbers.rate(rates[f'{name}_per_s'].median)} {label}/s"
        for name, label in (("env_steps", "env steps"), ("updates", "updates"))
        if getattr(counts, name)
    ]
    if not parts:
        return f"No environment steps or updates were counted in {numbers.seconds(wall_s)}."
    return f"{' and '.join(parts)}, over {numbers.seconds(wall_s)}."


def _first_sentence(advice: str) -> str:
    """Return the first sentence of a finding's advice, without the code that follows it."""
    prose = " ".join(line for line in advice.split("\n    ")[0].split("\n") if line and not line.startswith("```"))
    sentence = prose.split(". ")[0].rstrip(".: ")
    return f"{sentence}."


def _shortened(source: str) -> str:
    return source if len(source) <= MOST_SOURCE else f"{source[:MOST_SOURCE]}…"
