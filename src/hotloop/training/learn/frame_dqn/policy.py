"""The policy that collects experience for DQN on frames: temporally extended ε-greedy (Dabney et al., 2021).

A button that is pressed for one step does little in most games, so a random action is held for several steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from hotloop.errors import HotloopError
from hotloop.training.learn.frame_dqn.state import FrameQNetwork, FrameQShape, statistics
from hotloop.training.learn.frame_dqn.torch_kernels import FoldedForward


@dataclass(frozen=True, slots=True)
class Exploration:
    """How often, and for how long, actions are random."""

    start: float = 1.0
    """Initial ε: the probability that a step starts a random action, if none is being held."""
    end: float = 0.02
    """ε after `steps`."""
    steps: int = 50_000
    """Steps, over all environments, in which ε falls linearly."""
    hold: int = 1
    """A random action is held for 1 to `hold` steps."""

    def __post_init__(self) -> None:
        for name, epsilon in {"start": self.start, "end": self.end}.items():
            if not 0 <= epsilon <= 1:
                raise HotloopError(f"exploration: {name} is {epsilon}: give a number from 0 to 1")
        for name, count in {"steps": self.steps, "hold": self.hold}.items():
            if count < 1:
                raise HotloopError(f"exploration: {name} is {count}: give 1 or more")

    def epsilon(self, steps: int) -> float:
        """ε = end + (start − end) · max(0, 1 − steps / `steps`)."""
        return self.end + (self.start - self.end) * max(0.0, 1 - steps / self.steps)


class FramePolicy:
    """ε-greedy policy with its own copy of the network; `load` sets the weights."""

    def __init__(self, shape: FrameQShape, exploration: Exploration) -> None:
        self._network = FrameQNetwork(shape).eval().requires_grad_(False)
        self._forward = FoldedForward(shape, "cpu")
        self._exploration = exploration
        self._actions = shape.actions
        self._held_action = np.zeros(0, np.int64)
        self._steps_left = np.zeros(0, np.int64)
        self.version = 0

    def load(self, weights: Mapping[str, NDArray], version: int) -> None:
        """Set the weights: those of `FrameDQN.weights`, as arrays."""
        own = dict(self._network.named_parameters()) | statistics(self._network)
        with torch.no_grad():
            for name, tensor in own.items():
                tensor.copy_(torch.from_numpy(np.array(weights[name])))  # copied: shared memory may be read-only
        self.version = version

    def act(self, obs: NDArray, steps: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Choose actions, int64 [E], for observations uint8 [E, stack, side, side].

        The amount drawn from the generator does not depend on ε.
        """
        count = len(obs)
        if len(self._steps_left) != count:
            self._held_action, self._steps_left = np.zeros(count, np.int64), np.zeros(count, np.int64)
        starts = (rng.random(count) < self._exploration.epsilon(steps)) & (self._steps_left == 0)
        random_action = rng.integers(self._actions, size=count)
        duration = rng.integers(1, self._exploration.hold + 1, size=count)
        self._held_action = np.where(starts, random_action, self._held_action)
        self._steps_left = np.where(starts, duration, self._steps_left)
        explores = self._steps_left > 0
        self._steps_left -= explores
        if explores.all():
            return self._held_action.copy()
        return np.where(explores, self._held_action, self.greedy(obs))

    @torch.no_grad()
    def greedy(self, obs: NDArray) -> NDArray[np.int64]:
        """Best actions `[E]`."""
        return self._forward.values(self._network, self._forward.input(obs)).argmax(dim=1).cpu().numpy()


def worker_policy(shape: FrameQShape, exploration: Exploration) -> FramePolicy:
    """Make the policy of a worker process: one torch thread, and subnormal numbers flushed to zero."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    return FramePolicy(shape, exploration)
