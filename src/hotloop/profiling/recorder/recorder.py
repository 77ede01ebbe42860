"""The recorder: one background thread that drains the spans' logs, collects the stack samples, and writes.

Every block (200 ms) it may switch fine spans off or on, to learn what they cost. Every second it folds what was drained
and writes it to the run's files, so that a killed run is readable up to its last second. If anything in here fails,
recording stops with one message and training continues.
"""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hotloop.clock import now_ns, thread_cpu_ns
from hotloop.notice import notice
from hotloop.profiling.recorder.call_counts import CallCounts
from hotloop.profiling.recorder.call_tree.fold import Ints, first_step, time_before
from hotloop.profiling.recorder.call_tree.thread_totals import Account, calls_begun, mean_durations
from hotloop.profiling.recorder.call_tree.threads import Threads
from hotloop.profiling.recorder.call_tree.tree import codes_of
from hotloop.profiling.recorder.overhead import BLOCK_NS, Governor, Pace, tight_loop_ns
from hotloop.profiling.recorder.process_stats import Vitals
from hotloop.profiling.recorder.record_options import RecordOptions
from hotloop.profiling.recorder.stack_book import StackBook
from hotloop.profiling.recorder.stack_sampler import new_sampler
from hotloop.profiling.recorder.windows import Windows
from hotloop.profiling.recorder.writer import Writer, describe_process, forget_within
from hotloop.profiling.trace.stream_store import ProcessFiles
from hotloop.spans import hot_path, registry

if TYPE_CHECKING:
    from hotloop.profiling.recorder.hooks.state import HookState

SECOND_NS = 1_000_000_000
TOTALS_EVERY_NS = 5 * SECOND_NS
EAGER_NS = 10 * SECOND_NS
"""For this long, sample at the full rate whatever it costs, because a short recording has few samples."""
QUICK_NS = 2 * SECOND_NS
FOLD_AT = 8_000
"""With more events than this waiting, fold before the second is over, to limit memory."""
RAW_AT = 50_000
"""With more single calls than this waiting, write them before the window is over."""
CROWDED, FLOOD_NS = 12_000, 100_000_000
"""With more events than this in the logs, drain them at once. If that recurs within this time, thin spans."""


