"""The results of explain: a cause as found by a rule, and a finding as shown to the user.

A cause has the time it takes and the part of it that would remain after a fix. A finding is a cause with its predicted
gain in throughput of the whole run, by Amdahl's law.
"""

from __future__ import annotations

from collections.abc import Iterable
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
    """The user's file; "" if none of its lines was sampled."""
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
    kind: str = "cause"
    """"cause": a known mechanism, with the gain that its fix is expected to bring. "hotspot": only where the time goes
    is known; the gain is its upper bound."""
    function: str | None = None
    """The function, expression and call at this place, and the kind of its time; None if the line was not sampled."""
    expression: str | None = None
    callee: str | None = None
    time_kind: str | None = None

    @property
    def expectation(self) -> str:
        """What a change is expected to bring, or what it can bring at most."""
        if self.kind == "hotspot":
            return f"at most {self.gain:.2f}×, if it cost nothing"
        return f"expect {self.gain:.2f}× ({self.gain_low:.2f} to {self.gain_high:.2f})"

    def __str__(self) -> str:
        """What, where, how much, and what to do: as a user reads it."""
        place = printable(f"{self.file}:{self.line}" if self.file else self.span)
        gain = f", {self.expectation}" if self.gain > 1 else ""
        evidence = "".join(f"\n  - {printable(each)}" for each in self.evidence)
        advice = printable_lines(self.advice).replace("\n", "\n  ")
        return f"{printable(self.title)}\n  {place}{gain}{evidence}\n  {advice}"


@dataclass(frozen=True, slots=True)
class Residual:
    """Fraction of the claimed time that is left after the fix: expected value and bounds."""

    mid: float
    low: float
    high: float


UNCHANGED = Residual(1.0, 1.0, 1.0)


@dataclass(frozen=True, slots=True)
class Cause:
    """Result of a rule: the atoms of time that the cause takes, and what a fix leaves of them."""

    title: str
    atoms: frozenset[int]
    """Indices into `Loop.atoms`."""
    evidence: tuple[str, ...]
    """Empty texts are left out."""
    advice: str = ""
    """By default the rule's `ADVICE`."""
    residual: Residual = UNCHANGED
    rule: str = ""
    """Name of the rule's module; `rules.find_causes` sets it."""
    general: bool = False
    """More specific rules that explain the same time take precedence."""
    informs: bool = False
    """Report it even without a gain: it says that a measurement is wrong."""
    blame: tuple[str, int] | None = None
    """File and line; by default the hottest own line of the atoms."""
    span: str = ""
    """Name of the span; by default the one with the most time."""
    is_hotspot: bool = False
    """Only where the time goes is known: the gain is an upper bound."""
    sweeps: int = 0
    """How often it moves more memory than the caches hold, so that the code after it starts with cold caches."""


Causes = Iterable[Cause]
"""Result of a rule."""


def amdahl(share: float, residual: float) -> float:
    """Return the factor of throughput gained when `residual` of a cause taking `share` of the time is left.

    gain = 1 / (1 - share * (1 - residual))
    """
    left = 1.0 - share * (1.0 - residual)
    # A fix never frees all of the time: a gain beyond 1000 says no more than "all of it".
    return 1.0 / max(left, 1e-3)


def clamped(mid: float, low: float | None = None, high: float | None = None) -> Residual:
    """Make a residual whose three numbers lie in 0..1 and in order. By default, bounds are half and twice `mid`."""
    low, high = mid / 2 if low is None else low, 2 * mid if high is None else high
    mid = min(max(mid, 0.0), 1.0)
    return Residual(mid, min(max(low, 0.0), mid), max(min(high, 1.0), mid))
