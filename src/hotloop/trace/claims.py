"""What a script printed of its own speed, and the arithmetic of its layers, as a run's files have it.

Nothing of this is measured by the recorder: the rules hold it against what is.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Claim:
    """A timing that the script printed, as often as it did."""

    path: tuple[str, ...]
    """Its name, after the names of the lines that it was printed under."""
    unit: str
    count: int
    last_ns: float
    mean_ns: float
    median_ns: float
    """Of the last values. Only means can be summed."""
    rounding_ns: float
    """By how much they may be more: they were printed with so many digits."""
    rising: bool
    """Whether each of them was larger than the one before: then it is time since the start."""
    beside: tuple[tuple[str, ...], ...]
    """Of a total: the paths of what was printed with it."""
    file: str
    line: int
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
    flops: int
    """Of its smallest call."""


@dataclass(frozen=True, slots=True)
class Claims:
    """All of a run's."""

    claims: tuple[Claim, ...] = ()
    layers: tuple[LayerWork, ...] = ()
    failed: str = ""
    """Why printed timings were not read."""


NOTHING = Claims()


def read_claims(folder: Path) -> Claims:
    """Read what all processes of a run printed; a run of an earlier version has nothing.

    Args:
        folder: The run directory.
    """
    claims: list[Claim] = []
    layers: list[LayerWork] = []
    failed = ""
    for path in sorted(folder.glob("*/claims.json")):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        claims += map(_claim, content["claims"])
        layers += [LayerWork(**row) for row in content["layers"]]
        failed = failed or content["failed"]
    return Claims(tuple(claims), tuple(layers), failed)


def _claim(row: dict[str, Any]) -> Claim:
    return Claim(**row | {"path": tuple(row["path"]), "beside": tuple(map(tuple, row["beside"]))})
