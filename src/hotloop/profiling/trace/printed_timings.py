"""Timings that a script printed about itself, and the arithmetic of its layers, as read from a run's files.

The recorder did not measure these timings: rules compare them with its own measurements.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from hotloop.profiling.trace.reading.decode import Amount, Between, Count, Index


@dataclass(frozen=True, slots=True)
class Claim:
    """A timing that the script printed, once or repeatedly."""

    path: Annotated[tuple[str, ...], Between(1, 16)]
    """Names of the lines that it was printed under, then its own name."""
    unit: str
    count: Count
    last_ns: Amount
    mean_ns: Amount
    median_ns: Amount
    """Median of the last values. Unlike means, medians cannot be summed."""
    rounding_ns: Amount
    """Largest rounding error, from the number of printed digits."""
    rising: bool
    """Whether each value was larger than the one before, which means that it is time since the start."""
    beside: tuple[tuple[str, ...], ...]
    """For a total: the paths of the timings printed with it."""
    file: str
    line: Index
    function: str
    """Where it was first printed."""

    @property
    def most_ns(self) -> float:
        """The longest time that would be printed as this value."""
        return self.median_ns + self.rounding_ns

    @property
    def name(self) -> str:
        """Its name in its own line."""
        return self.path[-1]


@dataclass(frozen=True, slots=True)
class LayerWork:
    """The arithmetic of a Linear or convolution layer."""

    span: str
    """Name of the span around its call: the class of the module that was called."""
    module: str
    """Class of the module that contains it."""
    name: str
    """Its name there: "conv1", "body.0"."""
    convolution: bool
    flops: Count
    """FLOPs of its smallest call."""


@dataclass(frozen=True, slots=True)
class Claims:
    """`claims.json`: all printed timings and layers of a process, or of a run."""

    claims: tuple[Claim, ...] = ()
    layers: tuple[LayerWork, ...] = ()
    failed: str = ""
    """Why printed timings could not be read."""


NOTHING = Claims()
