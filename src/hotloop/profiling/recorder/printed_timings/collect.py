"""What a script says of its own speed: the timings it prints, and the arithmetic of its layers to hold them against.

A printed text is only put aside by the thread that prints. The recorder's thread reads it later, and keeps for each
name the last values, what it was printed under, and where. Lines indented under another are its parts.
"""

from __future__ import annotations

import statistics
import weakref
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar

from hotloop.profiling.recorder.printed_timings.parse import HINT, Line, Timing, read_line
from hotloop.profiling.recorder.privacy.redact import redacted_text

MOST_NAMES = 256
MOST_TEXTS = 300
"""Texts between two readings: of a script that prints more, the last."""
MOST_LAYERS = 1_000
LONGEST_TEXT = 4_000
VALUES = 15
"""Values of a name from which mean and median are taken."""
DEEPEST = 4
TOTAL_WORDS = frozenset({"total", "whole", "overall", "altogether"})

Path = tuple[str, ...]
Place = tuple[str, int, str]
"""File, line and function."""
Heard = tuple[int, str, Place]


@dataclass(slots=True)
class Claimed:
    """One name, and what was printed beside it."""

    unit: str
    place: Place
    count: int = 0
    rounding_ns: float = 0.0
    values: deque[float] = field(default_factory=lambda: deque(maxlen=VALUES))
    beside: tuple[Path, ...] = ()
    """Of a total: what was printed before it at the same depth."""

    def row(self, path: Path) -> dict[str, Any]:
        """Return what is written of it."""
        values = list(self.values)
        return {
            "path": path, "unit": self.unit, "count": self.count, "last_ns": values[-1],
            "mean_ns": statistics.fmean(values), "median_ns": statistics.median(values),
            "rounding_ns": self.rounding_ns, "rising": _is_since_start(values), "beside": self.beside,
            "file": self.place[0], "line": self.place[1], "function": self.place[2],
        }  # fmt: skip


def _is_since_start(values: list[float]) -> bool:
    """Say whether times grow as those since a start do: by even steps, or to a multiple. A few may rise by chance."""
    steps = [b - a for a, b in pairwise(values)]
    return len(steps) > 1 and min(steps) > 0 and (max(steps) <= 2 * min(steps) or values[-1] >= 2 * values[0])


@dataclass(slots=True)
class _Reading:
    """Where the reading of one thread's lines is."""

    above: list[tuple[int, Path]] = field(default_factory=list)
    """Lines under which the next may be, with their depths."""
    level: dict[Path, list[Path]] = field(default_factory=dict)
    """By what they are under: names that a total may be the total of."""


class Book:
    """All timings that one process printed while it was recorded."""

    def __init__(self) -> None:
        self.claims: dict[Path, Claimed] = {}
        self.failed = ""
        self._heard: deque[Heard] = deque(maxlen=MOST_TEXTS)
        self._follows = False
        self._readings: dict[int, _Reading] = {}
        self._layers_written = 0

    def wants(self, text: str) -> bool:
        """Say whether a text is to be put aside: it has a timing, or is the first after one and may be a heading."""
        if self.failed or len(text) > LONGEST_TEXT:
            return False
        timed = HINT.search(text) is not None
        wanted = timed or self._follows
        self._follows = timed
        return wanted

    def hear(self, thread: int, text: str, place: Place) -> None:
        """Put a text aside."""
        self._heard.append((thread, text, place))

    def content(self) -> dict[str, Any] | None:
        """Read what was put aside; return all that is known if something of it is new."""
        heard, known = [], _Layers.version
        while self._heard:
            heard.append(self._heard.popleft())
        if not heard and known == self._layers_written:
            return None
        try:
            self._read(heard)
            rows = [claimed.row(path) for path, claimed in self.claims.items()]
        except Exception as error:
            # Text can be anything. A reader that fails on it must not stop the recording.
            self.failed, rows = f"{type(error).__name__}: {error}", []
        self._layers_written = known
        return {"claims": rows, "layers": layer_rows(), "failed": self.failed}

    def _read(self, heard: Iterable[Heard]) -> None:
        for thread, text, place in heard:
            reading = self._readings.setdefault(thread, _Reading())
            # Cleared as it was printed: in a name that is cut out of a line nobody would see that it is a password.
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


@dataclass(slots=True)
class Layer:
    """A Linear or convolution layer, as far as its arithmetic goes."""

    span: str
    """Class of the module that was called: the span's name."""
    module: str
    """Class of the module that the layer belongs to."""
    name: str
    """Where it is in there: "conv1", "body.0"."""
    convolution: bool
    flops: int
    """Of a call: the smallest seen, for a printed time does not tell which call it is of."""


class _Layers:
    """All layers of the process: they are looked at once, whatever is recorded later."""

    known: ClassVar[dict[tuple[str, str, str], Layer]] = {}
    owners: ClassVar[dict[int, tuple[Any, str, str]]] = {}
    """Id of a layer to a weak reference to it, its owner's class, and its name in there."""
    version = 0


def name_layers(module: Any) -> None:
    """Remember which layers a module has and what it calls them; some may run on their own later, in another thread."""
    owners = _Layers.owners
    for name, layer in module.named_modules():
        known = owners.get(id(layer))
        if name and (known is None or known[0]() is not layer) and len(owners) < MOST_LAYERS:
            owners[id(layer)] = (weakref.ref(layer), type(module).__name__, name)


def note_layers(module: Any, pairs: Iterable[tuple[Any, int]]) -> None:
    """Keep the arithmetic of the layers that a call of a module went through.

    Args:
        module: The module that was called.
        pairs: Each layer and its FLOPs, 0 for what is no layer.
    """
    span = type(module).__name__
    for layer, flops in pairs:
        ref, owner, name = _Layers.owners.get(id(layer), (None, span, ""))
        if ref is None or ref() is not layer:
            owner, name = span, ""
        key = (span, owner, name)
        known = _Layers.known.get(key)
        if not flops or (known is None and len(_Layers.known) >= MOST_LAYERS):
            continue
        if known is None or flops < known.flops:
            _Layers.known[key] = Layer(span, owner, name, hasattr(layer, "kernel_size"), flops)
            _Layers.version += 1


def layer_rows() -> list[dict[str, Any]]:
    """Return all layers, in rows that JSON takes."""
    names = Layer.__dataclass_fields__
    return [{name: getattr(layer, name) for name in names} for layer in list(_Layers.known.values())]


class Current:
    """The book that is written into now."""

    book = Book()


def new_book() -> Book:
    """Begin a recording's book."""
    Current.book = Book()
    return Current.book
