"""The collector whose environments run in processes of their own, and the one who looks after these.

Workers write into their stripes of the shared replay and run ahead of the learner as far as they may. The learner's
process only reads heads and counts, hands out weights and limits, and replaces a worker that was killed, hangs or
failed. In lock-step nobody runs ahead: all stop after the same number of steps, and a run can be repeated.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import numpy as np

from hotloop.clock import now_ns
from hotloop.spans import span
from hotloop.training.collect import control_block as on
from hotloop.training.collect.control_block import Board
from hotloop.training.collect.in_process import check_steps
from hotloop.training.collect.interface import Collected, CollectError, Episode, Job, Restart, Spent, Weights, as_arrays
from hotloop.training.collect.weights import Publisher
from hotloop.training.collect.worker_handle import NS, Hired
from hotloop.training.collect.worker_main import Part
from hotloop.training.replay.frames import FrameReplay
from hotloop.training.replay.step_counter import StepCounter
from hotloop.training.state_checks import MOST, count_in, numbers_in, require_state

LOOK_MS = 50
"""While the learner waits, it looks after its workers so often."""
END_S = 5.0
"""A worker that is told to stop has so long to finish its step and close its environment."""
FRUITLESS = 3
"""Times that a worker may end without a single step before that is taken for certain."""


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """How many workers, how far ahead, and how patient one is with them."""

    count: int = 2
    ahead: int = 256
    """Steps that all of them together may make beyond what was asked for: what they do while the learner learns."""
    lockstep: bool = False
    """All lanes make the same number of steps, and stop while the learner learns: same seed, same result."""
    restarts: int = 20
    """How many workers may be replaced in all."""
    hang_s: float = 10.0
    """A worker that does not move for so long is replaced."""
    start_s: float = 120.0
    """So long it may take to start; the first time, kernels compile."""
    first: str = ""
    """What a worker calls before anything else: `module:name`."""

    def __post_init__(self) -> None:
        for name, least in (("count", 1), ("ahead", 0), ("restarts", 0)):
            if getattr(self, name) < least:
                raise CollectError(f"{name} is {getattr(self, name)}: give {least} or more")
        for name in ("hang_s", "start_s"):
            if not getattr(self, name) > 0:
                raise CollectError(f"{name} is {getattr(self, name)}: give seconds above 0")


class Workers:
    """Plays one environment for each lane of a shared replay, the lanes divided among processes.

    Workers start with the first `collect`, or with `start`. Use it in a `with` block, or call `close`.

    Args:
        job: What is played, by whom.
        replay: Where steps go, made with `storage="shared"`; nobody else may add to it.
        weights: The first ones of the policy.
        options: How many workers, and how they are handled.
    """

    def __init__(self, job: Job, replay: FrameReplay, weights: Weights, options: WorkerOptions | None = None) -> None:
        self._job, self._replay, self._options = job, replay, options or WorkerOptions()
        lanes, count = replay.ring.shape.lanes, self._options.count
        if count > lanes:
            raise CollectError(f"{count} workers cannot share {lanes} lanes: make the replay with num_envs={count}")
        self._firsts = [lanes * number // count for number in range(count + 1)]
        replay.handle()  # refuses memory that other processes do not see
        self._board = Board.make(count)
        self._publisher = Publisher(as_arrays(weights))
        self._counter = StepCounter(replay.ring)
        self._made = np.zeros(lanes, np.int64)
        """Steps in replay, by lane; those of a resumed run too."""
        self._asked = self._life = self._restarted = 0
        self._told = 0
        self._missing = np.zeros(count, np.int64)
        """By worker, steps that it has stored and that are not in replay."""
        self._lost = self._told_lost = self._gone = 0
        self._spent = Spent()
        self._begun_with, self._fruitless = [0] * count, [0] * count
        """Steps that a worker's lanes had when it was started, and how often it ended with no more."""
        self._hired: list[Hired] = []
        self._events: list[int] = []
        """Descriptors: what wakes the learner, then what tells each worker of new orders."""
        self._poll = select.poll()
        self._finalizer = weakref.finalize(self, _end_all, os.getpid(), self._hired, self._events)
        self._episodes: list[Episode] = []
        self._restarts: list[Restart] = []
        self._overwritten = 0
        self._closed = False

    @property
    def processes(self) -> list[int]:
        """The workers' process ids."""
        return [each.process.pid for each in self._hired]

    def start(self) -> None:
        """Start the workers, if they are not: they get ready while something else is done."""
        if self._closed:
            raise CollectError("the collector was closed: make a new one")
        if self._hired:
            return
        self._events += [os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK) for _ in range(1 + self._options.count)]
        self._poll.register(self._events[0], select.POLLIN)
        for number in range(self._options.count):
            self._hired.append(self._hire(number, self._life))

    def get_ready(self) -> None:
        """Start the workers and wait until all can play, so that nothing that is timed later is their beginning."""
        self.start()
        with span("collect.wait"):
            while not all(each.ready for each in self._hired):
                self._sleep()
                self.attend()

    def collect(self, steps: int) -> Collected:
        """Wait until so many more steps are in replay than all calls before have asked for."""
        begin = now_ns()
        self._asked += check_steps(steps)
        self.start()
        self._grant()
        self._look()
        if not self._enough():
            with span("collect.wait"):
                self._wait()
        self.attend()
        return self._tell((now_ns() - begin) / NS)

    def publish(self, weights: Weights) -> int:
        """Hand out new weights; each worker takes them over after its fragment."""
        if self._closed:
            raise CollectError("publish was called after close: make a new collector")
        with span("weights.publish"):
            return self._publisher.publish(as_arrays(weights))

    def sampled(self, index: np.ndarray) -> None:
        """Take note of what was sampled: `Batch.index`."""
        self._counter.mark_sampled(index)

    def attend(self) -> None:
        """Hear the workers and replace those that have ended or hang. `collect` does it; call it in long pauses."""
        options = self._options
        speaking = {descriptor for descriptor, _ in self._poll.poll(0)}
        for number, each in enumerate(self._hired):
            reason = each.ended()
            if reason is not None or each.line.fileno() in speaking:
                self._episodes += [Episode(**told) for told in each.hear()]
                reason = each.ended()  # its last words say more than its exit code
            patience = options.hang_s if each.ready else options.start_s
            beat = int(self._board.rows[number, on.BEAT])
            if reason is None and each.pulse.lost(beat, round(patience * NS), now_ns()):
                doing = "did not move" if each.ready else "was not ready"
                reason = f"it {doing} for {patience:g} s"
            if reason is not None:
                self._replace(number, reason)

    def state(self) -> dict[str, Any]:
        """Return what JSON can hold and a checkpoint needs."""
        self._look()
        return {
            "asked": self._asked, "steps": self._made.tolist(), "life": self._life + self._restarted,
            "told": self._told, "heads": self._counter.heads,
        }  # fmt: skip

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint, after the replay was restored and before the first `collect`."""
        if self._hired:
            raise CollectError("restore was called after workers were started: call it before collect and start")
        ring, lanes = self._replay.ring, len(self._made)
        steps = numbers_in(state, "steps", lanes, low=0, high=MOST // lanes)
        made = sum(steps)
        # Workers are ahead of what was asked for by what they may be, and by a fragment a lane.
        ahead = self._options.ahead + lanes * max(1, ring.in_flight)
        asked = count_in(state, "asked", low=max(0, made - ahead), high=made)
        told, life = count_in(state, "told", high=made), count_in(state, "life") + 1
        heads = numbers_in(state, "heads", lanes, low=0)
        came = ring.heads - np.array(heads)
        require_state(bool((came >= 0).all() and (came <= ring.shape.length).all()), "the lanes were seen elsewhere")
        self._counter.reset(heads)
        self._asked, self._life, self._told = asked, life, told
        self._made[:] = steps
        self._look()  # at what came after the collector's state was taken, and before that of the replay

    def close(self) -> None:
        """End all workers and give their memory back. A second call does nothing."""
        self._closed = True
        self._board.orders[on.STOP] = 1
        for event in self._events[1:]:
            os.eventfd_write(event, 1)
        for each in self._hired:
            each.hear()
            each.finish(END_S if each.ready else 0.0)
        self._finalizer()
        self._board.close()
        self._publisher.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _hire(self, number: int, life: int) -> Hired:
        first, last = self._firsts[number], self._firsts[number + 1]
        self._begun_with[number] = made = int(self._made[first:last].sum())
        self._board.rows[number, [on.STEPS, on.STORED]] = made
        self._board.rows[number, on.BEAT] = now_ns()
        part = Part(
            number=number,
            life=life,
            job=self._job,
            replay=self._replay.handle(first, last - first),
            weights=self._publisher.handle(),
            board=self._board.handle(),
            lockstep=self._options.lockstep,
            go=self._events[1 + number],
            wake=self._events[0],
            path=tuple(sys.path),
            first=self._options.first,
        )
        hired = Hired(part)
        self._poll.register(hired.line.fileno(), select.POLLIN)
        return hired

    def _replace(self, number: int, reason: str) -> None:
        """Start a worker anew, in the lanes of one that is no more."""
        gone = self._hired[number]
        self._poll.unregister(gone.line.fileno())
        if self._board.rows[number, on.STEPS] > self._begun_with[number]:
            self._fruitless[number] = 0
        elif gone.process.poll() != -signal.SIGKILL:  # that was somebody else, and tells nothing of it
            self._fruitless[number] += 1
        gone.kill()
        self._look()
        self._settle(number)
        problem = None
        if gone.mistake and not gone.ready:
            problem = reason
        elif self._fruitless[number] >= FRUITLESS:
            problem = f"worker {number} ended {FRUITLESS} times before its first step: {reason}"
        elif self._restarted >= self._options.restarts:
            problem = f"worker {number}: {reason}; {self._restarted} workers were replaced already: "
            problem += "find out why they end, or allow more restarts (--restarts)"
        if problem is not None:
            self.close()
            raise CollectError(problem)
        self._restarted += 1
        self._restarts.append(Restart(number, reason))
        self._hired[number] = self._hire(number, self._life + self._restarted)

    def _look(self) -> None:
        # Before the heads: what workers have stored by now must be seen by what comes next.
        stored = self._board.rows[:, on.STORED].copy()
        arrived = self._counter.count()
        self._made += arrived.steps
        self._overwritten += arrived.overwritten
        self._missing = np.maximum(0, stored - np.add.reduceat(self._made, self._firsts[:-1]))

    def _settle(self, number: int) -> None:
        """Take note of the steps that a worker which is no more has made and not stored, and of those that are lost."""
        made, stored = (int(self._board.rows[number, column]) for column in (on.STEPS, on.STORED))
        arrived = int(self._made[self._firsts[number] : self._firsts[number + 1]].sum())
        self._gone += max(0, made - max(stored, arrived))
        self._lost += int(self._missing[number])
        self._missing[number] = 0

    def _grant(self) -> None:
        """Let workers go on as far as they may now."""
        lanes = len(self._made)
        rounds = -(-self._asked // lanes)
        self._board.limits[:] = rounds * np.diff(self._firsts)
        self._board.orders[on.LIMIT] = self._asked + self._options.ahead
        for event in self._events[1:]:
            os.eventfd_write(event, 1)

    def _enough(self) -> bool:
        if self._options.lockstep:
            return bool((self._board.rows[:, on.IDLE] == self._board.limits).all())
        return int(self._made.sum()) >= self._asked

    def _wait(self) -> None:
        self._board.orders[on.WAITING] = 1
        try:
            while True:
                self.attend()
                # All that was written before a worker stood still is seen only after it does.
                enough = self._enough()
                self._look()
                if enough or (not self._options.lockstep and self._enough()):
                    return
                self._sleep()
        finally:
            self._board.orders[on.WAITING] = 0

    def _sleep(self) -> None:
        """Wait until a worker has something to tell, but not for long."""
        self._poll.poll(LOOK_MS)
        try:
            os.eventfd_read(self._events[0])
        except BlockingIOError:
            pass  # nobody rang

    def _tell(self, seconds: float) -> Collected:
        self._look()
        made, lost = int(self._made.sum()), self._lost + int(self._missing.sum())
        spent = self._board.spent()
        episodes = sorted(self._episodes, key=lambda each: each.lane) if self._options.lockstep else self._episodes
        told = Collected(
            steps=made - self._told,
            frames=(made - self._told) * self._job.frames_per_step,
            episodes=tuple(episodes),
            seconds=seconds,
            spent=spent - self._spent,
            overwritten=self._overwritten,
            lost=lost - self._told_lost,
            gone=self._gone,
            restarts=tuple(self._restarts),
            lag=self._publisher.version - int(self._board.rows[:, on.VERSION].min()),
        )
        self._told, self._spent, self._overwritten = made, spent, 0
        self._told_lost, self._gone = lost, 0
        self._episodes, self._restarts = [], []
        return told


def _end_all(maker: int, hired: list[Hired], events: list[int]) -> None:
    """End all workers at once, whoever forgot to; but a forked child has the same object, and they are not its own."""
    while hired and os.getpid() == maker:
        hired.pop().kill()
    while events:
        os.close(events.pop())
