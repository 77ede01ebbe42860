"""A thread's account: its call tree, and what was measured in each node, in the current window and in total.

Its size depends on the number of nodes, not on the number of calls: durations go into a histogram with eight
buckets per octave (percentiles are accurate to 5 %), and everything else is a sum.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from hotloop.profiling.recorder.call_tree.fold import Folded, Ints, fold
from hotloop.profiling.recorder.call_tree.tree import ROOT, Codes, OpenSpan, Tree, add_calls, begun
from hotloop.profiling.trace.build.histogram import BUCKETS, BUCKETS_PER_OCTAVE, FIRST_OCTAVE, bucket_of
from hotloop.spans.registry import COUNTER_BASE

T = TypeVar("T", bound=tuple[int, ...])

NOTHING = np.empty((0, 2), np.int64)
SUMS = ("calls", "total_ns", "self_ns")
SAMPLE_SUMS = ("n", "wall_ns", "cpu_ns", "gc_ns", "wait_ns", "io_ns", "starved_ns")
"""What is summed up over the samples of a stack in a node."""


class Account:
    """The call tree and measurements of one thread of this process."""

    def __init__(self, index: int, ident: int, name: str, since_ns: int) -> None:
        self.index = index
        self.ident = ident
        self.name = name
        self.has_log = False
        self.tree = Tree()
        self.opened: tuple[OpenSpan, ...] = (OpenSpan(ROOT, since_ns),)
        self.folded_until = since_ns
        self.pending: list[Ints] = []
        self.pending_events = 0
        self.sightings: list[tuple[int, ...]] = []
        """Stack samples that have no node yet: (at, stack, *SAMPLE_SUMS without "n")."""
        self._starved_ahead = 0
        """Time without a core that was seen but is not reported by the system yet."""
        self.window: dict[str, Ints] = {name: np.zeros(0, np.int64) for name in SUMS}
        self.counters: dict[tuple[int, int], int] = {}
        self.samples: dict[tuple[int, int], list[int]] = {}
        self.min_ns = np.zeros(0, np.int64)
        self.max_ns = np.zeros(0, np.int64)
        self.histogram = np.zeros((0, BUCKETS), np.int32)
        self.rises: list[tuple[int, int, int, int]] = []
        self.bumps: list[tuple[int, int, int, int]] = []
        self.grown: dict[int, tuple[int, int, int]] = {}
        self.named = 0

    def starved_ns(self, reported: int, elapsed: int, ran: int, running: int | bool) -> int:
        """Return for how much of a sample's time the thread was ready to run but had no core.

        The system reports such a time when it has ended, which may be many samples later. Until then, the thread counts
        as running but uses no CPU time.
        """
        if running and not ran:
            self._starved_ahead += elapsed
            return elapsed
        starved = min(max(reported - self._starved_ahead, 0), elapsed - ran)
        self._starved_ahead = max(self._starved_ahead - reported, 0)
        return starved

    def add_events(self, events: Ints) -> None:
        """Keep new events in `pending`."""
        self.pending.append(events)
        self.pending_events += len(events)

    def take_pending(self, until_ns: int) -> Ints:
        """Remove and return the drained events up to a time, `[n, 2]`. Later ones are kept for the next fold."""
        events = self.pending[0] if len(self.pending) == 1 else np.concatenate([*self.pending, NOTHING])
        if len(events) and events[-1, 0] < COUNTER_BASE and events[-1, 1] <= until_ns:
            # If the last event is not late, none is.
            self.pending, self.pending_events = [], 0
            return events
        late = np.flatnonzero((events[:, 0] < COUNTER_BASE) & (events[:, 1] > until_ns))
        cut = int(late[0]) if len(late) else len(events)
        self.pending, self.pending_events = [events[cut:]], len(events) - cut
        return events[:cut]

    def fold(self, events: Ints, until_ns: int, codes: Codes, dark: bool) -> Folded:
        """Fold events into the account, up to a time."""
        done = fold(events, self.opened, (self.folded_until, until_ns), codes, self.tree, dark)
        self.opened = done.still_open
        self.folded_until = until_ns
        self._grow(len(self.tree.keys))
        self.window["total_ns"][done.node] += done.total_ns
        self.window["self_ns"][done.node] += done.self_ns
        if len(done.done_node):
            self._add_calls(done)
        if len(done.counter_node):
            self._add_counts(done)
        self._place_sightings(done, until_ns)
        return done

    def _add_counts(self, done: Folded) -> None:
        keys, place = np.unique((done.counter_node << 32) | done.counter_code, return_inverse=True)
        sums = np.zeros(len(keys), np.int64)
        np.add.at(sums, place, done.counter_amount)
        for key, amount in zip(keys.tolist(), sums.tolist(), strict=True):
            where = key >> 32, key & 0xFFFFFFFF
            self.counters[where] = self.counters.get(where, 0) + amount

    def _add_calls(self, done: Folded) -> None:
        if add_calls is not None and done.done_packed:
            calls = self.window["calls"]
            add_calls(
                done.done_packed, calls, self.min_ns, self.max_ns, self.histogram, FIRST_OCTAVE, BUCKETS_PER_OCTAVE
            )
            return
        node, duration = done.done_node, done.done_end - done.done_start
        self.window["calls"] += np.bincount(node, minlength=len(self.tree.keys))
        np.minimum.at(self.min_ns, node, duration)
        np.maximum.at(self.max_ns, node, duration)
        np.add.at(self.histogram.reshape(-1), node * BUCKETS + bucket_of(duration), 1)

    def _place_sightings(self, done: Folded, until_ns: int) -> None:
        """Find the node of each stack sample, each growth of memory and each increase of a tally."""
        ready, self.sightings = _until(self.sightings, until_ns)
        for node, (_, stack, *times) in zip(_innermost(done, ready), ready, strict=True):
            sums = self.samples.setdefault((node, stack), [0] * len(SAMPLE_SUMS))
            for i, value in enumerate((1, *times)):
                sums[i] += value
        bumps, self.bumps = _until(self.bumps, until_ns)
        for node, (_, code, amount, _) in zip(_innermost(done, bumps), bumps, strict=True):
            self.counters[node, code] = self.counters.get((node, code), 0) + amount
        rises, self.rises = _until(self.rises, until_ns)
        for node, (_, grown, rss, gpu) in zip(_innermost(done, rises), rises, strict=True):
            highest = self.grown.get(node, (0, 0, 0))
            self.grown[node] = (highest[0] + grown, max(highest[1], rss), max(highest[2], gpu))

    def _grow(self, size: int) -> None:
        missing = size - len(self.min_ns)
        if missing > 0:
            self.window = {name: _padded(each, missing) for name, each in self.window.items()}
            self.min_ns = np.append(self.min_ns, np.full(missing, np.iinfo(np.int64).max))
            self.max_ns = _padded(self.max_ns, missing)
            self.histogram = np.concatenate([self.histogram, np.zeros((missing, BUCKETS), np.int32)])

    def counted(self, code: int) -> int:
        """Return the sum of a counter in this window."""
        return sum(amount for (_, counter), amount in self.counters.items() if counter == code)

    def end_by(self, since_ns: int, now: int) -> None:
        """Let spans that ended in a pause, from `since_ns` to `now`, end when it began."""
        for i, events in enumerate(self.pending):
            late = (events[:, 0] < COUNTER_BASE) & (events[:, 1] > since_ns) & (events[:, 1] < now)
            if late.any():
                self.pending[i] = events = np.array(events)
                events[late, 1] = since_ns

    def skip(self, since_ns: int, now: int) -> None:
        """Continue after a pause as if no time had passed."""
        self.opened = tuple(replace(each, start_ns=each.start_ns + now - since_ns) for each in self.opened)
        self.folded_until += now - since_ns
        self.sightings = [each for each in self.sightings if each[0] <= since_ns]

    def reset_window(self) -> None:
        """Start a new window."""
        for each in self.window.values():
            each[:] = 0
        self.counters.clear()
        self.samples.clear()

    def reset(self) -> None:
        """Discard all measurements, but keep the tree."""
        self.reset_window()
        self.min_ns[:] = np.iinfo(np.int64).max
        self.max_ns[:] = 0
        self.histogram[:] = 0
        self.grown.clear()

    def window_rows(self, window: int) -> dict[str, NDArray[np.int64]]:
        """Return the window's sums as table columns."""
        node = np.flatnonzero(self.window["total_ns"] | self.window["calls"])
        columns = {name: each[node] for name, each in self.window.items()}
        return columns | {
            "window": np.full(len(node), window),
            "thread": np.full(len(node), self.index),
            "node": node,
        }

    def totals_rows(self) -> list[dict[str, int | list[int]]]:
        """Return what is known about whole calls so far, one row per node."""
        rows = []
        for node in sorted({*np.flatnonzero(self.max_ns).tolist(), *self.grown}):
            grown, peak, gpu = self.grown.get(int(node), (0, 0, 0))
            buckets = np.flatnonzero(self.histogram[node])
            rows.append(
                {
                    "thread": self.index,
                    "node": int(node),
                    "min_ns": int(self.min_ns[node]) if len(buckets) else 0,
                    "max_ns": int(self.max_ns[node]),
                    "grown_bytes": grown,
                    "peak_bytes": peak,
                    "gpu_bytes": gpu,
                    "buckets": buckets.tolist(),
                    "counts": self.histogram[node, buckets].tolist(),
                }
            )
        return rows


