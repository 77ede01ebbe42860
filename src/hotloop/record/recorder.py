"""The recorder: one background thread that drains the spans' logs, samples stacks and memory, and writes.

Every tick (10 ms) it looks at all threads' stacks. Every block (200 ms) it may switch fine spans off or on, to
learn what they cost. Every second it folds what was drained and appends it to the run's files, so that a run
that is killed is readable up to its last second. If anything in here fails, recording stops with one warning
and training goes on.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hotloop import spans, ticks
from hotloop.clock import now_ns, thread_cpu_ns, wall_ns
from hotloop.record.account import Account, calls_begun, mean_durations
from hotloop.record.fold import Ints, first_step
from hotloop.record.governor import Governor, Pace, tight_loop_ns
from hotloop.record.options import RecordOptions
from hotloop.record.sampler import StackBook
from hotloop.record.tree import codes_of
from hotloop.record.vitals import Vitals
from hotloop.record.writing import Write, Writer, process_name, write_window
from hotloop.spans import COUNTER_BASE
from hotloop.trace.store import ProcessFiles

SECOND_NS = 1_000_000_000
TOTALS_EVERY_NS = 5 * SECOND_NS
EAGER_NS = 10 * SECOND_NS
"""At first every look counts, for a short recording has few: whatever they cost."""
QUICK_NS = 2 * SECOND_NS
FOLD_AT = 8_000
"""Events waiting to be folded that make a fold due before the second is over: they bound the memory."""
RAW_AT = 50_000
"""Single calls that are written before the window is over."""
CROWDED = 12_500
"""Events waiting in the threads' logs above which spans are thinned at once."""
WINDOWS_BEFORE_DOUBLING = 600


