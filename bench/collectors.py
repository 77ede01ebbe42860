"""Two collectors that write into their lanes of a shared replay, compared with two that feed queues.

Every variant has two processes with one NES emulator each, pressing random buttons, one replay of frames, and one light
learner, which samples batches as fast as it can and takes in new steps every ten milliseconds. The variants differ in
how steps get from the collectors to the learner: written in place; through one shared `multiprocessing.Queue`; or
through a queue each and a thread that merges them. They run in turn, in short blocks, while the others are stopped.
"""

from __future__ import annotations

import multiprocessing
import queue
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from hop import CAPACITY, COLLECTORS, SIDE, STACK, measure_hop, measure_room
from measure import Row, Times, against_limit, estimate, exactly, main, ratio_of, say

from hotloop.clock import now_ns
from hotloop.profiling.recorder.device import device_memory
from hotloop.training.collect import Job, Recipe, WorkerOptions, Workers
from hotloop.training.collect.control_block import LIMIT, STEPS
from hotloop.training.envs.nes import MarioEnv
from hotloop.training.replay import FrameReplay, FrameWriter
from hotloop.training.replay.step_counter import StepCounter
from hotloop.training.shared_memory import Field, allocate, attach

BUTTONS = 7
BATCH = 64
EPOCH = 16
"""Episodes in an epoch of the study."""
TAKE_IN_NS = 10_000_000
WAITING = 1_000
"""Steps that a queue holds before its collectors wait."""
FOR_EVER = 1 << 60
GO, STOP = 0, 1
MADE, PUT_NS, BUSY_NS, STILL = range(4)
OURS, SHARED, EACH = "written in place", "one shared queue", "a queue each, and a thread"
MOST_WAIT = 1.0
GPU = "cuda" if torch.cuda.is_available() else None
"""Device for batches, to measure its utilisation as well."""


class AnyButton:
    """Presses buttons at random."""

    def load(self, weights: object, version: int) -> None:
        pass

    def act(self, seen: np.ndarray, steps: int, rng: np.random.Generator) -> np.ndarray:
        return rng.integers(0, BUTTONS, len(seen))


@dataclass(frozen=True, slots=True)
class Block:
    """Results of one block of one variant."""

    seconds: float
    steps: int
    episodes: int
    batches: int
    transport: float
    """Share of the collectors' time, in per cent."""
    taking_in: float
    """Share of the learner's time, in per cent."""
    overwritten: int
    gpu: int
    """Utilisation at the end, in per cent; -1 if there is no device or it is unknown."""


class Variant(Protocol):
    """Two collectors and their transport to a replay."""

    replay: FrameReplay

    def resume(self) -> None:
        """Resume the collectors."""
        ...

    def pause(self) -> None:
        """Stop them, with all their steps in the replay."""
        ...

    def take_in(self) -> None:
        """Take new steps into the replay."""
        ...

    def made(self) -> tuple[int, float, float]:
        """Return the collectors' steps and seconds: in transport, and in total."""
        ...


def make_replay(storage: Any) -> FrameReplay:
    """Create a replay and touch all its memory: otherwise the first writer would pay for the page faults."""
    replay = FrameReplay(CAPACITY, COLLECTORS, (SIDE, SIDE), STACK, storage=storage)
    replay.ring.block.arrays["frames"].fill(0)
    return replay


class InPlace:
    """Ours."""

    def __init__(self, stack: ExitStack) -> None:
        self.replay = make_replay("shared")
        stack.callback(self.replay.close)
        job = Job(Recipe("hotloop.training.envs.nes:MarioEnv"), Recipe("collectors:AnyButton"), frames_per_step=4)
        options = WorkerOptions(COLLECTORS, ahead=FOR_EVER, hang_s=1e6)
        self._workers = stack.enter_context(Workers(job, self.replay, {"w": np.zeros(1)}, options))
        self._workers.start()

    def resume(self) -> None:
        self._workers._raise_limits()

    def pause(self) -> None:
        self._workers._control.orders[LIMIT] = 0
        time.sleep(0.3)  # a fragment, and its unpublished part
        self._workers.attend()
        self._workers._count_steps()

    def take_in(self) -> None:
        self._workers.collect(1)

    def made(self) -> tuple[int, float, float]:
        spent = self._workers._control.spent()
        return int(self._workers._control.rows[:, STEPS].sum()), spent.transport_s, spent.busy_s

    def lost(self) -> int:
        """Number of steps that never reached the replay. Call only while all are stopped."""
        return self.made()[0] - int(self._workers._made.sum())


