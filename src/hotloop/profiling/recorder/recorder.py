"""The recorder of one process: takes its events and stack samples, folds them into call trees, and writes.

It usually runs in a process of its own (`companion`). Every block (200 ms) it may switch fine spans off or on, to
learn what they cost. Every second it folds what was taken and writes it to the run's files, so that a killed run is
readable up to its last second. If anything in here fails, recording stops with one message and training continues.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from pathlib import Path

from hotloop.clock import now_ns
from hotloop.notice import notice
from hotloop.profiling.recorder.call_counts import CallCounts
from hotloop.profiling.recorder.call_tree.fold import Ints, first_step, time_before
from hotloop.profiling.recorder.call_tree.thread_totals import Account, calls_begun, mean_durations
from hotloop.profiling.recorder.call_tree.threads import Threads
from hotloop.profiling.recorder.call_tree.tree import codes_of
from hotloop.profiling.recorder.feed import Feed
from hotloop.profiling.recorder.messages import Message
from hotloop.profiling.recorder.observed import Observed
from hotloop.profiling.recorder.overhead import BLOCK_NS, Governor, Looks, Pace
from hotloop.profiling.recorder.process_facts import HookTotals, ProcessFacts
from hotloop.profiling.recorder.record_options import RecordOptions
from hotloop.profiling.recorder.stack_book import StackBook
from hotloop.profiling.recorder.windows import Windows
from hotloop.profiling.recorder.writer import Writer
from hotloop.profiling.trace.stream_store import ProcessFiles

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
"""If this many events come at once, and again within this time, time fewer spans."""
UNKNOWN_TIGHT_NS = 100.0
"""Cost of a span in a tight loop, until the process has measured it."""


class Recorder:
    """Records a process into its folder.

    Args:
        folder: Of the process, in the run directory.
        options: What to record, and at what cost.
        feed: The process.
        process: The content of `process.json`.
        main: Whether it is the main process of the run.
    """

    def __init__(self, folder: Path, options: RecordOptions, feed: Feed, process: Message, main: bool = True) -> None:
        self.options = options
        self.feed = feed
        self._writer = Writer(ProcessFiles(folder, process))
        if main:
            self._writer.files.create()
        self._threads = Threads()
        self.accounts = self._threads.accounts
        self.failure, self.ended = "", False
        """Why the recorder failed, "" if it did not; whether that or the requested time ended it."""
        self.paused_ns = 0  # since when nothing is recorded
        self.facts = ProcessFacts(str(process.get("name", "MainProcess")))
        self._book, self._governor = StackBook(), Governor(options.budget, UNKNOWN_TIGHT_NS)
        self._looks = Looks(options.budget)
        self._calls = CallCounts(options.budget, self._book.is_own) if main and options.hz else None
        self._observed = Observed() if main and options.hz else None
        self._codes = codes_of([])

    def start(self, begin: int) -> None:
        """Start to record, from this time on."""
        self.start_ns = self.loop_start_ns = begin
        self._loop_started = self._seen_events = False
        self.armed = not self.options.starts_late
        """Whether `after_s` and `after_steps` have passed. Before that, everything recorded is discarded."""
        self._steps_seen = 0
        self._block_start = self._second_start = begin
        self._learned_at = self._drained_at = begin
        self._totals_at = self._ended_ns = 0
        self._pace = Pace(round(SECOND_NS / self.options.hz) if self.options.hz else 0, self.options.budget / 2)
        self._spent_ns = 0
        self._rates, self._since_drain = Counter[int](), Counter[int]()
        self._cuts: list[tuple[int, bool]] = []
        self._windows = Windows(begin, round(self.options.window_s * SECOND_NS), self.feed)
        self.feed.stats.memory_growth()
        self._hooked = HookTotals(self.feed)
        self._relieved_at = 0
        self._last_sign_ns = begin
        """When the process was last seen, at a stack sample."""
        self.main = self._threads.open(self.feed.main_ident, begin)
        self._read_messages()

    def stop(self, stopped_at: int) -> None:
        """Write the rest, up to the time at which the training stopped; 0 if the process was killed."""
        self.feed.stats.close()
        try:
            self._take_new()
            if self.failure:
                return
            at = self._ended_ns or stopped_at or self._last_sign_ns
            self._second(max(at, self.main.folded_until), last=True)
            self._writer.close(self._book.own_files())
        except Exception as error:
            self._fail(error)

    def flush(self) -> None:
        """Write everything recorded so far."""
        try:
            if self.armed and not self.ended and not self.paused_ns:
                self._take_new()
                self._fold(self._drained_at, self._governor.dark)
                self._write(self._drained_at)
        except Exception as error:
            self._fail(error)

    def rest(self, ns: int) -> None:
        """Exclude a time that has just passed from the schedule; for benchmarks that stop the process."""
        for mark in ("_block_start", "_second_start", "_learned_at", "_drained_at"):
            setattr(self, mark, getattr(self, mark) + ns)

    @property
    def due_ns(self) -> int:
        """When `tick` is to be called next."""
        return min(self._block_start + self._pace.block_ns, self._second_ends())

    def tick(self, spent_ns: int) -> None:
        """Do what is due. `spent_ns` is the CPU time that this recorder has used so far."""
        if self.ended:
            return
        try:
            self._take_new()
            if not self.paused_ns:
                self._tick(self._drained_at, spent_ns)
        except Exception as error:
            self._fail(error)

    def _resume(self, since: int, now: int) -> None:
        """End a pause, as if no time had passed: a window ends where it began, and the next begins now."""
        for account in self.accounts:
            account.end_by(since, now)
        self._fold(since, self._governor.dark)
        self._end_window(since)
        for account in self.accounts:
            account.skip(since, now)
        self._block_start = self._second_start = self._learned_at = now
        self._since_drain, self._rates = Counter(), Counter()
        self._windows.restart(now, self._spent_ns)
        self.paused_ns = 0

    def _read_messages(self) -> None:
        for each in self.feed.messages():
            self.facts.add(each)
            match each["is"]:
                case "tight":
                    self._governor.use_tight(each["ns"])
                case "printed" | "layer":
                    self._writer.printed_timings.receive(each)
                case "calls" if self._calls is not None:
                    self._calls.add(each, self.facts.counters)
                case "place" | "followed" if self._observed is not None:
                    self._observed.add(each, self.facts.counters)
                case "pause":
                    self.paused_ns = each["at"]
                case "resume":
                    self._take_events()
                    self._resume(self.paused_ns, each["at"])

    def _take_new(self) -> None:
        """Take what the process has written: events before messages, which give them their names."""
        self._take_events()
        self._read_messages()

    def _take_samples(self) -> None:
        """Hand what was sampled to the threads' accounts."""
        taken = self.feed.samples()
        samples = self._book.samples_of(taken)
        if len(samples):
            self._last_sign_ns = int(samples[-1, 0])
        self._threads.take_samples(samples)
        for at, code, amount in taken.changes.tolist():
            self._threads.tally_events += amount
            self.main.bumps.append((at, code, amount, 0))

    def _fail(self, error: Exception) -> None:
        self.failure = f"{type(error).__name__}: {error}"
        self.ended = True
        self.feed.end()
        self.feed.stats.close()
        with suppress(OSError, ValueError):  # Closing may fail for the same reason; an unfinished stream can be read.
            self._writer.files.close()
        remedy = "Training continues without recording."
        if isinstance(error, OSError):
            remedy = f"Check the free space and permissions of {str(self._writer.files.folder)!r}. {remedy}"
        notice(f"stopped recording: {self.failure}. {remedy}")

    def _tick(self, at: int, spent_ns: int) -> None:
        if sum(account.pending_events for account in self.accounts) > CROWDED:
            self._relieve(at)
        if at >= self._block_start + self._pace.block_ns:
            self.main.rises.append((at, *self.feed.stats.memory_growth()))
            self._turn_block(at)
        if at >= self._second_ends():
            self._adapt(at, spent_ns)
            self._second(at)
        if self._calls is not None and self.armed and self._calls.due(at, self._loop_started):
            self.feed.open_window()

    def _second_ends(self) -> int:
        """Return when what is done each second is due: also when the requested time begins or ends."""
        limit = self.start_ns + self.options.limit_s(self.armed) * SECOND_NS
        return round(min(self._second_start + SECOND_NS, limit))

    def _take_events(self) -> None:
        drained_at = now_ns()
        began = self._threads.add_events(self.feed.events(), max(self._block_start, self.start_ns))
        self._drained_at = drained_at
        self._seen_events = self._seen_events or any(account.pending_events for account in self.accounts)
        for each in (self._windows.timed, self._rates, self._since_drain):
            each.update(began)

    def _turn_block(self, at: int) -> None:
        was_dark, block_ns = self._governor.dark, at - self._block_start
        self._governor.close_block(block_ns, self._since_drain, self._tally())
        self._since_drain = Counter()
        self._block_start = at
        changed = self._governor.open_block(self.facts.spans)
        if changed:
            self.feed.count_only(self._governor.off)
        if self._loop_started:
            self._looks.turn(sum(self.feed.looked()), block_ns)
            self.feed.look(self._looks.on)
        quick = at - self.loop_start_ns < QUICK_NS
        if quick or any(account.pending_events > FOLD_AT for account in self.accounts):
            self._fold(at, was_dark)
        elif changed:
            # Fold at the end of the second: several folds in a row find their code and data in the caches.
            self._cuts.append((at, was_dark))
        if quick:
            # The first seconds of a loop show how frequent its spans are, so keep to the budget at once.
            self._learn(at)

    def _relieve(self, at: int) -> None:
        """Fold early, to limit memory. If events come too fast, time fewer spans from now on."""
        if at - self._relieved_at < FLOOD_NS:
            self._governor.shed(self._since_drain)
            self._governor.open_block(self.facts.spans)
            self.feed.count_only(self._governor.off)
        self._relieved_at = at
        self._fold(self._drained_at, self._governor.dark)

    def _tally(self) -> Counter[int]:
        """Return the new calls that were counted but not timed."""
        counted = self._governor.counted(self.feed.counted())
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
        if len(self._codes.env) != len(self.facts.spans) + 1:
            self._codes = codes_of(self.facts.spans)
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
        cut = first_step(events, self.facts.counters.get("env_steps", 0), self._codes)
        if cut is None:
            return events
        at = max(time_before(events, cut + 1), account.folded_until)
        self._loop_started, self.loop_start_ns = True, at
        self._fold_account(account, events[:cut], at, dark)
        self._end_window(at)
        return events[cut:]

    def _second(self, at: int, last: bool = False) -> None:
        if last:
            self._tally()
        if last and not (self._seen_events or self._writer.files.created):
            return  # A child process that ended within a second and took no part in the training.
        self._fold(at, self._governor.dark)
        if at - self.loop_start_ns < EAGER_NS or at - self._learned_at >= TOTALS_EVERY_NS:
            self._learn(at)
        self._second_start = at
        if not self.armed:
            self._arm(at)
            return
        self._write(at, last)
        if at - self.start_ns >= self.options.limit_s(started=True) * SECOND_NS:
            self.feed.end()
            self._ended_ns, self.ended = at, True

    def _adapt(self, at: int, spent_ns: int) -> None:
        if at - self.start_ns >= EAGER_NS:
            self._pace.adapt((spent_ns - self._spent_ns) / max(at - self._second_start, 1))
            self.feed.set_interval(self._pace.tick_ns)
        self._spent_ns = spent_ns
        self.feed.count_only(self._governor.off)  # Lets the process look after its device.

    def _write(self, at: int, last: bool = False) -> None:
        """Write everything folded, up to a time."""
        self._write_names()
        if last or self._windows.over(at):
            self._end_window(at)
        else:
            self._windows.write(at, self._writer.tail, self.accounts, self._spent_ns)
        if last or at >= self._totals_at:
            self._writer.totals(self.accounts, self._calls, self._observed)
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
        self._steps_seen += sum(each.counted(self.facts.counters.get("env_steps", 0)) for each in self.accounts)
        for account in self.accounts:
            account.reset()
        self._tally()
        # Events that were drained after this time are folded later, and count.
        self._windows.timed = sum((calls_begun(part)[0] for a in self.accounts for part in a.pending), Counter())
        self._windows.counted, self._threads.counter_events, self._threads.tally_events = Counter(), 0, 0
        self._hooked = HookTotals(self.feed)
        self._writer.drop_raw()
        waited = at - self.start_ns >= self.options.after_s * SECOND_NS
        if waited and self._steps_seen >= self.options.after_steps:
            self.armed = True
            self._governor.begin()
            self._windows.restart(at, self._spent_ns)
            self.start_ns = self.loop_start_ns = at

    def _end_window(self, at: int) -> None:
        self._write_names()
        self._windows.end(at, self._writer.append, self.accounts, self._spent_ns)
        self._writer.raw()
        self._writer.drop_tails()

    def _write_names(self) -> None:
        self._writer.names(self.accounts, self.main, self.facts.spans, self.facts.counters, self._book.fresh)
        self._book.fresh = []

    def _write_state(self, at: int, state: str) -> None:
        content: Message = {
            "state": state,
            "pid": self.feed.stats.pid,
            "process": self.facts.name,
            "until_ns": at,
            "start_ns": self.start_ns,
            "loop_start_ns": self.loop_start_ns if self._loop_started else None,
            "counter_events": self._threads.counter_events,
            "tally_events": self._threads.tally_events,
            "background_cpu_ns": self._spent_ns,
            "sampler_cpu_ns": self.feed.sampler_ns(),
            "own_process": self.feed.is_elsewhere,
            "cores": os.cpu_count() or 1,
        }
        self._writer.state(content | self._hooked.content() | self._governor.costs() | self.facts.wrapper_ns)
