"""Relates the timings that a script printed to its layers and to each other.

A printed "conv1" is the layer of that name, and a line indented under "Critic 1 forward" is a part of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hotloop.phases import Phase
from hotloop.profiling.diagnosis.claims import bare_name, indices
from hotloop.profiling.diagnosis.evidence import duration, percent, size
from hotloop.profiling.diagnosis.time_slices import Loop, total_ns
from hotloop.profiling.trace.printed_timings import Claim, LayerWork

FILLERS = frozenset({"forward", "fwd", "pass", "layer", "time", "timing", "the"})
STATISTIC = re.compile(r"\b(mean|avg|average|median|min|max|std|p\d\d|per|each|last|best)\b", re.IGNORECASE)
"""Names of values that are printed under a total but are not parts of it."""
FEWEST_PRINTS = 3
MOSTLY = 0.3
"""Smallest share of the loop at which convolutions are mentioned."""


@dataclass(frozen=True, slots=True)
class Whole:
    """A printed time and what the script printed as its parts."""

    claim: Claim
    parts: tuple[Claim, ...]

    @property
    def parts_ns(self) -> float:
        """What the parts sum to at most."""
        return sum(part.mean_ns + part.rounding_ns for part in self.parts)


def layer_of(claim: Claim, layers: Iterable[LayerWork]) -> LayerWork | None:
    """Return the layer that a printed name means, None if it means none.

    If several have this name (an actor's and a critic's "conv1"), those in the module under which it is printed are
    preferred, and of these the one with the least arithmetic.
    """
    words = [word for word in re.split(r"[\s:/]+", claim.name.lower()) if word and word not in FILLERS]
    if not words or words[-1].isdigit():
        return None
    named = [each for each in layers if each.name and _means(words, each)]
    above = {word for name in claim.path[:-1] for word in re.findall(r"[a-z]{3,}", name.lower())} - FILLERS
    closer = [each for each in named if any(word in each.module.lower() for word in above)]
    return min(closer or named, key=lambda each: each.flops, default=None)


def _means(words: Sequence[str], layer: LayerWork) -> bool:
    name, whole = layer.name.lower(), f"{layer.module}.{layer.name}".lower()
    last = words[-1]
    fits = last in (name, name.rsplit(".", 1)[-1]) or ("." in last and whole.endswith(last))
    return fits and all(word.isdigit() or word in whole for word in words[:-1])


def printed(ns: float, claim: Claim) -> str:
    """Write a claim's median or mean, "under 5 µs" for "0.00 ms"."""
    return duration(ns) if ns else f"under {duration(claim.rounding_ns)}"


def wholes(claims: Sequence[Claim]) -> list[Whole]:
    """Return the printed times that have printed parts: indented under them, or next to a total."""
    by_path = {claim.path: claim for claim in claims}
    below: dict[tuple[str, ...], list[Claim]] = {}
    for claim in claims:
        below.setdefault(claim.path[:-1], []).append(claim)
    found = []
    for claim in claims:
        parts = below.get(claim.path) or [by_path[path] for path in claim.beside if path in by_path]
        if len(parts) > 1 and _often(claim) and all(_often(part) and _is_part(part, claim) for part in parts):
            found.append(Whole(claim, tuple(parts)))
    return found


def _often(claim: Claim) -> bool:
    """Return whether a time was printed repeatedly and is not the time since the start."""
    return claim.count >= FEWEST_PRINTS and not claim.rising


def _is_part(part: Claim, whole: Claim) -> bool:
    # Milliseconds under seconds are what one call takes, under a loop of many.
    return STATISTIC.search(part.name) is None and (whole.unit != "s" or part.unit == "s")


def printed_in(loop: Loop, claims: Sequence[Claim]) -> frozenset[int]:
    """Return the time of the functions that print the timings; all of the loop if none of them was seen."""
    places = {(_base(claim.file), claim.function) for claim in claims}
    atoms = loop.where(lambda atom: any((_base(each.file), bare_name(each)) in places for each in atom.stack))
    return indices(atoms or loop.atoms)


def _base(file: str) -> str:
    return file.replace("\\", "/").rsplit("/", 1)[-1]


@dataclass(frozen=True, slots=True)
class Convolutions:
    """What the convolutions of a loop take, forward and backward."""

    ns: float
    flops: float
    """All that were counted."""


def convolutions(loop: Loop) -> Convolutions | None:
    """Return what convolutions take on this processor; None if there are none, or a GPU may do them.

    The time of a network's call is divided among its layers in proportion to their FLOPs. So is the time of backward.
    """
    amounts: dict[str, list[int]] = {}
    for layer in loop.trace.claimed.layers:
        row = amounts.setdefault(layer.span, [0, 0])
        row[0] += layer.flops
        row[1] += layer.flops if layer.convolution else 0
    calls_ns = calls_flops = flops = backward_ns = 0.0
    for node in (node for thread in loop.trace.main.threads for node in thread.nodes if node.kind == "span"):
        if node.phase is Phase.BACKWARD:
            backward_ns += node.total_ns
        elif node.name in amounts and amounts[node.name][0] and node.counts.get("flops"):
            share = amounts[node.name][1] / amounts[node.name][0]
            calls_ns += share * node.total_ns
            calls_flops += share * node.counts["flops"]
            flops += node.counts["flops"]
    if loop.machine.gpu or not calls_flops:
        return None
    share = calls_flops / flops
    return Convolutions(calls_ns + share * backward_ns, share * loop.counts.get("flops", 0))


def convolution_evidence(loop: Loop) -> list[str]:
    """Compare convolutions with sampling, if convolutions take a large part of the time and more than sampling."""
    found = convolutions(loop)
    sampling_ns = total_ns(loop.within(Phase.SAMPLE))
    if found is None or found.ns < max(MOSTLY * loop.wall_ns, sampling_ns):
        return []
    return [
        f"convolutions: {size(found.flops / max(loop.updates, 1), 'FLOP')} an update, "
        f"{percent(found.ns / loop.wall_ns)} of the time, forward and backward; sampling is "
        f"{percent(sampling_ns / loop.wall_ns)}: on this CPU the convolutions "
        + ("dominate" if found.ns > loop.wall_ns / 2 else "are the larger part")
    ]
