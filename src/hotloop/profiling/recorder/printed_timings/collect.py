"""What a script reports about its own speed: the timings it prints, and its layers' arithmetic to check them against.

The process that prints sends the text as it is (`listen`). Here it is parsed, and for each name the last values are
kept, what it was printed under, and where. Lines indented under another are its parts.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from hotloop.json_types import Json
from hotloop.profiling.recorder.messages import Message
from hotloop.profiling.recorder.printed_timings.parse import Line, Timing, read_line
from hotloop.profiling.recorder.privacy.redact_text import redacted_text

MOST_NAMES = 256
MOST_TEXTS = 300
"""Texts kept between two readings: if a script prints more, the last ones."""
VALUES = 15
"""Values of a name that are kept for its mean and median."""
DEEPEST = 4
TOTAL_WORDS = frozenset({"total", "whole", "overall", "altogether"})

Path = tuple[str, ...]
Place = tuple[str, int, str]
"""File, line and function."""
Heard = tuple[int, str, Place]


@dataclass(slots=True)
class Claimed:
    """The timings printed under one name."""

    unit: str
    place: Place
    count: int = 0
    rounding_ns: float = 0.0
    values: deque[float] = field(default_factory=lambda: deque(maxlen=VALUES))
    beside: tuple[Path, ...] = ()
    """For a total: the names printed before it at the same depth."""

    def row(self, path: Path) -> dict[str, Json]:
        """Return it as a row of JSON."""
        values = list(self.values)
        file, line, function = self.place
        return {
            "path": path,
            "unit": self.unit,
            "count": self.count,
            "last_ns": values[-1],
            "mean_ns": statistics.fmean(values),
            "median_ns": statistics.median(values),
            "rounding_ns": self.rounding_ns,
            "rising": _is_since_start(values),
            "beside": self.beside,
            "file": file,
            "line": line,
            "function": function,
        }


def _is_since_start(values: list[float]) -> bool:
    """Check whether times grow like time since a start: by even steps, or to a multiple. A few may rise by chance."""
    steps = [b - a for a, b in pairwise(values)]
    return len(steps) > 1 and min(steps) > 0 and (max(steps) <= 2 * min(steps) or values[-1] >= 2 * values[0])


@dataclass(slots=True)
class _Reading:
    """The state of parsing one thread's lines."""

    above: list[tuple[int, Path]] = field(default_factory=list)
    """Lines that the next line may be indented under, with their depths."""
    level: dict[Path, list[Path]] = field(default_factory=dict)
    """By the path above them: names that a total may be the sum of."""


class Book:
    """All timings that one process printed while it was recorded."""

    def __init__(self) -> None:
        self.claims: dict[Path, Claimed] = {}
        self.failed = ""
        self._heard: deque[Heard] = deque(maxlen=MOST_TEXTS)
        self._readings: dict[int, _Reading] = {}
        self._layers: dict[tuple[str, str, str], Message] = {}
        self._layers_changed = False

    def receive(self, message: Message) -> None:
        """Keep a printed text or the arithmetic of a layer, as `listen` sends them."""
        match message:
            case {"is": "printed", "thread": thread, "text": text, "place": place}:
                self._heard.append((thread, text, tuple(place)))
            case {"is": "layer", "work": work}:
                key = work["span"], work["module"], work["name"]
                self._layers[key] = work
                self._layers_changed = True

    def content(self) -> dict[str, Json] | None:
        """Parse the texts that were kept; return everything known if something is new."""
        heard = list(self._heard)
        self._heard.clear()
        if not heard and not self._layers_changed:
            return None
        try:
            self._read(heard)
            rows = [claimed.row(path) for path, claimed in self.claims.items()]
        except Exception as error:
            # Text can be anything. A failure to parse it must not stop the recording.
            self.failed, rows = f"{type(error).__name__}: {error}", []
        self._layers_changed = False
        return {"claims": rows, "layers": list(self._layers.values()), "failed": self.failed}

    def _read(self, heard: Iterable[Heard]) -> None:
        for thread, text, place in heard:
            reading = self._readings.setdefault(thread, _Reading())
            # Redacted as it was printed: a password that is cut out of its line could not be recognised.
            for line in redacted_text(text).splitlines() or [""]:
                self._read_line(reading, read_line(line), place)

    def _read_line(self, reading: _Reading, line: Line, place: Place) -> None:
        above = reading.above
        while above and above[-1][0] >= line.depth:
            above.pop()
        if not line.timings and not line.text:
            above.clear()
            return
        under = above[-1][1] if above else ()
        for timing in line.timings:
            self._note(reading, under, timing, place)
        name = line.timings[0].name if line.timings else line.text
        if len(line.timings) < 2 and len(under) < DEEPEST - 1:
            above.append((line.depth, (*under, name)))

    def _note(self, reading: _Reading, under: Path, timing: Timing, place: Place) -> None:
        path = (*under, timing.name)
        claimed = self.claims.get(path)
        if claimed is None:
            if len(self.claims) >= MOST_NAMES:
                return
            claimed = self.claims[path] = Claimed(timing.unit, place)
        claimed.count += 1
        claimed.values.append(timing.ns)
        claimed.rounding_ns = max(claimed.rounding_ns, timing.rounding_ns)
        level = reading.level.setdefault(under, [])
        if level and TOTAL_WORDS & set(timing.name.lower().split()):
            claimed.beside = tuple(each for each in level if each != path)
            level.clear()
        elif path not in level:
            level.append(path)
