"""Time per phase, and rates since the last report. Each lap is also a span, so recordings have the same phases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import TracebackType

from hotloop.clock import now_ns
from hotloop.phases import Phase
from hotloop.spans import span
from hotloop.spans.registry import Span
from hotloop.training.run.counts import Counts


class Lap:
    """A phase of the training loop: a span that also adds up its time. It cannot be nested."""

    __slots__ = ("_end", "_since_ns", "_span", "_total_ns")

    def __init__(self, each: Span) -> None:
        self._span = each
        self._since_ns: int | None = None
        """When it was entered; None outside of it."""
        self._end: Callable[..., None] = each.__exit__
        self._total_ns = 0

    def __enter__(self) -> None:
        # Looked up together, as `with` does: a recorder may change the span's class in between.
        begin, self._end = self._span.__enter__, self._span.__exit__
        begin()
        self._since_ns = now_ns()

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._total_ns, self._since_ns = self.total_ns(now_ns()), None
        self._end(kind, error, trace)

    def total_ns(self, at_ns: int) -> int:
        """Return the time in this lap until `at_ns`, which may be inside it."""
        return self._total_ns + (0 if self._since_ns is None else at_ns - self._since_ns)


class Laps:
    """The laps of a loop by name: `with timed("env.step"):`."""

    def __init__(self) -> None:
        self._laps: dict[str, Lap] = {}

    def __call__(self, name: str, phase: Phase | None = None) -> Lap:
        """Return the lap of that name."""
        found = self._laps.get(name)
        if found is None:
            found = self._laps[name] = Lap(span(name, phase))
        return found

    def totals_ns(self, at_ns: int) -> dict[str, int]:
        """Return the time in each lap until `at_ns`, which is now."""
        return {name: lap.total_ns(at_ns) for name, lap in self._laps.items()}


class Interval:
    """The time from one report to the next, or until now."""

    def __init__(self, counts: Counts, timed: Laps) -> None:
        self._counts = counts
        self._timed = timed
        self.restart()

    def restart(self) -> None:
        """Begin a new interval. It uses the same clock reading as the laps, so shares never exceed 1."""
        self.began_ns = now_ns()
        self._counts_then, self._laps_then = replace(self._counts), self._timed.totals_ns(self.began_ns)

    @property
    def advanced(self) -> bool:
        """Whether a step or an update was made in it."""
        done = self._counts.since(self._counts_then)
        return bool(done.env_steps or done.updates)

    def numbers(self) -> dict[str, float | None]:
        """Return the rates of the interval so far, None if nothing was done, and the shares of the laps."""
        until_ns = now_ns()
        elapsed_ns = until_ns - self.began_ns
        done = self._counts.since(self._counts_then)
        measured = elapsed_ns and self.advanced
        rates = {
            f"{name}_per_s": getattr(done, name) * 1e9 / elapsed_ns if measured else None
            for name in ("env_steps", "updates")
        }
        laps = self._timed.totals_ns(until_ns)
        spent = {name: total - self._laps_then.get(name, 0) for name, total in laps.items()} if elapsed_ns else {}
        return rates | {f"share.{name}": ns / elapsed_ns for name, ns in spent.items()}
