"""The collector that runs its environments in worker processes, and supervises them.

Workers write into their lanes of the shared replay, and may run a limited number of steps ahead of the learner. The
learner's process only reads heads and counters, publishes weights and limits, and replaces workers that were killed,
hang or failed. In lock-step no worker runs ahead: all stop after the same number of steps, so a run can be repeated.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import weakref
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hotloop.clock import now_ns
from hotloop.json_types import Json
from hotloop.spans import span
from hotloop.training.collect import control_block as control
from hotloop.training.collect.control_block import ControlBlock
from hotloop.training.collect.in_process import check_steps
from hotloop.training.collect.interface import (
    Collected,
    CollectError,
    Collector,
    Episode,
    Job,
    Restart,
    Spent,
    Weights,
    as_arrays,
)
from hotloop.training.collect.weights import Publisher
from hotloop.training.collect.worker_handle import NS, WorkerHandle
from hotloop.training.collect.worker_main import WorkerConfig
from hotloop.training.replay.frames import FrameReplay
from hotloop.training.replay.step_counter import StepCounter
from hotloop.training.state_checks import MOST, count_in, numbers_in, require_state

POLL_MS = 50
"""Interval at which the learner checks its workers while it waits."""
STOP_TIMEOUT_S = 5.0
"""Time for a worker to finish its step and close its environments before it is killed."""
MAX_FAILED_STARTS = 3
"""After a worker ended this often without a single step, the collector gives up."""


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """Number of workers, how far they run ahead, and timeouts."""

    count: int = 2
    ahead: int = 256
    """Steps that all workers together may make beyond those requested, while the learner learns."""
    lockstep: bool = False
    """All lanes make the same number of steps, and stop while the learner learns: same seed, same result."""
    restarts: int = 20
    """How often workers may be replaced in total."""
    hang_s: float = 10.0
    """A worker without a sign of life for this long is replaced."""
    start_s: float = 120.0
    """Time for a worker to start. The first start compiles kernels."""
    first: str = ""
    """Function that a worker calls before anything else, `module:name`."""

    def __post_init__(self) -> None:
        for name, least in (("count", 1), ("ahead", 0), ("restarts", 0)):
            if getattr(self, name) < least:
                raise CollectError(f"{name} is {getattr(self, name)}: give {least} or more")
        for name in ("hang_s", "start_s"):
            if not getattr(self, name) > 0:
                raise CollectError(f"{name} is {getattr(self, name)}: give seconds above 0")


class Workers(Collector):
    """Plays one environment per lane of a shared replay, with the lanes divided among worker processes.

    Workers start with the first `collect`, or with `start`. Use it in a `with` block, or call `close`. The replay is
    made with `storage="shared"`; nothing else may add steps to it.
    """

    def __init__(self, job: Job, replay: FrameReplay, weights: Weights, options: WorkerOptions | None = None) -> None:
        self._job, self._replay, self._options = job, replay, options or WorkerOptions()
        lanes, count = replay.ring.shape.lanes, self._options.count
        if count > lanes:
            raise CollectError(f"{count} workers cannot share {lanes} lanes: make the replay with num_envs={count}")
        self._firsts = [lanes * number // count for number in range(count + 1)]
        replay.handle()  # fails if the storage is not shared
        self._control = ControlBlock.make(count)
        self._publisher = Publisher(as_arrays(weights))
        self._counter = StepCounter(replay.ring)
        self._made = np.zeros(lanes, np.int64)
        """Steps in replay per lane, including those before a resume."""
        self._requested = self._life = self._restarted = 0
        self._reported = 0
        self._missing = np.zeros(count, np.int64)
        """Per worker, steps that it counted as stored but that are not in replay."""
        self._lost = self._reported_lost = self._lost_with_worker = 0
        self._spent = Spent()
        self._steps_at_start, self._failed_starts = [0] * count, [0] * count
        """Per worker, steps of its lanes when it was started, and how often it ended without making another."""
        self._workers: list[WorkerHandle] = []
        self._events: list[int] = []
        """Event descriptors: one that wakes the learner, then one per worker that signals new orders."""
        self._poll = select.poll()
        self._finalizer = weakref.finalize(self, _kill_all, os.getpid(), self._workers, self._events)
        self._episodes: list[Episode] = []
        self._restarts: list[Restart] = []
        self._overwritten = 0
        self._closed = False

    @property
    def processes(self) -> list[int]:
        """The workers' process ids."""
        return [each.process.pid for each in self._workers]

    def start(self) -> None:
        """Start the workers unless they run, without waiting for them."""
        if self._closed:
            raise CollectError("the collector was closed: make a new one")
        if self._workers:
            return
        self._events += [os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK) for _ in range(1 + self._options.count)]
        self._poll.register(self._events[0], select.POLLIN)
        for number in range(self._options.count):
            self._workers.append(self._start_worker(number, self._life))

    def get_ready(self) -> None:
        """Start the workers and wait until all are ready, so that later timings do not include it."""
        self.start()
        with span("collect.wait"):
            while not all(each.ready for each in self._workers):
                self._sleep()
                self.attend()

    def collect(self, steps: int) -> Collected:
        """Wait until replay holds `steps` more than all earlier calls requested."""
        begin = now_ns()
        self._requested += check_steps(steps)
        self.start()
        self._raise_limits()
        self._count_steps()
        if not self._enough():
            with span("collect.wait"):
                self._wait()
        self.attend()
        return self._report((now_ns() - begin) / NS)

    def publish(self, weights: Weights) -> int:
        """Publish new weights; each worker loads them after its current fragment."""
        if self._closed:
            raise CollectError("publish was called after close: make a new collector")
        with span("weights.publish"):
            return self._publisher.publish(as_arrays(weights))

    def sampled(self, index: np.ndarray) -> None:
        """Record which steps were sampled: `Batch.index`."""
        self._counter.mark_sampled(index)

    def attend(self) -> None:
        """Read messages, and replace workers that ended or hang. `collect` does this; call it during long pauses."""
        options = self._options
        readable = {descriptor for descriptor, _ in self._poll.poll(0)}
        for number, each in enumerate(self._workers):
            reason = each.ended()
            if reason is not None or each.connection.fileno() in readable:
                self._episodes += each.receive()
                reason = each.ended()  # its last message says more than its exit code
            timeout_s = options.hang_s if each.ready else options.start_s
            heartbeat = int(self._control.rows[number, control.HEARTBEAT])
            if reason is None and each.hang_detector.is_hung(heartbeat, round(timeout_s * NS), now_ns()):
                doing = "did not move" if each.ready else "was not ready"
                reason = f"it {doing} for {timeout_s:g} s"
            if reason is not None:
                self._replace(number, reason)

    def state(self) -> dict[str, Json]:
        """Return the state for a checkpoint, as JSON values."""
        self._count_steps()
        return {
            "asked": self._requested,
            "steps": self._made.tolist(),
            "life": self._life + self._restarted,
            "told": self._reported,
            "heads": self._counter.heads,
        }

    def restore(self, state: Mapping[str, Json]) -> None:
        """Continue from a checkpoint. Call it after restoring the replay and before the first `collect`."""
        if self._workers:
            raise CollectError("restore was called after workers were started: call it before collect and start")
        ring, lanes = self._replay.ring, len(self._made)
        steps = [int(each) for each in numbers_in(state, "steps", lanes, low=0, high=MOST // lanes)]
        made = sum(steps)
        # Workers may exceed the requested steps by `ahead`, and by one fragment per lane.
        ahead = self._options.ahead + lanes * max(1, ring.in_flight)
        requested = count_in(state, "asked", low=max(0, made - ahead), high=made)
        reported, life = count_in(state, "told", high=made), count_in(state, "life") + 1
        heads = [int(each) for each in numbers_in(state, "heads", lanes, low=0)]
        new = ring.heads - np.array(heads)
        require_state(bool((new >= 0).all() and (new <= ring.shape.length).all()), "the heads do not fit the replay")
        self._counter.reset(heads)
        self._requested, self._life, self._reported = requested, life, reported
        self._made[:] = steps
        self._count_steps()  # those stored after the collector's state was taken and before the replay's

    def close(self) -> None:
        """Stop all workers and release shared memory. A second call does nothing."""
        self._closed = True
        self._control.orders[control.STOP] = 1
        for event in self._events[1:]:
            os.eventfd_write(event, 1)
        for each in self._workers:
            each.receive()
            each.finish(STOP_TIMEOUT_S if each.ready else 0.0)
        self._finalizer()
        self._control.close()
        self._publisher.close()

    def _start_worker(self, number: int, life: int) -> WorkerHandle:
        first, last = self._firsts[number], self._firsts[number + 1]
        self._steps_at_start[number] = made = int(self._made[first:last].sum())
        self._control.rows[number, [control.STEPS, control.STORED]] = made
        self._control.rows[number, control.HEARTBEAT] = now_ns()
        config = WorkerConfig(
            number=number,
            life=life,
            job=self._job,
            replay=self._replay.handle(first, last - first),
            weights=self._publisher.handle(),
            control=self._control.handle(),
            lockstep=self._options.lockstep,
            go=self._events[1 + number],
            wake=self._events[0],
            path=tuple(sys.path),
            first=self._options.first,
        )
        worker = WorkerHandle(config)
        self._poll.register(worker.connection.fileno(), select.POLLIN)
        return worker

    def _replace(self, number: int, reason: str) -> None:
        old = self._workers[number]
        self._poll.unregister(old.connection.fileno())
        if self._control.rows[number, control.STEPS] > self._steps_at_start[number]:
            self._failed_starts[number] = 0
        elif old.process.poll() != -signal.SIGKILL:  # killed from outside: says nothing about the worker
            self._failed_starts[number] += 1
        old.kill()
        self._count_steps()
        self._count_lost_with(number)
        problem = None
        if old.usage_error and not old.ready:
            problem = reason
        elif self._failed_starts[number] >= MAX_FAILED_STARTS:
            problem = f"worker {number} ended {MAX_FAILED_STARTS} times before its first step: {reason}"
        elif self._restarted >= self._options.restarts:
            problem = f"worker {number}: {reason}; {self._restarted} workers were replaced already: "
            problem += "find out why they end, or allow more restarts (--restarts)"
        if problem is not None:
            self.close()
            raise CollectError(problem)
        self._restarted += 1
        self._restarts.append(Restart(number, reason))
        self._workers[number] = self._start_worker(number, self._life + self._restarted)

    def _count_steps(self) -> None:
        # Read before the heads: every step that counts as stored here is then visible to the counter.
        stored = self._control.rows[:, control.STORED].copy()
        new = self._counter.count()
        self._made += new.steps
        self._overwritten += new.overwritten
        self._missing = np.maximum(0, stored - np.add.reduceat(self._made, self._firsts[:-1]))

    def _count_lost_with(self, number: int) -> None:
        """Count the steps that an ended worker made but did not store, and those it stored but are not in replay."""
        made, stored = (int(self._control.rows[number, column]) for column in (control.STEPS, control.STORED))
        in_replay = int(self._made[self._firsts[number] : self._firsts[number + 1]].sum())
        self._lost_with_worker += max(0, made - max(stored, in_replay))
        self._lost += int(self._missing[number])
        self._missing[number] = 0

    def _raise_limits(self) -> None:
        """Allow workers to continue up to the requested steps, plus `ahead`."""
        lanes = len(self._made)
        rounds = -(-self._requested // lanes)
        self._control.limits[:] = rounds * np.diff(self._firsts)
        self._control.orders[control.LIMIT] = self._requested + self._options.ahead
        for event in self._events[1:]:
            os.eventfd_write(event, 1)

    def _enough(self) -> bool:
        if self._options.lockstep:
            return bool((self._control.rows[:, control.REACHED] == self._control.limits).all())
        return int(self._made.sum()) >= self._requested

    def _wait(self) -> None:
        self._control.orders[control.WAITING] = 1
        try:
            while True:
                self.attend()
                # Checked before counting: steps stored before a worker stopped are then included in the count.
                enough = self._enough()
                self._count_steps()
                if enough or (not self._options.lockstep and self._enough()):
                    return
                self._sleep()
        finally:
            self._control.orders[control.WAITING] = 0

    def _sleep(self) -> None:
        """Wait until a worker signals, or for `POLL_MS`."""
        self._poll.poll(POLL_MS)
        try:
            os.eventfd_read(self._events[0])
        except BlockingIOError:
            pass  # timed out

    def _report(self, seconds: float) -> Collected:
        self._count_steps()
        made, lost = int(self._made.sum()), self._lost + int(self._missing.sum())
        spent = self._control.spent()
        episodes = sorted(self._episodes, key=lambda each: each.lane) if self._options.lockstep else self._episodes
        collected = Collected(
            steps=made - self._reported,
            frames=(made - self._reported) * self._job.frames_per_step,
            episodes=tuple(episodes),
            seconds=seconds,
            spent=spent - self._spent,
            overwritten=self._overwritten,
            lost=lost - self._reported_lost,
            lost_with_worker=self._lost_with_worker,
            restarts=tuple(self._restarts),
            lag=self._publisher.version - int(self._control.rows[:, control.VERSION].min()),
        )
        self._reported, self._spent, self._overwritten = made, spent, 0
        self._reported_lost, self._lost_with_worker = lost, 0
        self._episodes, self._restarts = [], []
        return collected


def _kill_all(owner: int, workers: list[WorkerHandle], events: list[int]) -> None:
    """Finalizer: kill remaining workers, unless this is a forked copy of the process that owns them."""
    while workers and os.getpid() == owner:
        workers.pop().kill()
    while events:
        os.close(events.pop())
