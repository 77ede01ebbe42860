"""The collector that steps environments in this process: no transport, no waiting, and every step repeatable."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import numpy as np

from hotloop.clock import now_ns
from hotloop.training.collect.interface import Collected, CollectError, Episode, Job, Spent, Weights, as_arrays
from hotloop.training.collect.player import Player
from hotloop.training.replay.frames import FrameReplay
from hotloop.training.replay.step_counter import StepCounter
from hotloop.training.state_checks import count_in

NS = 1e9


class InProcess:
    """Plays one environment for each lane of a replay, in turn.

    Args:
        job: What is played, by whom.
        replay: Where steps go; nobody else may add to it.
        weights: The first ones of the policy.
    """

    def __init__(self, job: Job, replay: FrameReplay, weights: Weights) -> None:
        self._job, self._ring = job, replay.ring
        self._weights = as_arrays(weights)
        self._version = 1
        self._asked = self._made = self._life = 0
        self._spent = Spent()
        self._counter = StepCounter(self._ring)
        self._player: Player | None = self._play()

    def _play(self) -> Player:
        player = Player(self._job, self._ring, range(self._ring.shape.lanes), self._life)
        player.load(self._weights, self._version)
        player.rounds = self._made // self._ring.shape.lanes
        return player

    def get_ready(self) -> None:
        """Do nothing: it can play as soon as it is made."""

    def collect(self, steps: int) -> Collected:
        """Play until so many more steps are in replay than all calls before have asked for."""
        player, begin = self._player, now_ns()
        if player is None:
            raise CollectError("collect was called after close: make a new collector")
        before = self._made
        self._asked += check_steps(steps)
        ended: list[Episode] = []
        while self._made < self._asked:
            ended += player.step()
            self._made += self._ring.shape.lanes
        player.flush()
        arrived = self._counter.count()
        made = int(arrived.steps.sum())
        spent = spent_by(player)
        spent, self._spent = spent - self._spent, spent
        return Collected(
            steps=made,
            frames=made * self._job.frames_per_step,
            episodes=tuple(ended),
            seconds=(now_ns() - begin) / NS,
            spent=spent,
            overwritten=arrived.overwritten,
            lost=max(0, self._made - before - made),
            lag=self._version - player.version,
        )

    def publish(self, weights: Weights) -> int:
        """Let the policy take new weights over, at once."""
        if self._player is None:
            raise CollectError("publish was called after close: make a new collector")
        self._weights = as_arrays(weights)
        self._version += 1
        self._player.load(self._weights, self._version)
        return self._version

    def sampled(self, index: np.ndarray) -> None:
        """Take note of what was sampled: `Batch.index`."""
        self._counter.mark_sampled(index)

    def state(self) -> dict[str, Any]:
        """Return what JSON can hold and a checkpoint needs."""
        return {"asked": self._asked, "steps": self._made, "life": self._life}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint, after the replay was restored, with new episodes."""
        made = count_in(state, "steps")
        # It plays rounds of one step a lane until there are as many steps as were asked for.
        asked = count_in(state, "asked", low=max(0, made - self._ring.shape.lanes + 1), high=made)
        life = count_in(state, "life") + 1
        self.close()
        self._asked, self._made, self._life = asked, made, life
        self._counter.reset()
        self._spent = Spent()
        self._player = self._play()

    def close(self) -> None:
        """Close the environments."""
        if self._player is not None:
            self._player.close()
            self._player = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def check_steps(steps: int) -> int:
    """Refuse to collect nothing."""
    if steps < 1:
        raise CollectError(f"steps is {steps}: collect 1 or more")
    return steps


def spent_by(player: Player) -> Spent:
    """Return where a player's time went."""
    return Spent(
        act_s=player.act_ns / NS,
        env_s=player.env_ns / NS,
        store_s=player.store_ns / NS,
        weights_s=player.weights_ns / NS,
    )
