"""What a DQN learner consists of, whichever kernel advances it: configuration, weights, what goes in and out."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from hotloop.errors import HotloopError
from hotloop.training.learn.flat_params import Trained, build_seeded, flatten
from hotloop.training.learn.networks import QNetwork, QShape

F32 = NDArray[np.float32]

ADAM_EPS = 1e-8


@dataclass(frozen=True, slots=True)
class DQNConfig:
    """The learner's numbers. Counts are in updates: the learner does not know of environment steps."""

    shape: QShape
    batch: int = 64
    lr: float = 1e-3
    double: bool = True
    clip: float = 1.0
    """Of the gradient's norm; 0 for none."""
    target_every: int = 1000
    """In updates: each time the target moves by `tau` of the way to the online network."""
    tau: float = 1.0

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise HotloopError(f"batch is {self.batch}: give at least 1")
        if self.lr <= 0:
            raise HotloopError(f"lr is {self.lr}: give a positive learning rate, such as 1e-3")
        if self.clip < 0:
            raise HotloopError(f"clip is {self.clip}: give a positive norm, or 0 for no clipping")
        if self.target_every < 1 or not 0 < self.tau <= 1:
            raise HotloopError(
                f"target_every is {self.target_every} and tau {self.tau}: give at least 1 update and 0 < tau <= 1"
            )


class Transitions(NamedTuple):
    """Rows of experience. Whatever has these attributes, such as a batch of hotloop.training.replay, will do."""

    obs: NDArray
    """`[R, ...]`."""
    action: NDArray
    """int64 `[R]`, or for SAC float32 `[R, A]`."""
    reward: F32
    """`[R]`, summed over n steps where n > 1."""
    next_obs: NDArray
    """`[R, ...]`."""
    discount: F32
    """`[R]`, γⁿ, and 0 where the episode terminated."""
    weight: F32 | None = None
    """`[R]`, importance of each row; None for 1."""


class Updated(NamedTuple):
    """What an update leaves: for each row how wrong the network was, for each update the loss."""

    td_abs: F32
    """`[K * B]`: |TD error|, or with atoms the cross entropy. For priorities."""
    loss: F32
    """`[K]`."""


class DQNState:
    """Online network with Adam's moments, target network, count of updates."""

    def __init__(self, config: DQNConfig, seed: int, device: str) -> None:
        network = build_seeded(lambda: QNetwork(config.shape), seed, device)
        assert isinstance(network, QNetwork)
        self.config = config
        self.device = device
        self.network = network
        self.target_network = copy.deepcopy(network).requires_grad_(False)
        self.target_weights: Tensor = flatten(self.target_network)
        self.online = Trained(network)
        self.updates = 0


class Kernel(Protocol):
    """A way of doing the same update: it advances a DQNState in place."""

    def update(self, batch: Transitions, noise: F32 | None) -> Updated:
        """Do K updates with K · B rows. Noise `[K, 2, noise_size]`: of the online and of the target network."""
        ...

    def q_values(self, obs: NDArray, noise: F32 | None) -> F32:
        """Values `[N, A]` by the online network; noise `[noise_size]`."""
        ...
