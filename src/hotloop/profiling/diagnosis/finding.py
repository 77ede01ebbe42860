"""What explain says: a cause as a rule sees it, and a finding as a user reads it.

A rule names the moments that a cause takes and what would remain of them; a finding is that cause priced in
whole-run throughput by Amdahl's law, after no moment is counted for two causes.
"""

from __future__ import annotations

from dataclasses import dataclass

from hotloop.escaping import printable, printable_lines
from hotloop.phases import Phase


@dataclass(frozen=True, slots=True)
class Finding:
    """One bottleneck: what, where, how much, why, and what to change."""

    rule: str
    title: str
    phase: Phase
    span: str
    file: str
    """The user's file to blame, "" if no line of theirs was seen."""
    line: int
    share: float
    """Share of the main thread's wall time that the cause takes, 0..1."""
    gain: float
    """Factor of whole-run throughput expected from the fix: 1.18 is 18 % more."""
    gain_low: float
    gain_high: float
    """The two bounds hold 90 %."""
    score: float
    """Ranking key: log(gain)."""
    evidence: tuple[str, ...]
    advice: str

    def __str__(self) -> str:
        """What, where, how much, and what to do: as a user reads it."""
        place = printable(f"{self.file}:{self.line}" if self.file else self.span)
        gain = f", expect {self.gain:.2f}× ({self.gain_low:.2f} to {self.gain_high:.2f})" if self.gain > 1 else ""
        told = "".join(f"\n  - {printable(each)}" for each in self.evidence)
        advice = printable_lines(self.advice).replace("\n", "\n  ")
        return f"{printable(self.title)}\n  {place}{gain}{told}\n  {advice}"


@dataclass(frozen=True, slots=True)
class Residual:
    """What is left of the claimed time after the fix, as a fraction: expected, and between which bounds."""

    mid: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Cause:
    """What a rule found: the atoms of time that the cause takes, and what a fix leaves of them."""

    rule: str
    title: str
    atoms: frozenset[int]
    """Indices into `Loop.atoms`."""
    residual: Residual
    evidence: tuple[str, ...]
    advice: str
    general: bool = False
    """Whether it gives way where a more specific rule explains the same time."""
    informs: bool = False
    """Whether it is told although nothing is gained by it: it says that a measurement is wrong."""
    blame: tuple[str, int] | None = None
    """File and line, where it is not simply the hottest own line of the atoms."""
    span: str = ""
    """Name of the span, where it is not simply the one with most of the time."""
    sweeps: int = 0
    """How often it moves more memory than the caches hold, so that what runs next has to fetch its own again."""


def amdahl(share: float, residual: float) -> float:
    """Return the factor of throughput gained when `residual` of a cause taking `share` of the time is left.

    gain = 1 / (1 - share * (1 - residual))
    """
    left = 1.0 - share * (1.0 - residual)
    # A fix never frees all of the time: a gain beyond 1000 says no more than "all of it".
    return 1.0 / max(left, 1e-3)


def clamped(mid: float, low: float, high: float) -> Residual:
    """Make a residual whose three numbers lie in 0..1 and in order."""
    mid = min(max(mid, 0.0), 1.0)
    return Residual(mid, min(max(low, 0.0), mid), max(min(high, 1.0), mid))