class Recorder:
    """Records this process into a folder of its own."""

    def __init__(self, folder: Path, options: RecordOptions) -> None:
        self.options = options
        self._writer = Writer(ProcessFiles(folder))
        self.accounts: list[Account] = []
        self.failed = False
        self.wrapper_ns = 0.0, 0.0, 0.0
        """What the wrappers of hooks add to a call, by kind (`spans.Hook`); set by who installs them."""
        self._live: dict[int, Account] = {}
        self._book, self._governor = StackBook(), Governor(options.budget, tight_loop_ns())
        self._busy = threading.Lock()
        self._stopping, self._ident = False, 0
        self._thread: threading.Thread | None = None
        self._seen_logs, self._codes = 0, codes_of([])
        self._warnings: list[str] = []

    def start(self) -> None:
        """Begin to record."""
        begin = now_ns()
        self.start_ns = self.loop_start_ns = self._window_start = begin
        self._loop_started = False
        self._armed = not (self.options.after_s or self.options.after_steps)
        self._steps_seen = 0
        self._window, self._window_ns = 0, round(self.options.window_s * SECOND_NS)
        self._windows_at_length = 0
        self._last_look = self._block_start = self._second_start = self._learned_at = begin
        self._totals_at = self._ended_ns = 0
        self._pace = Pace(round(SECOND_NS / self.options.hz) if self.options.hz else 0, self.options.budget / 2)
        self._background_ns = 0
        self._rates: Counter[int] = Counter()
        self._since_drain: Counter[int] = Counter()
        self._timed: Counter[int] = Counter()
        self._counted: Counter[int] = Counter()
        self._counter_events = 0
        self._cuts: list[tuple[int, bool]] = []
        self._vitals = Vitals()
        self._process_marks = self._marks()
        self._logs = spans.listen()
        for each in spans.known_spans():
            self._governor.counted([each])
        self.main = self._account(threading.main_thread().ident or 0, begin)
        self._thread = threading.Thread(target=self._run, name="hotloop", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop recording and write all that is left."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._stopping = True
        ticks.wake()
        thread.join(10)
        spans.hush()
        if not self.failed:
            try:
                self._second(self._ended_ns or now_ns(), last=True)
                self._writer.files.close()
            except Exception as error:
                self._fail(error)
        self._vitals.close()

    def forget(self) -> None:
        """In a forked child: let go of what was the parent's."""
        self._vitals.close()

    def fork_lock(self) -> threading.Lock:
        """Held while the background thread works: a fork that waits for it copies no half-done work."""
        return self._busy

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the background thread up meanwhile. To it, this time has not been: for benches."""
        with self._busy:
            ticks.hold(True)
            begin = now_ns()
            try:
                yield
            finally:
                for mark in ("_block_start", "_second_start", "_learned_at", "_last_look"):
                    setattr(self, mark, getattr(self, mark) + now_ns() - begin)
                ticks.hold(False)

    def _run(self) -> None:
        self._ident = threading.get_ident()
        try:
            while not self._stopping:
                until = min(self._block_start + self._pace.block_ns, self._second_start + SECOND_NS, self._due_ns())
                book, tick_ns = self._book, self._pace.tick_ns
                looks, bumps = ticks.watch(until, tick_ns, CROWDED, book.by_key, book.name_stack, spans.known_tallies())
                if self._stopping:
                    break
                with self._busy:
                    self._take_looks(looks)
                    self._vitals.take_bumps(bumps, self.main)
                    self._tick(now_ns())
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self.failed = True
        spans.hush()
        self._vitals.close()
        try:
            self._writer.files.close()
        except (OSError, ValueError):
            pass  # What failed once fails again; a stream without its end can be read.
        remedy = "Training goes on unrecorded."
        if isinstance(error, OSError):
            remedy = f"Check the space and the rights of {self._writer.files.folder}. {remedy}"
        warnings.warn(f"hotloop stopped recording: {type(error).__name__}: {error}. {remedy}", stacklevel=1)

    def _tick(self, at: int) -> None:
        if sum(map(len, self._logs)) > CROWDED:
            self._relieve()
        if at >= self._block_start + self._pace.block_ns:
            self._vitals.read_memory(at, self.main)
            self._turn_block()
        if at >= min(self._second_start + SECOND_NS, self._due_ns()):
            self._second(now_ns())

    def _due_ns(self) -> int:
        """Return when the window that was asked for begins or ends, if that is still to come."""
        waits_for = self.options.for_s if self._armed else self.options.after_s
        if self._stopping or not waits_for:
            return self._second_start + SECOND_NS
        return self.start_ns + round(waits_for * SECOND_NS)

    def _take_looks(self, looks: list[tuple[int, int, int, int]]) -> None:
        """Keep each thread's stack, the time since the look before, and how much of it was computing."""
        before = last = self._last_look
        for at, ident, stack, cpu in looks:
            if at != last:
                before, last = last, at
            elapsed = max(at - before, 0)
            account = self._live.get(ident) or self._account(ident, at)
            ran = elapsed if cpu < 0 or account.cpu_ns < 0 else cpu - account.cpu_ns
            account.cpu_ns = cpu
            account.sightings.append((at, stack, elapsed, min(ran, elapsed)))
        self._last_look = last

    def _account(self, ident: int, at: int) -> Account:
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        account = Account(len(self.accounts), ident, names.get(ident, f"thread {ident}"), at)
        self.accounts.append(account)
        self._live[ident] = account
        return account

    def _drain(self) -> Counter[int]:
        """Take what all threads have written; return how often each span began."""
        while self._seen_logs < len(self._logs):
            log = self._logs[self._seen_logs]
            self._seen_logs += 1
            account = self._live.get(log.ident)
            if account is None or account.log is not None:
                # A thread's number may be given again to a later thread.
                account = self._account(log.ident, max(self._block_start, self.start_ns))
            account.log, account.name = log, log.name
        began: Counter[int] = Counter()
        for account in self.accounts:
            events = account.drain()
            if len(events):
                calls, counters = calls_begun(events)
                began, self._counter_events = began + calls, self._counter_events + counters
        self._timed += began
        self._rates += began
        return began

    def _turn_block(self) -> None:
        at = now_ns()
        was_dark, began = self._governor.dark, self._drain()
        every = spans.known_spans()
        self._governor.close_block(at - self._block_start, began + self._since_drain, self._tally())
        self._since_drain = Counter()
        self._block_start = at
        changed = self._governor.open_block(every)
        quick = at - self.loop_start_ns < QUICK_NS
        if quick or any(account.pending_events > FOLD_AT for account in self.accounts):
            self._fold(at, was_dark)
        elif changed:
            # Folded with the second: several folds in a row find their code and data in the caches.
            self._cuts.append((at, was_dark))
        if quick:
            # The first seconds of a loop show how fine its spans are: the budget should not wait for it.
            self._learn(at)

    def _relieve(self) -> None:
        """Spans come faster than they can be folded: time fewer of them, so that the memory stays bounded."""
        was_dark = self._governor.dark
        self._since_drain = self._since_drain + self._drain()
        self._governor.shed(self._since_drain)
        at = now_ns()
        self._governor.open_block(spans.known_spans())
        self._fold(at, was_dark)

    def _tally(self) -> Counter[int]:
        """Take the calls that were counted but not timed."""
        counted = self._governor.counted(spans.known_spans())
        self._counted += counted
        self._rates += counted
        return counted

    def _fold(self, at: int, dark: bool) -> None:
        """Fold up to a moment, stretch by stretch: at each cut spans were switched off or on."""
        cuts, self._cuts = self._cuts, []
        for until, was_dark in (*cuts, (at, dark)):
            self._fold_stretch(until, was_dark)

    def _fold_stretch(self, at: int, dark: bool) -> None:
        every = spans.known_spans()
        if len(self._codes.env) != len(every) + 1:
            self._codes = codes_of(every)
        for account in self.accounts:
            if not (account.pending_events or account.sightings or account is self.main):
                continue
            events = account.take_pending(at)
            if not self._loop_started and self._armed:
                events = self._cut_at_first_step(account, events, dark)
            self._fold_account(account, events, at, dark)

    def _fold_account(self, account: Account, events: Ints, at: int, dark: bool) -> None:
        # In parts, because what a fold needs of memory grows with the events.
        while len(events) > 2 * FOLD_AT:
            part, events = events[:FOLD_AT], events[FOLD_AT:]
            times = part[part[:, 0] < COUNTER_BASE, 1]
            self._fold_part(account, part, int(times[-1]) if len(times) else account.folded_until, dark)
        self._fold_part(account, events, at, dark)

    def _fold_part(self, account: Account, events: Ints, at: int, dark: bool) -> None:
        done = account.fold(events, at, self._codes, dark)
        if self._keeps_raw() and len(done.done_node):
            self._writer.keep_raw(account.index, done)
            if self._writer.raw_waiting > RAW_AT:
                self._write_names()
                self._writer.raw()

    def _cut_at_first_step(self, account: Account, events: Ints, dark: bool) -> Ints:
        """End a window where the first environment step begins: what comes before is start-up."""
        cut = first_step(events, spans.known_counters().get("env_steps", 0), self._codes)
        if cut is None:
            return events
        # A step that is only counted has no time: it is that of the event before it.
        timed = events[: cut + 1][events[: cut + 1, 0] < COUNTER_BASE]
        at = max(int(timed[-1, 1]) if len(timed) else 0, account.folded_until)
        self._loop_started = True
        self._fold_account(account, events[:cut], at, dark)
        self._end_window(at)
        self.loop_start_ns = at
        return events[cut:]

    def _keeps_raw(self) -> bool:
        window = self._window
        sparse = window < self.options.raw_windows + 1 or (window & (window - 1)) == 0
        return sparse and self._armed and self._writer.files.size_of("raw") < self.options.raw_bytes

    def _second(self, at: int, last: bool = False) -> None:
        self._since_drain = self._since_drain + self._drain()
        if last:
            self._tally()
            self._vitals.read_tallies(at, self.main)
        self._fold(at, self._governor.dark)
        self._vitals.read_device()
        if at - self.loop_start_ns < EAGER_NS or at - self._learned_at >= TOTALS_EVERY_NS:
            self._learn(at)
        cpu = thread_cpu_ns() if threading.get_ident() == self._ident else self._background_ns
        if at - self.start_ns >= EAGER_NS:
            self._pace.adapt((cpu - self._background_ns) / max(at - self._second_start, 1))
        self._background_ns = cpu
        self._second_start = at
        if not self._armed:
            self._arm(at)
            return
        self._write_names()
        if last or at - self._window_start >= self._window_ns:
            self._end_window(at)
        else:
            self._write_window(at, self._writer.tail)
        if last or at >= self._totals_at:
            self._writer.totals(self.accounts)
            self._totals_at = at + TOTALS_EVERY_NS
        self._writer.state(self._state(at, "finished" if last else "running"))
        if self.options.for_s and at - self.start_ns >= self.options.for_s * SECOND_NS:
            spans.hush()
            self._ended_ns, self._stopping = now_ns(), True

    def _learn(self, at: int) -> None:
        """Tell the governor how often spans are called, how long they take, and from where."""
        elapsed = max(at - self._learned_at, 1)
        rates = Counter({code: round(n * 1e9 / elapsed) for code, n in self._rates.items()})
        pairs = {pair for each in self.accounts for pair in each.tree.pairs()}
        self._governor.learn(rates, mean_durations(self.accounts), pairs)
        self._rates = Counter()
        self._learned_at = at

    def _arm(self, at: int) -> None:
        """Begin to keep, once the asked-for start is reached; forget what was before."""
        code = spans.known_counters().get("env_steps")
        self._steps_seen += sum(n for a in self.accounts for (_, c), n in a.counters.items() if c == code)
        for account in self.accounts:
            account.reset()
        self._tally()
        # What was drained after this moment is folded later, and counts.
        self._timed = sum((calls_begun(part)[0] for a in self.accounts for part in a.pending), Counter())
        self._counted, self._counter_events = Counter(), 0
        self._writer.drop_raw()
        waited = at - self.start_ns >= self.options.after_s * SECOND_NS
        if waited and self._steps_seen >= self.options.after_steps:
            self._armed = True
            self._process_marks = self._marks()
            self.start_ns = self.loop_start_ns = self._window_start = at

    def _end_window(self, at: int) -> None:
        self._write_names()
        self._write_window(at, self._writer.append)
        self._writer.raw()
        self._writer.drop_tails()
        for account in self.accounts:
            account.reset_window()
        self._timed, self._counted, self._vitals.device_ns = Counter(), Counter(), Counter()
        self._process_marks = self._marks()
        self._window += 1
        self._window_start = at
        self._windows_at_length += 1
        if self._windows_at_length >= WINDOWS_BEFORE_DOUBLING:
            self._window_ns *= 2
            self._windows_at_length = WINDOWS_BEFORE_DOUBLING // 2

    def _write_names(self) -> None:
        self._writer.names(self.accounts, self.main, self._book.fresh)
        self._book.fresh = []

    def _write_window(self, at: int, write: Write) -> None:
        marks = self._marks()
        reading = self._vitals.memory.read()
        memory = {name: marks[name] - self._process_marks[name] for name in marks} | {
            "window": self._window, "start_ns": self._window_start, "end_ns": at, "rss_bytes": reading.rss_bytes,
            "gpu_bytes": reading.gpu_bytes, "gpu_busy_percent": reading.gpu_busy_percent,
        }  # fmt: skip
        write_window(write, self._window, self.accounts, (self._timed, self._counted, self._vitals.device_ns), memory)

    def _marks(self) -> dict[str, int]:
        return self._vitals.totals() | {"background_ns": self._background_ns}

    def _state(self, at: int, state: str) -> dict[str, Any]:
        governor = self._governor
        return {
            "state": state, "until_ns": at, "wall_ns": wall_ns(), "start_ns": self.start_ns, "pid": os.getpid(),
            "loop_start_ns": self.loop_start_ns if self._loop_started else None, "process": process_name(),
            "span_ns": governor.cost.ns, "span_error_ns": governor.cost.error_ns, "tight_ns": governor.tight_ns,
            "wrap_ns": self.wrapper_ns[0], "step_wrap_ns": self.wrapper_ns[1], "quick_wrap_ns": self.wrapper_ns[2],
            "counter_events": self._counter_events, "tally_events": self._vitals.tally_events,
            "background_cpu_ns": self._background_ns, "warnings": self._warnings,
        }  # fmt: skip