def feed(path: Any, number: int, steps: Any) -> None:
    """Main function of a collector that puts its steps into a queue."""
    rows, orders = attach(path, COUNTERS).arrays["rows"], attach(path, COUNTERS).arrays["orders"]
    row, env, policy, rng = rows[number], MarioEnv(), AnyButton(), np.random.default_rng(number)
    frame, _ = env.reset(seed=number)
    while not orders[STOP]:
        if not orders[GO]:
            row[STILL] = 1
            time.sleep(0.002)
            continue
        row[STILL] = 0
        begin = now_ns()
        action = policy.act(frame[None, None], 0, rng)[0]
        after, reward, terminated, truncated, _ = env.step(action)
        played = now_ns()
        steps.put((number, frame, action, reward, terminated, truncated, after))
        put = now_ns()
        frame = env.reset()[0] if terminated or truncated else after
        row[MADE] += 1
        row[PUT_NS] += put - played
        row[BUSY_NS] += now_ns() - begin
    steps.cancel_join_thread()


COUNTERS = (
    Field("rows", (COLLECTORS, 8), np.dtype(np.int64)),
    Field("orders", (8,), np.dtype(np.int64)),
)


class Queues:
    """One shared queue, or one for each and a thread that merges them, as in the study."""

    def __init__(self, stack: ExitStack, each: bool) -> None:
        self.replay = make_replay("memory")
        self._writers = [FrameWriter(self.replay.ring, lane, 1) for lane in range(COLLECTORS)]
        counters = allocate(COUNTERS, "shared")
        stack.callback(counters.close)
        self._rows, self._orders = counters.arrays["rows"], counters.arrays["orders"]
        spawn = multiprocessing.get_context("spawn")
        self._queues: list[Any] = [spawn.Queue(WAITING) for _ in range(COLLECTORS if each else 1)]
        self._together: deque[Any] = deque()
        self._thread = threading.Thread(target=self._bring_together, daemon=True) if each else None
        self._processes = [
            spawn.Process(target=feed, args=(counters.path, n, self._queues[n if each else 0]), daemon=True)
            for n in range(COLLECTORS)
        ]
        for process in self._processes:
            process.start()
        if self._thread is not None:
            self._thread.start()
        stack.callback(self._end)

    def _end(self) -> None:
        self._orders[STOP] = 1
        for process in self._processes:
            process.join(2)
            process.kill()
            process.join()
        if self._thread is not None:
            self._thread.join()

    def _bring_together(self) -> None:
        while not self._orders[STOP]:
            found = False
            for each in self._queues:
                try:
                    self._together.append(each.get_nowait())
                    found = True
                except queue.Empty:
                    continue
            if not found:
                time.sleep(0.02 if not self._orders[GO] else 0.0005)

    def resume(self) -> None:
        self._orders[GO] = 1

    def pause(self) -> None:
        self._orders[GO] = 0
        while not self._rows[:, STILL].all() or self._rows[:, MADE].sum() > self._taken:
            self.take_in()
            time.sleep(0.005)

    def take_in(self) -> None:
        for lane, frame, action, reward, terminated, truncated, after in self._arrived():
            ends = np.array([terminated]), np.array([truncated])
            self._writers[lane].add(frame[None], np.array([action]), np.array([reward]), *ends, after[None])
            self._taken += 1

    _taken = 0

    def _arrived(self) -> Iterator[Any]:
        if self._thread is not None:
            while self._together:
                yield self._together.popleft()
            return
        while True:
            try:
                yield self._queues[0].get_nowait()
            except queue.Empty:
                return

    def made(self) -> tuple[int, float, float]:
        return tuple(self._rows[:, :3].sum(0) * np.array([1, 1e-9, 1e-9]))


def learn(variant: Variant, counter: StepCounter, rng: np.random.Generator, seconds: float) -> Block:
    """Run a variant for a while, with a learner that does almost nothing with its samples."""
    heads = variant.replay.ring.heads
    variant.resume()
    learn_for(variant, counter, rng, seconds / 10)
    counter.count()
    slots, before = int(heads.sum()), variant.made()
    begin, (batches, taking_ns) = now_ns(), learn_for(variant, counter, rng, seconds)
    elapsed, gpu = (now_ns() - begin) / 1e9, device_memory()[1]
    slots, after = int(heads.sum()) - slots, variant.made()
    arrived = counter.count()
    variant.pause()
    counter.count()
    steps = int(arrived.steps.sum())
    return Block(
        seconds=elapsed,
        steps=steps,
        episodes=slots - steps,
        batches=batches,
        transport=100 * (after[1] - before[1]) / (after[2] - before[2]),
        taking_in=100 * taking_ns / 1e9 / elapsed,
        overwritten=arrived.overwritten,
        gpu=gpu,
    )


