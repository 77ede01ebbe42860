"""The threads of a process: keeps their events and stack samples, each in the account of its thread."""

from __future__ import annotations

from collections import Counter

from hotloop.profiling.recorder.call_tree.thread_totals import Account, calls_begun
from hotloop.profiling.recorder.feed import ThreadEvents
from hotloop.profiling.recorder.samples import BLOCKED, COLLECTING, ON_FILE, STATE_KNOWN, Ints

MANY_THREADS = 16
"""From this many accounts on, a new thread with the ident of an ended one continues its account."""


class Threads:
    """All threads that were sampled or have written events."""

    def __init__(self) -> None:
        self.accounts: list[Account] = []
        self.counter_events = self.tally_events = 0
        """Number of counter events taken, and of calls of tallies."""
        self._live: dict[int, Account] = {}
        """By ident, which the system may give to a new thread when one has ended."""
        self._by_serial: dict[int, Account] = {}

    def open(self, ident: int, at: int) -> Account:
        """Open the account of a new thread."""
        account = Account(len(self.accounts), ident, f"thread {ident}", at)
        self.accounts.append(account)
        self._live[ident] = account
        return account

    def add_events(self, taken: list[ThreadEvents], since_ns: int) -> Counter[int]:
        """Keep new events until the fold; return how often each span began.

        Args:
            taken: The events.
            since_ns: Start time to assume for a thread without an account.
        """
        began: Counter[int] = Counter()
        for each in taken:
            self._account_of(each, since_ns).add_events(each.pairs)
            calls, counters = calls_begun(each.pairs)
            began, self.counter_events = began + calls, self.counter_events + counters
        return began

    def _account_of(self, events: ThreadEvents, since_ns: int) -> Account:
        if not events.serial:
            return self._live[events.ident]
        account = self._by_serial.get(events.serial)
        if account is None:
            account = self._live.get(events.ident)
            if account is None or (account.has_log and len(self.accounts) < MANY_THREADS):
                account = self.open(events.ident, since_ns)
            # A program may start a thread for each step: then one account continues another.
            account.has_log, account.name = True, events.name
            self._by_serial[events.serial] = account
        return account

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
