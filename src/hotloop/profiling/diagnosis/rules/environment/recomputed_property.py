"""A property or a method without arguments computes the same value again at each access, many times per step.

**Seen by.** Functions of your own, outside of learning, called from a line with `.name` (a property, read from two or
more places) or `.name()` (three or more). A `cached_property` is not matched.

**Residual.** One computation per step for all reads. The number of reads is estimated from the time of each reading
line: an ordinary line reads once, a line in a loop more often.
"""

from __future__ import annotations

import itertools
import re
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field

from hotloop.profiling.diagnosis.claims import bare_name, function_of, indices, matching
from hotloop.profiling.diagnosis.evidence import duration, hottest, times
from hotloop.profiling.diagnosis.finding import Cause, Causes, clamped
from hotloop.profiling.diagnosis.time_slices import LEARNING, Atom, Function, Loop, total_ns
from hotloop.profiling.trace.model import Frame

FEWEST_READS = 2
FEWEST_CALLS = 3
"""A method is often called from two places, `reset` and `step`; a property is read in both or more."""
CONSTANT = re.compile(r"\b(torch|np|numpy)\.(isin|in1d)\(")
NOT_GETTERS = frozenset({"step", "reset", "render", "sample", "close", "forward"})
ADVICE = """\
Compute it once per state and keep it:
    @functools.cached_property            # was @property; the state does not change after it is made
    def full_location(self): ...
    self.is_loaded = bool(np.isin(tiles, WALKABLE).any())   # once, where the object is made
A class with __slots__ needs a field instead of cached_property."""


@dataclass(slots=True)
class Getter:
    """A function without arguments, the places it is read from, and the time inside it."""

    is_property: bool = False
    sites: dict[tuple[str, int], float] = field(default_factory=dict)
    """Time by the line that reads it."""

    @property
    def repeated(self) -> bool:
        """Whether it is read from enough places to be computed more than once a step."""
        return len(self.sites) >= (FEWEST_READS if self.is_property else FEWEST_CALLS)

    @property
    def ns(self) -> float:
        """Time of all reads."""
        return sum(self.sites.values())

    @property
    def reads(self) -> float:
        """About how often it is read a step: an ordinary line reads it once, a line in a loop more often."""
        ordinary_ns = statistics.median(self.sites.values())
        return max(self.ns / ordinary_ns if ordinary_ns else 0.0, float(len(self.sites)))


def find(loop: Loop) -> Causes:
    """Find time inside getters that are read from several places, outside of learning."""
    pool = loop.where(lambda atom: bool(atom.stack) and not (loop.phases(atom.node) & LEARNING))
    getters: dict[Function, Getter] = {}
    for atom in pool:
        for inner, caller, is_property in getter_calls(atom.stack):
            getter = getters.setdefault(function_of(inner), Getter(is_property))
            site = (caller.file, caller.line)
            getter.sites[site] = getter.sites.get(site, 0.0) + atom.ns
    repeated = {key: getter for key, getter in getters.items() if getter.repeated}
    claimed = [atom for atom in pool if any(function_of(inner) in repeated for inner, _, _ in getter_calls(atom.stack))]
    return [_cause(loop, claimed, repeated)] if total_ns(claimed) else []


def getter_calls(stack: tuple[Frame, ...]) -> Iterator[tuple[Frame, Frame, bool]]:
    """Yield each own function entered by `.name` or `.name()`, its caller, and whether it is a property."""
    for inner, caller in itertools.pairwise(stack):
        name = bare_name(inner)
        # Most lines do not contain the name, and a substring search is faster than compiling a pattern.
        if not inner.own or name in NOT_GETTERS or f".{name}" not in caller.text:
            continue
        found = re.search(rf"\.{re.escape(name)}\b\s*(\(\s*\))?(?!\s*[\(=](?!=))", caller.text)
        if found:
            yield inner, caller, found.group(1) is None


def _cause(loop: Loop, claimed: list[Atom], repeated: dict[Function, Getter]) -> Cause:
    steps = max(loop.env_steps, 1)
    left = sum(getter.ns / getter.reads for getter in repeated.values()) / sum(each.ns for each in repeated.values())
    largest = sorted(repeated.items(), key=lambda item: -item[1].ns)[:4]
    names = [function.rsplit(".", 1)[-1] for (_, function), _ in largest]
    places = (f"{name} from {len(getter.sites)} places" for name, (_, getter) in zip(names, largest, strict=True))
    constants_ns = total_ns(matching(claimed, CONSTANT))
    return Cause(
        title=f"{names[0]} and the like are computed again at every access.",
        atoms=indices(claimed),
        residual=clamped(left),
        evidence=(
            f"{duration(total_ns(claimed) / steps)} an environment step inside {times(len(repeated))} getters",
            f"read on sampled lines: {', '.join(places)}",
            f"{duration(constants_ns / steps)} of it tests membership in a constant (isin)" if constants_ns else "",
            hottest(loop, claimed),
        ),
    )