def learn_for(variant: Variant, counter: StepCounter, rng: np.random.Generator, seconds: float) -> tuple[int, int]:
    """Sample until the time is over; return the number of batches and the time spent taking in steps."""
    end, next_ns, batches, taking_ns = now_ns() + round(seconds * 1e9), 0, 0, 0
    while (begin := now_ns()) < end:
        if begin >= next_ns:
            variant.take_in()
            taking_ns += now_ns() - begin
            next_ns = begin + TAKE_IN_NS
        if len(variant.replay) < 4 * BATCH:
            time.sleep(0.005)
            continue
        batch = variant.replay.sample(BATCH, rng)
        counter.mark_sampled(batch.index)
        if GPU is None:
            batch.obs[:, -1].mean()
        else:
            torch.from_numpy(batch.obs).to(GPU).float().mean().item()
        batches += 1
    return batches, taking_ns


@contextmanager
def all_variants(steps: int) -> Iterator[dict[str, Variant]]:
    """Start everything, and wait until every collector has made the first steps."""
    with ExitStack() as stack:
        made: dict[str, Variant] = {OURS: InPlace(stack), SHARED: Queues(stack, False), EACH: Queues(stack, True)}
        for name, variant in made.items():
            say(f"collectors: starting those of: {name}")
            variant.resume()
            while (variant.replay.ring.heads < steps).any():
                variant.take_in()
                time.sleep(0.05)
            variant.pause()
        yield made


def measure(rounds: int, seconds: float, first: int) -> tuple[dict[str, list[Block]], int]:
    """Run the variants in turn, after `first` steps each; return their blocks and the number of steps ours lost."""
    shuffle, rng = random.Random(1).shuffle, np.random.default_rng(1)
    with all_variants(first) as variants:
        counters = {name: StepCounter(each.replay.ring) for name, each in variants.items()}
        blocks: dict[str, list[Block]] = {name: [] for name in variants}
        order = list(variants)
        for number in range(rounds):
            say(f"collectors: round {number + 1} of {rounds}")
            shuffle(order)
            for name in order:
                blocks[name].append(learn(variants[name], counters[name], rng, seconds))
        ours = variants[OURS]
        assert isinstance(ours, InPlace)
        return blocks, ours.lost()


def column(blocks: list[Block], figure: Callable[[Block], float]) -> Times:
    """A metric of each block."""
    return np.array([figure(each) for each in blocks])


def compare(blocks: dict[str, list[Block]], name: str, unit: str, figure: Callable[[Block], float]) -> list[Row]:
    """Compare a metric of ours, lower is better, with the others."""
    ours, rows = column(blocks[OURS], figure), []
    for peer in (SHARED, EACH):
        theirs = column(blocks[peer], figure)
        found = estimate(ratio_of, theirs, ours)
        medians = float(np.median(ours)), float(np.median(theirs))
        rows.append(Row(name, *medians, peer, unit, found.value, found.low, found.high))
    return rows


def run(quick: bool) -> list[Row]:
    """Measure everything this bench shows."""
    hop = measure_hop(10 if quick else 300)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # of the learner, besides two collectors
    try:
        blocks, lost = measure(2, 1.0, first=200) if quick else measure(12, 5.0, first=CAPACITY // COLLECTORS)
    finally:
        torch.set_num_threads(threads)
    for name, found in blocks.items():
        rates = ", ".join(
            f"{np.median(column(found, figure)):,.0f} {what}"
            for what, figure in {
                "steps/s": lambda each: each.steps / each.seconds,
                "batches/s": lambda each: each.batches / each.seconds,
            }.items()
        )
        busy = float(np.median(column(found, lambda each: each.gpu)))
        say(f"collectors: {name}: {rates}, GPU {f'{busy:.0f} %' if busy >= 0 else '-'}")
    waits = column(blocks[OURS], lambda each: each.transport)
    return [
        *compare(blocks, "experience, a step", "µs", lambda each: 1e6 * each.seconds / max(1, each.steps)),
        *compare(blocks, f"a batch of {BATCH}", "µs", lambda each: 1e6 * each.seconds / max(1, each.batches)),
        *compare(blocks, f"epoch of {EPOCH} episodes", "s", lambda each: EPOCH * each.seconds / max(1, each.episodes)),
        against_limit(
            "collectors' time in transport",
            estimate(lambda each: float(np.median(each)), waits), MOST_WAIT, "%",
        ),
        *compare(blocks, "collectors' time in transport", "%", lambda each: max(each.transport, 1e-6)),
        *compare(blocks, "learner's time in transport", "%", lambda each: max(each.taking_in, 1e-6)),
        against_limit("steps lost (fewer than)", exactly(lost), 1.0, "steps"),
        *compare(
            blocks, "steps overwritten before they were sampled", "%",
            lambda each: max(1e-6, 100 * each.overwritten / max(1, each.steps)),
        ),
        hop,
        measure_room(),
    ]  # fmt: skip


if __name__ == "__main__":
    main(run, __doc__)
