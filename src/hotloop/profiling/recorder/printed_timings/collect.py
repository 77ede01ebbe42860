"""What a script reports about its own speed: the timings it prints, and its layers' arithmetic to check them against.

The thread that prints only keeps the text. The recorder's thread parses it later, and keeps for each name the last
values, what it was printed under, and where. Lines indented under another are its parts.
"""

from __future__ import annotations

import statistics
import weakref
from collections import deque
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from hotloop.json_types import Json
from hotloop.profiling.recorder.printed_timings.parse import HINT, Line, Timing, read_line
from hotloop.profiling.recorder.privacy.redact_text import redacted_text
from hotloop.profiling.trace.printed_timings import LayerWork

if TYPE_CHECKING:
    from torch import nn

MOST_NAMES = 256
MOST_TEXTS = 300
"""Texts kept between two readings: if a script prints more, the last ones."""
MOST_LAYERS = 1_000
LONGEST_TEXT = 4_000
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
        self._follows = False
        self._readings: dict[int, _Reading] = {}
        self.layers = LayerFlops()
        self._layers_written = 0

    def wants(self, text: str) -> bool:
        """Return whether to keep a text: it has a timing, or is the first after one and may be a heading."""
        if self.failed or len(text) > LONGEST_TEXT:
            return False
        timed = HINT.search(text) is not None
        wanted = timed or self._follows
        self._follows = timed
        return wanted

    def hear(self, thread: int, text: str, place: Place) -> None:
        """Keep a text to be parsed later."""
        self._heard.append((thread, text, place))

    def content(self) -> dict[str, Json] | None:
        """Parse the texts that were kept; return everything known if something is new."""
        heard, known = [], self.layers.version
        while self._heard:
            heard.append(self._heard.popleft())
        if not heard and known == self._layers_written:
            return None
        try:
            self._read(heard)
            rows = [claimed.row(path) for path, claimed in self.claims.items()]
        except Exception as error:
            # Text can be anything. A failure to parse it must not stop the recording.
            self.failed, rows = f"{type(error).__name__}: {error}", []
        self._layers_written = known
        return {"claims": rows, "layers": self.layers.rows(), "failed": self.failed}

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


class LayerFlops:
    """The arithmetic of the layers that were called, to check printed timings against."""

    def __init__(self) -> None:
        self.version = 0
        """Grows when something changes."""
        self._known: dict[tuple[str, str, str], LayerWork] = {}
        self._owners: dict[int, tuple[weakref.ref[nn.Module], str, str]] = {}
        """Id of a layer to the layer, its owner's class, and its name there."""

    def note(self, module: nn.Module, pairs: Iterable[tuple[nn.Module, int]]) -> None:
        """Keep the arithmetic of the layers that a call of a module went through.

        Args:
            module: The module that was called.
            pairs: Each module in it that was called and its FLOPs, 0 if it is not a layer.
        """
        span = type(module).__name__
        self._name_layers(module, span)
        for layer, flops in pairs:
            ref, owner, name = self._owners.get(id(layer), (None, span, ""))
            if ref is None or ref() is not layer:
                owner, name = span, ""
            key = (span, owner, name)
            known = self._known.get(key)
            if not flops or (known is None and len(self._known) >= MOST_LAYERS):
                continue
            # The smallest call counts, because a printed time does not say which call it belongs to.
            if known is None or flops < known.flops:
                self._known[key] = LayerWork(span, owner, name, hasattr(layer, "kernel_size"), flops)
                self.version += 1

    def _name_layers(self, module: nn.Module, owner: str) -> None:
        """Remember the names of a module's layers; some may be called on their own later, in another thread."""
        for name, layer in module.named_modules():
            known = self._owners.get(id(layer))
            if name and (known is None or known[0]() is not layer) and len(self._owners) < MOST_LAYERS:
                self._owners[id(layer)] = (weakref.ref(layer), owner, name)

    def rows(self) -> list[dict[str, Json]]:
        """Return all layers, as rows of JSON."""
        return [asdict(layer) for layer in list(self._known.values())]
