"""From a cause to a finding: predicts the gain of its fix, with an interval.

The predicted gain is Amdahl's law on the claimed share, plus the time that the rest loses because the cause empties the
caches. Its 90 % interval combines the errors of the stack samples (binomial per node, because a node's self time is
exact), of the residual and of the cold caches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hotloop.phases import Phase
from hotloop.profiling.diagnosis.claims import indices, most_time
from hotloop.profiling.diagnosis.evidence import hot_lines, percent
from hotloop.profiling.diagnosis.finding import Cause, Finding, amdahl
from hotloop.profiling.diagnosis.time_slices import Atom, Loop

Z90 = 1.645
"""Standard normal quantile: 90 % lie within this many standard errors."""
LESS, MORE = 0.85, 1.4
"""A profile of the slow version does not show how a fix affects the rest of the loop (caches, allocator, page faults).
In the zoo, measured gains were between these powers of the gain from the claimed time alone."""
COLD_NS, COLD_OF_SWEEP, COLD_OF_REST = 300_000, 0.3, 0.3
"""Extra time after a sweep through memory, at most these fractions of the sweep and of the rest. Measured by
`bench/cold_caches.py` on an agent that is not in the zoo."""
LEAST_SWEEP_NS = 50_000
"""A shorter sweep moves at most a megabyte and leaves the caches intact."""
LEAST_COLD = 0.01
UNSURE = 0.5
"""How the bound of a hotspot ranks beside the expected gain of a known fix: hardly any work costs nothing once it is
better done."""


def price(loop: Loop, cause: Cause, atoms: Sequence[Atom]) -> Finding:
    """Predict the gain of one cause from the atoms that are left to it."""
    share = loop.share(atoms)
    residual = cause.residual
    cold = cold_share(loop, cause, share)
    saved = 0.0 if cause.informs else share * (1.0 - residual.mid) + cold
    sampling = Z90 * share_error(loop, atoms) * (1.0 - residual.mid)
    low = max(saved - math.hypot(sampling, share * (residual.high - residual.mid), cold), 0.0)
    high = min(saved + math.hypot(sampling, share * (residual.mid - residual.low), cold), 1.0)
    if cause.informs:
        low = high = 0.0
    gain = amdahl(saved, 0.0)
    lines = hot_lines(atoms)
    file, line = cause.blame or ((lines[0].file, lines[0].line) if lines else ("", 0))
    seen = sum(atom.n for atom in atoms)
    sampled = f"{percent(share)} of the loop's time ({seen} stack samples)"
    bound = amdahl(min(share + Z90 * share_error(loop, atoms), 1.0), 0.0)
    emptied = f"it empties the caches: some {percent(cold)} more, in what runs after it" if cold >= LEAST_COLD else ""
    return Finding(
        rule=cause.rule,
        title=cause.title,
        phase=most_time((Phase.OWN if atom.node.kind == "gap" else atom.node.phase, atom.ns) for atom in atoms)
        or Phase.OTHER,
        span=cause.span or most_time((span_name(loop, atom), atom.ns) for atom in atoms) or "",
        file=file,
        line=line,
        share=share,
        gain=bound if cause.is_hotspot else gain,
        gain_low=1.0 if cause.is_hotspot else amdahl(low, 0.0) ** LESS,
        gain_high=bound if cause.is_hotspot else amdahl(high, 0.0) ** MORE,
        score=UNSURE * math.log(amdahl(share, 0.0)) if cause.is_hotspot else math.log(gain),
        evidence=tuple(filter(None, (sampled, *cause.evidence, emptied))),
        advice=cause.advice,
        kind="hotspot" if cause.is_hotspot else "cause",
    )


def cold_share(loop: Loop, cause: Cause, share: float) -> float:
    """Return the share of wall time that the rest of the loop takes longer because a cause empties the caches.

    cold = min(sweeps * COLD_NS / wall, COLD_OF_SWEEP * share, COLD_OF_REST * (1 - share))
    """
    if share * loop.wall_ns < cause.sweeps * LEAST_SWEEP_NS:
        return 0.0
    return min(cause.sweeps * COLD_NS / loop.wall_ns, COLD_OF_SWEEP * share, COLD_OF_REST * (1.0 - share))


def share_error(loop: Loop, atoms: Sequence[Atom]) -> float:
    """Return the standard error of the atoms' share of wall time.

    A node's self time is measured; only which part of it the stacks show is a binomial estimate. So the
    variance is the sum over nodes of (self / wall)² p (1 - p) / n, and nothing for a node claimed whole.
    """
    claimed = indices(atoms)
    samples: dict[int, int] = {}
    inside: dict[int, float] = {}
    for atom in loop.atoms:
        samples[atom.node.id] = samples.get(atom.node.id, 0) + atom.n
        if atom.index in claimed:
            inside[atom.node.id] = inside.get(atom.node.id, 0.0) + atom.ns
    variance = 0.0
    for node_id, ns in inside.items():
        node = loop.thread.by_id[node_id]
        p = min(ns / node.self_ns, 1.0) if node.self_ns else 0.0
        variance += (node.self_ns / loop.wall_ns) ** 2 * p * (1.0 - p) / max(samples[node_id], 1)
    return math.sqrt(variance)


def span_name(loop: Loop, atom: Atom) -> str:
    """Return the name of the span around an atom; of the gap itself where there is none."""
    for node in loop.lineage(atom.node):
        if node.kind == "span":
            return node.name
    return atom.node.name
