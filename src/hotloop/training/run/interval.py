"""Rates and shares of the time since the last report."""

from __future__ import annotations

from dataclasses import replace

from hotloop.clock import now_ns
from hotloop.training.run.counts import Counts
from hotloop.training.run.phase_timer import Laps


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
