"""Takes a stretch of the loop out of the recording: for measurements that would disturb the phases.

Meanwhile spans do nothing, the background thread stands still and counters are dropped. To the tables the stretch has
not been: the window before it ends where it begins, the next one begins where it ends, and calls that are open
across it are shorter by it. The hole between two windows is how a reader knows of it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from hotloop import spans, ticks
from hotloop.clock import now_ns
from hotloop.record.account import Account
from hotloop.record.recorder import Recorder
from hotloop.spans import COUNTER_BASE, Span


class Pause:
    """A stretch that is not recorded, from `begin` to `end`, which the same thread need not call."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._since_ns = 0
        self._classes: list[type[Span]] = []
        self.on = False

    @property
    def possible(self) -> bool:
        """Whether something is being recorded now that could be paused."""
        return spans.recording() and self._recorder._armed and not self.on

    def begin(self) -> None:
        """Stop the recording here."""
        recorder = self._recorder
        recorder.fork_lock().acquire()
        ticks.hold(True)
        every = spans.known_spans()
        self._classes = [type(each) for each in every]
        spans._born = Span
        for each in every:
            each.__class__ = Span
        self._since_ns = now_ns()
        recorder._drain()
        recorder._tally()
        recorder._vitals.read_tallies(self._since_ns, recorder.main)
        self.on = True

    def end(self) -> None:
        """Go on with the recording here. Safe to call twice."""
        if not self.on:
            return
        self.on = False
        recorder = self._recorder
        try:
            self._fold()
            now = now_ns()
            for account in recorder.accounts:
                _skip(account, self._since_ns, now)
            for each in spans.known_tallies():
                each.fresh()
            recorder._window_start = recorder._block_start = recorder._second_start = now
            recorder._learned_at = recorder._last_look = now
            recorder._since_drain, recorder._rates = Counter(), Counter()
            recorder._process_marks = recorder._marks()
            _drop_old_looks(recorder, now)
        except Exception as error:
            recorder._fail(error)
        finally:
            if spans.recording():
                self._wake_spans()
            ticks.hold(False)
            recorder.fork_lock().release()

    def _fold(self) -> None:
        """End the window where the pause began. Spans that were open then may have ended since."""
        recorder, since = self._recorder, self._since_ns
        waiting = {id(account): len(account.pending) for account in recorder.accounts}
        recorder._drain()
        for account in recorder.accounts:
            for i in range(waiting.get(id(account), 0), len(account.pending)):
                events = account.pending[i]
                late = np.array(events[events[:, 0] < COUNTER_BASE])
                late[:, 1] = np.minimum(late[:, 1], since)
                account.pending_events -= len(events) - len(late)
                account.pending[i] = late
        recorder._fold(since, recorder._governor.dark)
        recorder._end_window(since)

    def _wake_spans(self) -> None:
        every = spans.known_spans()
        spans._born = spans._Live
        for each, was in zip(every, self._classes, strict=False):
            each.__class__ = was
        for each in every[len(self._classes) :]:
            spans.make_live(each)


def _skip(account: Account, since_ns: int, now: int) -> None:
    """Let a thread go on as if no time had passed."""
    account.opened = tuple(replace(each, start_ns=each.start_ns + now - since_ns) for each in account.opened)
    account.folded_until += now - since_ns
    account.sightings = [each for each in account.sightings if each[0] <= since_ns]
    account.cpu_ns = -1


def _drop_old_looks(recorder: Recorder, now: int) -> None:
    """Have the looks that wait since before the pause left out: the next would last as long as the pause did."""

    def take_looks(looks: list[tuple[int, int, int, int]]) -> None:
        del recorder.__dict__["_take_looks"]
        recorder._take_looks([look for look in looks if look[0] >= now])

    recorder.__dict__["_take_looks"] = take_looks