class Recorder:
    """Records this process into its own folder."""

    def __init__(self, folder: Path, options: RecordOptions, main: bool = True) -> None:
        self.options = options
        self._writer = Writer(ProcessFiles(folder, describe_process(main)))
        if main:
            self._writer.files.create()
        self._threads = Threads()
        self.accounts = self._threads.accounts
        self.failure = ""
        """Why the recorder failed; empty if it did not."""
        self._wrapper_ns: dict[str, float] = {}
        """What the wrappers of hooks add to a call, by kind. Shared with the hooks, which may add to it later."""
        self.sampler = new_sampler(options.hz)
        self._book, self._governor = StackBook(), Governor(options.budget, tight_loop_ns())
        self._calls = CallCounts(options.budget, self._book.is_own) if main and options.hz else None
        self.working = threading.Lock()
        """Held while the background thread works. Forks wait for it, so that no half-finished state is copied."""
        self._stopping, self._paused, self._ident = False, False, 0
        self._thread: threading.Thread | None = None
        self._codes = codes_of([])

    def use_hooks(self, state: HookState) -> None:
        """Also write what these hooks measure."""
        self._wrapper_ns = state.wrapper_ns
        self._writer.printed_timings = state.book

    def start(self) -> None:
        """Start to record."""
        begin = now_ns()
        self.start_ns = self.loop_start_ns = begin
        self._loop_started = self._seen_events = False
        self.armed = not (self.options.after_s or self.options.after_steps)
        """Whether `after_s` and `after_steps` have passed. Before that, everything recorded is discarded."""
        self._steps_seen = 0
        self._block_start = self._second_start = begin
        self._learned_at = self._drained_at = begin
        self._totals_at = self._ended_ns = 0
        self._pace = Pace(round(SECOND_NS / self.options.hz) if self.options.hz else 0, self.options.budget / 2)
        self._background_ns = 0
        self._rates, self._since_drain = Counter[int](), Counter[int]()
        self._cuts: list[tuple[int, bool]] = []
        self._vitals = Vitals()
        self._windows = Windows(begin, round(self.options.window_s * SECOND_NS), self._vitals)
        self._threads.listen()
        self._governor.counted(registry.known_spans())
        forget_within()
        self.main = self._threads.open(threading.main_thread().ident or 0, begin)
        self._thread = threading.Thread(target=self._run, name="hotloop", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop recording and write the rest."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        stopped_at, self._stopping = now_ns(), True  # the time from here on is the recorder's, not the training's
        hot_path.wake()
        thread.join(10)
        self.sampler.stop()
        registry.hush()
        if not self.failure:
            try:
                self._second(self._ended_ns or max(stopped_at, self.main.folded_until), last=True)
                self._writer.close(self._book.own_files())
            except Exception as error:
                self._fail(error)
        self._vitals.close()

    def flush(self) -> bool:
        """Write everything recorded so far; return False during a pause, when there is nothing new to write."""
        if self._paused:
            return False
        with self.working:
            try:
                if self.armed and not self.failure:
                    self._since_drain = self._since_drain + self._drain()
                    self._fold(self._drained_at, self._governor.dark)
                    self._write(self._drained_at)
            except Exception as error:
                self._fail(error)
        return True

    def forget(self) -> None:
        """In a forked child: release everything that belongs to the parent."""
        self._vitals.close()

    def pause(self) -> int:
        """Stop all spans and the background thread until `resume`; return when the pause began."""
        self.working.acquire()
        self._paused = True
        self.sampler.hold(True)
        self._silenced = registry.silence()
        since = now_ns()
        self._drain()
        self._tally()
        self._take_samples()
        return since

    def resume(self, since: int) -> None:
        """End a pause that began at `since`, as if no time had passed: a window ends then, and the next begins now."""
        try:
            waiting = {account.index: len(account.pending) for account in self.accounts}
            self._drain()
            for account in self.accounts:
                account.end_by(since, waiting.get(account.index, 0))
            self._fold(since, self._governor.dark)
            self._end_window(since)
            now = now_ns()
            for account in self.accounts:
                account.skip(since, now)
            self.sampler.take()  # what was counted during the pause
            self._block_start = self._second_start = self._learned_at = now
            self._since_drain, self._rates = Counter(), Counter()
            self._windows.restart(now, self._background_ns)
        except Exception as error:
            self._fail(error)
        finally:
            if registry.recording():
                registry.unsilence(self._silenced)
            self.sampler.hold(False)
            self._paused = False
            self.working.release()

    def _run(self) -> None:
        self._ident = threading.get_ident()
        try:
            self.sampler.start(self._pace.tick_ns)
            while not self._stopping:
                until = min(self._block_start + self._pace.block_ns, self._second_start + SECOND_NS, self._due_ns())
                self.sampler.wait(until)
                if self._stopping:
                    break
                with self.working:
                    self._tick(now_ns())
        except Exception as error:
            self._fail(error)

    def _take_samples(self) -> None:
        """Hand what was sampled to the threads' accounts."""
        taken = self.sampler.take()
        self._book.add(taken.codes, taken.stacks)
        samples = taken.samples.copy()
        samples[:, 2] = self._book.numbers(samples[:, 2])
        self._threads.take_samples(samples)
        self._vitals.take_bumps(taken.changes.tolist(), self.main)

    def _fail(self, error: Exception) -> None:
        self.failure = f"{type(error).__name__}: {error}"
        registry.hush()
        self._vitals.close()
        with suppress(OSError, ValueError):  # Closing may fail for the same reason; an unfinished stream can be read.
            self._writer.files.close()
        remedy = "Training continues without recording."
        if isinstance(error, OSError):
            remedy = f"Check the free space and permissions of {str(self._writer.files.folder)!r}. {remedy}"
        notice(f"stopped recording: {self.failure}. {remedy}")

    def _tick(self, at: int) -> None:
        if self._threads.waiting() > CROWDED:
            self._relieve()
        if at >= self._block_start + self._pace.block_ns:
            self._vitals.read_memory(at, self.main)
            self._turn_block()
        if at >= min(self._second_start + SECOND_NS, self._due_ns()):
            self._second(now_ns())
        if self._calls is not None and self.armed and self._loop_started and self._calls.due(at):
            self._calls.count(self.main.ident, at, self._counted, self.sampler.wait)

    def _counted(self) -> Counter[int]:
        """Drain the logs; return all amounts that were counted so far, by code of the counter."""
        self._since_drain = self._since_drain + self._drain()
        return self._threads.counted.copy()

    def _due_ns(self) -> int:
        """Return when the requested recording time begins or ends, or the end of this second if neither is to come."""
        waits_for = self.options.for_s if self.armed else self.options.after_s
        if self._stopping or not waits_for:
            return self._second_start + SECOND_NS
        return self.start_ns + round(waits_for * SECOND_NS)

    def _drain(self) -> Counter[int]:
        """Drain the logs of all threads; return how often each span began."""
        self._drained_at = now_ns()
        began = self._threads.drain(max(self._block_start, self.start_ns))
        self._seen_events = self._seen_events or any(account.pending_events for account in self.accounts)
        self._windows.timed += began
        self._rates += began
        return began

    def _turn_block(self) -> None:
        at = now_ns()
        was_dark, began = self._governor.dark, self._drain()
        every = registry.known_spans()
        self._governor.close_block(at - self._block_start, began + self._since_drain, self._tally())
        self._since_drain = Counter()
        self._block_start = at
        changed = self._governor.open_block(every)
        quick = at - self.loop_start_ns < QUICK_NS
        if quick or any(account.pending_events > FOLD_AT for account in self.accounts):
            self._fold(at, was_dark)
        elif changed:
            # Fold at the end of the second: several folds in a row find their code and data in the caches.
            self._cuts.append((at, was_dark))
        if quick:
            # The first seconds of a loop show how frequent its spans are, so keep to the budget at once.
            self._learn(at)

    def _relieve(self) -> None:
        """Drain the logs early, to limit memory. If they fill too fast, time fewer spans from now on."""
        was_dark, last = self._governor.dark, self._drained_at
        self._since_drain = self._since_drain + self._drain()
        if self._drained_at - last < FLOOD_NS:
            self._governor.shed(self._since_drain)
            self._governor.open_block(registry.known_spans())
        self._fold(self._drained_at, was_dark)

    def _tally(self) -> Counter[int]:
        """Return the new calls that were counted but not timed."""
        counted = self._governor.counted(registry.known_spans())
        self._windows.counted += counted
        self._rates += counted
        return counted

    def _fold(self, at: int, dark: bool) -> None:
        """Fold up to a moment, stretch by stretch: at each cut spans were switched off or on."""
        self._take_samples()
        cuts, self._cuts = self._cuts, []
        for until, was_dark in (*cuts, (at, dark)):
            self._fold_stretch(until, was_dark)

    def _fold_stretch(self, at: int, dark: bool) -> None:
        every = registry.known_spans()
        if len(self._codes.env) != len(every) + 1:
            self._codes = codes_of(every)
        for account in self.accounts:
            if not (account.pending_events or account.sightings or account is self.main):
                continue
            events = account.take_pending(at)
            if not self._loop_started and self.armed:
                events = self._cut_at_first_step(account, events, dark)
            self._fold_account(account, events, at, dark)

    def _fold_account(self, account: Account, events: Ints, at: int, dark: bool) -> None:
        # In parts, because the memory that a fold needs grows with the number of events.
        while len(events) > 2 * FOLD_AT:
            part, events = events[:FOLD_AT], events[FOLD_AT:]
            self._fold_part(account, part, time_before(part, FOLD_AT) or account.folded_until, dark)
        self._fold_part(account, events, at, dark)

    def _fold_part(self, account: Account, events: Ints, at: int, dark: bool) -> None:
        done = account.fold(events, at, self._codes, dark)
        if self.armed and len(done.done_node) and self._writer.keeps_raw(self._windows.index, self.options):
            self._writer.keep_raw(account.index, done)
            if self._writer.raw_waiting > RAW_AT:
                self._write_names()
                self._writer.raw()

    def _cut_at_first_step(self, account: Account, events: Ints, dark: bool) -> Ints:
        """End a window where the first environment step begins: what comes before is start-up."""
        cut = first_step(events, registry.known_counters().get("env_steps", 0), self._codes)
        if cut is None:
            return events
        at = max(time_before(events, cut + 1), account.folded_until)
        self._loop_started, self.loop_start_ns = True, at
        self._fold_account(account, events[:cut], at, dark)
        self._end_window(at)
        return events[cut:]

    def _second(self, at: int, last: bool = False) -> None:
        self._since_drain = self._since_drain + self._drain()
        if last:
            self._tally()
        if last and not (self._seen_events or self._writer.files.created):
            return  # A child process that ended within a second and took no part in the training.
        self._fold(at, self._governor.dark)
        self._vitals.read_device()
        if at - self.loop_start_ns < EAGER_NS or at - self._learned_at >= TOTALS_EVERY_NS:
            self._learn(at)
        cpu = thread_cpu_ns() if threading.get_ident() == self._ident else self._background_ns
        if at - self.start_ns >= EAGER_NS:
            self._pace.adapt((cpu - self._background_ns) / max(at - self._second_start, 1))
            self.sampler.set_interval(self._pace.tick_ns)
        self._background_ns = cpu
        self._second_start = at
        if not self.armed:
            self._arm(at)
            return
        self._write(at, last)
        if self.options.for_s and at - self.start_ns >= self.options.for_s * SECOND_NS:
            registry.hush()
            self._ended_ns, self._stopping = now_ns(), True

    def _write(self, at: int, last: bool = False) -> None:
        """Write everything folded, up to a time."""
        self._write_names()
        if last or self._windows.over(at):
            self._end_window(at)
        else:
            self._windows.write(at, self._writer.tail, self.accounts, self._background_ns)
        if last or at >= self._totals_at:
            self._writer.totals(self.accounts, self._calls)
            self._totals_at = at + TOTALS_EVERY_NS
        self._write_state(at, "finished" if last else "running")

    def _learn(self, at: int) -> None:
        """Give the governor the call rates, mean durations and callers of spans."""
        # Spans are rare before the loop begins, so including that time would underestimate the rates.
        since = max(self._learned_at, self.loop_start_ns)
        if at - since < BLOCK_NS // 2:
            return
        rates = Counter({code: round(n * 1e9 / max(at - since, 1)) for code, n in self._rates.items()})
        pairs = {pair for each in self.accounts for pair in each.tree.pairs()}
        self._governor.learn(rates, mean_durations(self.accounts), pairs)
        self._rates = Counter()
        self._learned_at = at

    def _arm(self, at: int) -> None:
        """Discard what was recorded before the requested start. Once that is reached, keep everything from now on."""
        self._steps_seen += sum(each.counted(registry.known_counters().get("env_steps", 0)) for each in self.accounts)
        for account in self.accounts:
            account.reset()
        self._tally()
        # Events that were drained after this time are folded later, and count.
        self._windows.timed = sum((calls_begun(part)[0] for a in self.accounts for part in a.pending), Counter())
        self._windows.counted, self._threads.counter_events, self._vitals.tally_events = Counter(), 0, 0
        forget_within()
        self._writer.drop_raw()
        waited = at - self.start_ns >= self.options.after_s * SECOND_NS
        if waited and self._steps_seen >= self.options.after_steps:
            self.armed = True
            self._governor.begin()
            self._windows.restart(at, self._background_ns)
            self.start_ns = self.loop_start_ns = at

    def _end_window(self, at: int) -> None:
        self._write_names()
        self._windows.end(at, self._writer.append, self.accounts, self._background_ns)
        self._writer.raw()
        self._writer.drop_tails()

    def _write_names(self) -> None:
        self._writer.names(self.accounts, self.main, self._book.fresh)
        self._book.fresh = []

    def _write_state(self, at: int, state: str) -> None:
        events = {"counter_events": self._threads.counter_events, "tally_events": self._vitals.tally_events}
        costs = self._governor.costs() | events | {"background_cpu_ns": self._background_ns}
        begun = self.loop_start_ns if self._loop_started else None
        times = {"until_ns": at, "start_ns": self.start_ns, "loop_start_ns": begun}
        self._writer.state({"state": state} | times | costs | self._wrapper_ns)
