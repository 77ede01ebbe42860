"""Who plays while a DQN over frames learns: the best action by the newest weights, now and then one by chance.

A button that is pressed for a moment does little in most games, so what is tried is held for some steps (Dabney et
al., 2021: temporally extended ε-greedy).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from hotloop.errors import HotloopError
from hotloop.training.learn.frame_dqn.state import FrameQNetwork, FrameQShape, statistics
from hotloop.training.learn.frame_dqn.torch_kernels import Glance


@dataclass(frozen=True, slots=True)
class Exploration:
    """How much is tried by chance."""

    start: float = 1.0
    """ε at first: the chance that a step begins to try something, if none is being tried."""
    end: float = 0.02
    """ε after `steps`."""
    steps: int = 50_000
    """Steps, over all environments, in which it falls in a straight line."""
    hold: int = 1
    """What is tried is held for 1 to so many steps."""

    def __post_init__(self) -> None:
        for name in ("start", "end"):
            if not 0 <= getattr(self, name) <= 1:
                raise HotloopError(f"exploration: {name} is {getattr(self, name)}: give a number from 0 to 1")
        for name in ("steps", "hold"):
            if getattr(self, name) < 1:
                raise HotloopError(f"exploration: {name} is {getattr(self, name)}: give 1 or more")

    def epsilon(self, steps: int) -> float:
        """ε = end + (start − end) · max(0, 1 − steps / `steps`)."""
        return self.end + (self.start - self.end) * max(0.0, 1 - steps / self.steps)


class FramePolicy:
    """ε-greedy over a network of its own, whose weights it is handed.

    Args:
        shape: Of the network.
        exploration: How much is tried by chance.
        device: Where the network is.
    """

    def __init__(self, shape: FrameQShape, exploration: Exploration, device: str = "cpu") -> None:
        self._network = FrameQNetwork(shape).to(device).eval().requires_grad_(False)
        self._glance = Glance(shape, device)
        self._exploration = exploration
        self._actions = shape.actions
        self._held = np.zeros(0, np.int64)
        self._left = np.zeros(0, np.int64)
        self.version = 0

    def load(self, weights: Mapping[str, NDArray], version: int) -> None:
        """Take new weights over: those of `FrameDQN.weights`, as arrays."""
        ours = dict(self._network.named_parameters()) | statistics(self._network)
        with torch.no_grad():
            for name, tensor in ours.items():
                tensor.copy_(torch.from_numpy(np.array(weights[name])))  # the block may be read-only
        self.version = version

    def act(self, seen: NDArray, steps: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Choose actions, int64 [E], for stacks uint8 [E, stack, side, side].

        The generator is asked for the same amount whatever ε is.
        """
        count = len(seen)
        if len(self._left) != count:
            self._held, self._left = np.zeros(count, np.int64), np.zeros(count, np.int64)
        begins = (rng.random(count) < self._exploration.epsilon(steps)) & (self._left == 0)
        tried, spells = rng.integers(self._actions, size=count), rng.integers(1, self._exploration.hold + 1, size=count)
        self._held = np.where(begins, tried, self._held)
        self._left = np.where(begins, spells, self._left)
        trying = self._left > 0
        self._left -= trying
        return self._held.copy() if trying.all() else np.where(trying, self._held, self.greedy(seen))

    @torch.no_grad()
    def greedy(self, seen: NDArray) -> NDArray[np.int64]:
        """Best actions `[E]`."""
        return self._glance.values(self._network, self._glance.input(seen)).argmax(dim=1).cpu().numpy()


def policy_apart(shape: FrameQShape, exploration: Exploration) -> FramePolicy:
    """Make the policy of a process that does nothing else: one thread, and no subnormal numbers."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    return FramePolicy(shape, exploration)
