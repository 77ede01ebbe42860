"""What a script printed of its own speed, and the arithmetic of its layers, as a run's files have it.

Nothing of this is measured by the recorder: the rules hold it against what is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from hotloop.profiling.trace.reading.decode import Amount, Between, Count, Index


@dataclass(frozen=True, slots=True)
class Claim:
    """A timing that the script printed, as often as it did."""

    path: Annotated[tuple[str, ...], Between(1, 16)]
    """Its name, after the names of the lines that it was printed under."""
    unit: str
    count: Count
    last_ns: Amount
    mean_ns: Amount
    median_ns: Amount
    """Of the last values. Only means can be summed."""
    rounding_ns: Amount
    """By how much they may be more: they were printed with so many digits."""
    rising: bool
    """Whether each of them was larger than the one before: then it is time since the start."""
    beside: tuple[tuple[str, ...], ...]
    """Of a total: the paths of what was printed with it."""
    file: str
    line: Index
    function: str
    """Where it was first printed."""

    @property
    def most_ns(self) -> float:
        """The longest time that would have been printed like this."""
        return self.median_ns + self.rounding_ns

    @property
    def name(self) -> str:
        """What it is called in its own line."""
        return self.path[-1]


@dataclass(frozen=True, slots=True)
class LayerWork:
    """The arithmetic of a Linear or convolution layer."""

    span: str
    """Name of the span that its call is in: the class of the module that was called."""
    module: str
    """Class of the module it belongs to."""
    name: str
    convolution: bool
    flops: Count
    """Of its smallest call."""


@dataclass(frozen=True, slots=True)
class Claims:
    """All of a run's."""

    claims: tuple[Claim, ...] = ()
    layers: tuple[LayerWork, ...] = ()
    failed: str = ""
    """Why printed timings were not read."""


NOTHING = Claims()
