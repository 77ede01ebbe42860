"""Which causes become findings, and in what order: no time counts for two causes, and the best fix comes first."""

from __future__ import annotations

from collections.abc import Iterable

from hotloop.profiling.diagnosis.finding import Cause, Finding, amdahl
from hotloop.profiling.diagnosis.pricing import LESS, price
from hotloop.profiling.diagnosis.time_slices import Loop

LEAST_GAIN = 1.08
"""Two recordings of one script differ by a few per cent: smaller gains would come and go."""
LEAST_LOW = 1.01


def settle(loop: Loop, causes: Iterable[Cause]) -> tuple[list[Finding], set[int]]:
    """Turn causes into findings, and return the atoms that they claim. No time is counted for two of them.

    Specific causes come before general ones, then larger gains before smaller. The gain of a cause is computed from the
    time it has left, and the cause is dropped if the gain is too small.
    """
    taken: set[int] = set()
    findings: list[Finding] = []
    for cause in sorted(causes, key=lambda each: (each.general, -_gain(loop, each), each.rule)):
        free = cause.atoms - taken or (cause.atoms if cause.informs else frozenset())
        atoms = [loop.atoms[i] for i in sorted(free)]
        if not atoms:
            continue
        finding = price(loop, cause, atoms)
        if cause.informs:
            findings.append(finding)
        elif finding.gain >= LEAST_GAIN and (cause.is_hotspot or finding.gain_low >= LEAST_LOW**LESS):
            findings.append(finding)
            taken |= cause.atoms
    return findings, taken


def ranked(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings, best first."""
    return sorted(findings, key=lambda each: (-each.score, each.rule, each.file, each.line))


def _gain(loop: Loop, cause: Cause) -> float:
    return amdahl(loop.share(loop.atoms[i] for i in cause.atoms), cause.residual.mid)