def _until(noted: list[T], until_ns: int) -> tuple[list[T], list[T]]:
    """Split what was noted up to a moment from what came after it."""
    ready = [each for each in noted if each[0] <= until_ns]
    return ready, noted[len(ready) :]


def _innermost(done: Folded, seen: Sequence[tuple[int, ...]]) -> list[int]:
    at = np.array([each[0] for each in seen], np.int64)
    return done.inner[np.maximum(np.searchsorted(done.at_ns, at, "right") - 1, 0)].tolist()


def _padded(values: Ints, missing: int) -> Ints:
    return np.append(values, np.zeros(missing, np.int64))


def calls_begun(events: Ints) -> tuple[Counter[int], int]:
    """Return how many spans of each code begin in these events, and the number of counter events."""
    if begun is not None:
        calls, counters = begun(events, COUNTER_BASE)
        return Counter(calls), counters
    code = events[:, 0]
    found = np.bincount(code[(code > 0) & (code < COUNTER_BASE)])
    return Counter({int(each): int(found[each]) for each in np.flatnonzero(found)}), int((code >= COUNTER_BASE).sum())


def mean_durations(accounts: list[Account]) -> dict[int, float]:
    """Return the mean duration in ns of the calls in this window, by code."""
    total: Counter[int] = Counter()
    calls: Counter[int] = Counter()
    for account in accounts:
        n, ns = account.window["calls"], account.window["total_ns"]
        for node in np.flatnonzero(n):
            code = account.tree.keys[node].variant >> 1
            total[code] += int(ns[node])
            calls[code] += int(n[node])
    return {code: total[code] / n for code, n in calls.items()}
