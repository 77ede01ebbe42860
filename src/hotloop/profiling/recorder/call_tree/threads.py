"""The threads of this process. Drains their logs and stores their stack samples, each in the account of its thread."""

from __future__ import annotations

import sys
import threading
from collections import Counter

from hotloop.profiling.recorder.call_tree.thread_totals import Account, calls_begun
from hotloop.profiling.recorder.stack_sampler import BLOCKED, COLLECTING, ON_FILE, STATE_KNOWN, Ints
from hotloop.spans import registry
from hotloop.spans.hot_path import Log

MANY_LOGS = 16
"""From so many on it is looked whether threads have ended: a program may start one for each step."""


class Threads:
    """All threads that were sampled or have written events."""

    def __init__(self) -> None:
        self.accounts: list[Account] = []
        self.counted: Counter[int] = Counter()
        """Amounts drained so far, by code of the counter, of all threads."""
        self.counter_events = 0
        """Number of counter events drained."""
        self._live: dict[int, Account] = {}
        self._logs: list[Log] = []
        self._seen_logs = 0

    def listen(self) -> None:
        """Start to record the spans of all threads."""
        self._logs = registry.listen()

    def waiting(self) -> int:
        """Return the number of events that are not drained yet."""
        return sum(map(len, self._logs))

    def open(self, ident: int, at: int) -> Account:
        """Open the account of a new thread."""
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        account = Account(len(self.accounts), ident, names.get(ident, f"thread {ident}"), at)
        self.accounts.append(account)
        self._live[ident] = account
        return account

    def drain(self, since_ns: int) -> Counter[int]:
        """Drain the logs of all threads; return how often each span began.

        Args:
            since_ns: Start time to assume for a thread without an account.
        """
        while self._seen_logs < len(self._logs):
            log = self._logs[self._seen_logs]
            self._seen_logs += 1
            account = self._live.get(log.ident)
            if account is None or account.log is not None:
                # The system may give the ident of an ended thread to a new one.
                account = self.open(log.ident, since_ns)
            account.log, account.name = log, log.name
        if self._seen_logs > MANY_LOGS:
            self._forget_ended()
        began: Counter[int] = Counter()
        for account in self.accounts:
            events = account.drain()
            if len(events):
                calls, counters = calls_begun(events)
                self._add_counted(events[events[:, 0] >= registry.COUNTER_BASE])
                began, self.counter_events = began + calls, self.counter_events + counters
        return began

    def _add_counted(self, events: Ints) -> None:
        for code, amount in events.tolist():
            self.counted[code] += amount

    def _forget_ended(self) -> None:
        """Release the logs of ended threads. The next thread with the same ident continues the account."""
        alive = sys._current_frames().keys()
        for account in self.accounts:
            if account.log is not None and account.ident not in alive and not len(account.log):
                self._logs.remove(account.log)
                self._seen_logs -= 1
                account.log = None

    def take_samples(self, samples: Ints) -> None:
        """Keep stack samples until the fold finds their nodes.

        Args:
            samples: `[n, 7]`, see `stack_sampler.COLUMNS`; stacks are numbered as on disk.
        """
        for at, ident, stack, elapsed, cpu, starved, flags in samples.tolist():
            account = self._live.get(ident) or self.open(ident, at)
            ran = elapsed if cpu < 0 else min(cpu, elapsed)
            starved = account.starved_ns(starved, elapsed, ran, running=flags & STATE_KNOWN and not flags & BLOCKED)
            collecting = elapsed if flags & COLLECTING else 0
            # Where the state is not known, what is neither computing nor starved is waiting.
            idle = (elapsed if flags & BLOCKED else 0) if flags & STATE_KNOWN else elapsed - ran - starved
            on_file = idle if flags & ON_FILE else 0
            account.sightings.append((at, stack, elapsed, ran, collecting, idle - on_file, on_file, starved))
