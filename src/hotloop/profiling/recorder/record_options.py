"""The options of a recording. They are checked when they are created."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hotloop.errors import HotloopError


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """What to record, and at what cost."""

    budget: float = 0.01
    """Share of the time that spans and sampling may take: frequent spans are thinned, counts stay exact."""
    hz: float = 100.0
    """Stack samples a second; 0 turns the sampler off."""
    after_steps: int = 0
    """Start after this many environment steps."""
    after_s: float = 0.0
    """Start after this many seconds."""
    for_s: float = 0.0
    """Stop recording after this many seconds; training continues. 0 for no limit."""
    raw_windows: int = 5
    """Number of windows at the start of the loop for which every single call is kept. A few later ones are, too."""
    raw_bytes: int = 12 << 20
    """Largest size of all single calls on disk."""
    window_s: float = 1.0
    """Length of a window at first. It doubles after 600 windows, so that recordings of long runs stay small."""
    functions: int = 0
    """Trace all function calls of this many iterations; 0 for none."""
    ops: int = 0
    """Trace torch's operators in this many iterations; 0 for none."""
    warmup: int | None = None
    """Iterations before `functions` and `ops` start. None: 100, and the first update."""
    modules_every: int = 0
    """Time layers, forward and backward, in one of this many updates; 0 for never. Needs hooks."""

    @property
    def looks_closer(self) -> bool:
        """Whether deep samples of functions, operators or layers are requested."""
        return bool(self.functions or self.ops or self.modules_every)

    @property
    def starts_late(self) -> bool:
        """Whether recording waits for a time or a number of steps."""
        return bool(self.after_s or self.after_steps)

    def limit_s(self, started: bool) -> float:
        """Return when recording ends after it has started, or the earliest time at which it starts; inf if never."""
        return (self.for_s if started else self.after_s) or math.inf

    def __post_init__(self) -> None:
        """Reject invalid options."""
        _require(0 < self.budget <= 1, f"budget {self.budget}", "a share of the time above 0, such as 0.01 or 1%")
        _require(0 <= self.hz <= 1000, f"hz {self.hz}", "0 to 1000 stack samples a second")
        for name in ("after_steps", "after_s", "for_s", "functions", "ops", "modules_every"):
            _require(getattr(self, name) >= 0, f"{name} {getattr(self, name)}", "0 or more")
        _require(self.warmup is None or self.warmup >= 0, f"warmup {self.warmup}", "0 or more iterations")
        _require(self.window_s > 0, f"window_s {self.window_s}", "more than 0 seconds")


def _require(holds: bool, seen: str, remedy: str) -> None:
    if not holds:
        raise HotloopError(f"cannot record with {seen}: give {remedy}")
