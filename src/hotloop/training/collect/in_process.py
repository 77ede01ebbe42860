"""The collector that steps environments in this process: no transport, no waiting, and reproducible."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hotloop.clock import now_ns
from hotloop.json_types import Json
from hotloop.training.collect.interface import (
    Collected,
    CollectError,
    Collector,
    Episode,
    Job,
    Spent,
    Weights,
    as_arrays,
)
from hotloop.training.collect.player import Player
from hotloop.training.replay.frames import FrameReplay
from hotloop.training.replay.step_counter import StepCounter
from hotloop.training.state_checks import count_in

NS = 1e9


class InProcess(Collector):
    """Plays one environment per lane of a replay, one after the other. Nothing else may add steps to the replay."""

    def __init__(self, job: Job, replay: FrameReplay, weights: Weights) -> None:
        self._job, self._ring = job, replay.ring
        self._weights = as_arrays(weights)
        self._version = 1
        self._requested = self._made = self._life = 0
        self._spent = Spent()
        self._counter = StepCounter(self._ring)
        self._player: Player | None = self._make_player()

    def _make_player(self) -> Player:
        player = Player(self._job, self._ring, range(self._ring.shape.lanes), self._life)
        player.load(self._weights, self._version)
        player.rounds = self._made // self._ring.shape.lanes
        return player

    def get_ready(self) -> None:
        """Do nothing: the environments are built by the constructor."""

    def collect(self, steps: int) -> Collected:
        """Play until replay holds `steps` more than all earlier calls requested."""
        player, begin = self._player, now_ns()
        if player is None:
            raise CollectError("collect was called after close: make a new collector")
        before = self._made
        self._requested += check_steps(steps)
        ended: list[Episode] = []
        while self._made < self._requested:
            ended += player.step()
            self._made += self._ring.shape.lanes
        player.flush()
        new = self._counter.count()
        made = int(new.steps.sum())
        spent = Spent(player.act_ns / NS, player.env_ns / NS, player.store_ns / NS, player.weights_ns / NS)
        spent, self._spent = spent - self._spent, spent
        return Collected(
            steps=made,
            frames=made * self._job.frames_per_step,
            episodes=tuple(ended),
            seconds=(now_ns() - begin) / NS,
            spent=spent,
            overwritten=new.overwritten,
            lost=max(0, self._made - before - made),
            lag=self._version - player.version,
        )

    def publish(self, weights: Weights) -> int:
        """Load new weights into the policy immediately."""
        if self._player is None:
            raise CollectError("publish was called after close: make a new collector")
        self._weights = as_arrays(weights)
        self._version += 1
        self._player.load(self._weights, self._version)
        return self._version

    def sampled(self, index: np.ndarray) -> None:
        """Record which steps were sampled: `Batch.index`."""
        self._counter.mark_sampled(index)

    def state(self) -> dict[str, Json]:
        """Return the state for a checkpoint, as JSON values."""
        return {"asked": self._requested, "steps": self._made, "life": self._life}

    def restore(self, state: Mapping[str, Json]) -> None:
        """Continue from a checkpoint with new episodes. Call it after restoring the replay."""
        made = count_in(state, "steps")
        # It plays whole rounds, one step per lane, so it may exceed the requested steps by less than a round.
        requested = count_in(state, "asked", low=max(0, made - self._ring.shape.lanes + 1), high=made)
        life = count_in(state, "life") + 1
        self.close()
        self._requested, self._made, self._life = requested, made, life
        self._counter.reset()
        self._spent = Spent()
        self._player = self._make_player()

    def close(self) -> None:
        """Close the environments."""
        if self._player is not None:
            self._player.close()
            self._player = None


def check_steps(steps: int) -> int:
    """Reject a number of steps below 1."""
    if steps < 1:
        raise CollectError(f"steps is {steps}: collect 1 or more")
    return steps
