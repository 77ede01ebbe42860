"""Kills collectors at random while a learner learns from them: 300 times with a light game, 30 times with emulators.

Every frame of the light game carries a checksum and tells what must go with it, so a torn sample cannot pass. It must
go on learning to the end, every kill must be noticed, and no process, shared memory or open file may be left. Ends with
1 and says why if any of that does not hold.
"""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.collecting import check_batch, light_job, light_replay, light_weights, shared_memory  # noqa: E402

from hotloop.clock import now_ns  # noqa: E402
from hotloop.training.collect import Collected, Job, Recipe, WorkerOptions, Workers  # noqa: E402
from hotloop.training.replay import FrameReplay, Prioritised  # noqa: E402

BATCH = 64
NOTICE_S = 60.0
"""A kill that is not noticed within so long has failed; a worker hangs, on top, if it does not move for 10 s."""
SAY_EVERY = 10


@dataclass
class Soak:
    """What happened so far."""

    name: str
    kills: int
    restarts: list[str] = field(default_factory=list)
    steps: int = 0
    lost: int = 0
    gone: int = 0
    batches: int = 0
    episodes: int = 0
    slowest_s: float = 0.0

    def take(self, collected: Collected) -> None:
        self.steps += collected.steps
        self.lost += collected.lost
        self.gone += collected.lost_with_worker
        self.episodes += len(collected.episodes)
        self.restarts += [each.reason for each in collected.restarts]

    def say(self) -> None:
        print(
            f"{self.name}: {len(self.restarts)} of {self.kills} kills, {self.steps:,} steps, {self.lost} lost, "
            f"{self.gone} gone with the killed, "
            f"{self.episodes:,} episodes, {self.batches:,} batches whole, noticed after at most {self.slowest_s:.2f} s",
            flush=True,
        )


@dataclass(frozen=True)
class Held:
    """What this process holds."""

    children: int
    files: int
    shared: frozenset[int]
    """Pieces of shared memory that it has open or mapped."""

    @classmethod
    def now(cls) -> Held:
        gc.collect()
        me = psutil.Process()
        return cls(len(me.children(recursive=True)), me.num_fds(), frozenset(shared_memory()))


class Learner:
    """Samples, checks what it sampled, sets priorities and publishes weights."""

    def __init__(self, replay: FrameReplay, workers: Workers, light: bool) -> None:
        self._replay, self._workers, self._light = replay, workers, light
        self._rng = np.random.default_rng(0)
        self._version = 1

    def learn(self, soak: Soak) -> None:
        """One round."""
        soak.take(self._workers.collect(BATCH))
        batch = self._replay.sample(BATCH, self._rng)
        self._workers.sampled(batch.index)
        if self._light:
            check_batch(batch)
        self._replay.update_priorities(batch.index, self._rng.random(BATCH).astype(np.float32))
        self._version += 1
        self._workers.publish(light_weights(float(self._version)))
        soak.batches += 1


def run(soak: Soak, job: Job, replay: FrameReplay, light: bool, pause_s: float) -> None:
    """Kill so often, and see each kill noticed and the worker back."""
    chance = np.random.default_rng()
    options = WorkerOptions(count=2, ahead=2 * BATCH, restarts=soak.kills)
    with Workers(job, replay, light_weights(), options) as workers:
        learner = Learner(replay, workers, light)
        soak.take(workers.collect(4 * BATCH))
        for number in range(soak.kills):
            until = now_ns() + round(pause_s * chance.random() * 1e9)
            while now_ns() < until:
                learner.learn(soak)
            time.sleep(float(chance.random()) * 0.01)  # anywhere within a step
            pid = workers.processes[int(chance.integers(2))]
            os.kill(pid, signal.SIGKILL)
            begin = now_ns()
            while len(soak.restarts) <= number:
                learner.learn(soak)
                if (now_ns() - begin) / 1e9 > NOTICE_S:
                    raise AssertionError(f"kill {number + 1} was not noticed within {NOTICE_S:.0f} s")
            soak.slowest_s = max(soak.slowest_s, (now_ns() - begin) / 1e9)
            if (number + 1) % SAY_EVERY == 0:
                soak.say()
        heads, begin = replay.ring.heads.copy(), now_ns()
        while (replay.ring.heads < heads + 100).any():  # all lanes go on
            learner.learn(soak)
            if (now_ns() - begin) / 1e9 > NOTICE_S:
                raise AssertionError(f"a lane stood still: {heads} before, {replay.ring.heads} now")
    unexpected = {each for each in soak.restarts if "SIGKILL" not in each}
    if unexpected or len(soak.restarts) != soak.kills:
        raise AssertionError(f"{len(soak.restarts)} restarts of {soak.kills} kills, some because {unexpected}")
    if soak.lost:
        raise AssertionError(f"{soak.lost} steps that were stored never came")
    if soak.kills % SAY_EVERY:
        soak.say()


def soak_light(kills: int) -> None:
    """The light game, whose samples are all checked."""
    replay = light_replay(1000, prioritised=Prioritised())
    run(Soak("light", kills), light_job(), replay, light=True, pause_s=0.5)
    replay.close()


def soak_emulators(kills: int) -> None:
    """NES emulators."""
    job = Job(Recipe("hotloop.training.envs.nes:MarioEnv"), Recipe("tests.collecting:RandomPolicy", {"actions": 7}))
    replay = FrameReplay(4000, 2, (84, 84), storage="shared", prioritised=Prioritised())
    run(Soak("emulators", kills), job, replay, light=False, pause_s=2.0)
    replay.close()


def main() -> int:
    """Run both; say what was left behind, if anything was."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--light", type=int, default=300, help="kills with the light game (default 300)")
    parser.add_argument("--emulators", type=int, default=30, help="kills with emulators (default 30)")
    arguments = parser.parse_args()
    soak_light(0)  # what is made once and stays, such as compiled kernels, is there from here on
    before = Held.now()
    try:
        if arguments.light:
            soak_light(arguments.light)
        if arguments.emulators:
            soak_emulators(arguments.emulators)
    except AssertionError as error:
        print(f"FAILED: {error}")
        return 1
    after = Held.now()
    if after.children > before.children or after.files > before.files or after.shared - before.shared:
        print(f"FAILED: left behind: {before} before, {after} after")
        return 1
    print("soak: nothing torn, nothing left, every kill noticed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
