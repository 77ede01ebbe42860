"""How a run is recorded. Checked once, when it is made."""

from __future__ import annotations

from dataclasses import dataclass

from hotloop.errors import HotloopError


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """What to record, and at what cost."""

    budget: float = 0.01
    """Share of the time that recording may cost: finer spans are thinned, counts stay exact."""
    hz: float = 200.0
    """Stack samples a second; 0 turns the sampler off."""
    after_steps: int = 0
    """Begin after so many environment steps."""
    after_s: float = 0.0
    """Begin after so many seconds."""
    for_s: float = 0.0
    """Stop recording after so many seconds; training goes on. 0 for no limit."""
    raw_windows: int = 5
    """Windows of the loop whose single spans are kept, besides a sparse choice later on."""
    raw_bytes: int = 12 << 20
    """Most that single spans may take on disk."""
    window_s: float = 1.0
    """Length of a window at first. It doubles every 600 windows, so that long runs stay small."""
    functions: int = 0
    """Trace all function calls of so many iterations; 0 for none."""
    ops: int = 0
    """Trace torch's operators in so many iterations; 0 for none."""
    warmup: int | None = None
    """Iterations before these begin. None: 100, and the first update."""
    modules_every: int = 0
    """Time layers, forward and backward, in one update out of so many; 0 for none. Needs hooks."""

    @property
    def looks_closer(self) -> bool:
        """Whether functions, operators or layers are to be looked at."""
        return bool(self.functions or self.ops or self.modules_every)

    def __post_init__(self) -> None:
        """Refuse what cannot be recorded with."""
        _require(0 < self.budget <= 1, f"budget {self.budget}", "a share of the time above 0, such as 0.01 or 1%")
        _require(0 <= self.hz <= 1000, f"hz {self.hz}", "0 to 1000 stack samples a second")
        for name in ("after_steps", "after_s", "for_s", "functions", "ops", "modules_every"):
            _require(getattr(self, name) >= 0, f"{name} {getattr(self, name)}", "0 or more")
        _require(self.warmup is None or self.warmup >= 0, f"warmup {self.warmup}", "0 or more iterations")
        _require(self.window_s > 0, f"window_s {self.window_s}", "more than 0 seconds")


def _require(holds: bool, seen: str, remedy: str) -> None:
    if not holds:
        raise HotloopError(f"cannot record with {seen}: give {remedy}")
