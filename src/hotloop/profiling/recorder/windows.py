"""The windows of a recording. Each row of its tables is a total over one window of a second or more."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict

from hotloop.profiling.recorder.call_tree.thread_totals import Account
from hotloop.profiling.recorder.feed import Feed
from hotloop.profiling.recorder.writer import Write, write_window

WINDOWS_BEFORE_DOUBLING = 600
"""After this many windows, their length doubles, so that the files of a long run stay small."""


class Windows:
    """The current window and its totals."""

    def __init__(self, at: int, length_ns: int, feed: Feed) -> None:
        self.index = 0
        self.timed, self.counted = Counter[int](), Counter[int]()
        """Calls of each span that were timed, and calls that were counted but not timed."""
        self._length_ns, self._at_this_length = length_ns, 0
        self._feed = feed
        self.restart(at, 0)

    def over(self, at: int) -> bool:
        """Return whether the current window has reached its length."""
        return at - self._start_ns >= self._length_ns

    def restart(self, at: int, background_ns: int) -> None:
        """Start the current window now."""
        self._start_ns = at
        self._process_marks = self._marks(background_ns)
        self._device_before = list(self._feed.device_ns())

    def write(self, at: int, write: Write, accounts: list[Account], background_ns: int) -> None:
        """Write the totals of the current window up to a time."""
        marks = self._marks(background_ns)
        memory = {name: marks[name] - self._process_marks[name] for name in marks} | asdict(self._feed.stats.memory())
        memory |= {"window": self.index, "start_ns": self._start_ns, "end_ns": at}
        write_window(write, self.index, accounts, (self.timed, self.counted, self._device_ns()), memory)

    def end(self, at: int, write: Write, accounts: list[Account], background_ns: int) -> None:
        """Write the current window and begin the next one."""
        self.write(at, write, accounts, background_ns)
        for account in accounts:
            account.reset_window()
        self.timed, self.counted = Counter(), Counter()
        self.restart(at, background_ns)
        self.index += 1
        self._at_this_length += 1
        if self._at_this_length >= WINDOWS_BEFORE_DOUBLING:
            self._length_ns *= 2
            self._at_this_length = WINDOWS_BEFORE_DOUBLING // 2

    def _marks(self, background_ns: int) -> dict[str, int]:
        return self._feed.stats.totals() | {"background_ns": background_ns}

    def _device_ns(self) -> Counter[int]:
        """Return the device time of the window by code."""
        pairs = zip(self._feed.device_ns(), self._device_before, strict=False)
        return Counter({code: now - before for code, (now, before) in enumerate(pairs) if now != before})
