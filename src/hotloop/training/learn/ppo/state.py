"""What a PPO learner consists of, whichever kernel advances it: configuration, weights, what goes in and out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hotloop.errors import HotloopError
from hotloop.training.learn.flat_params import Trained, build_seeded
from hotloop.training.learn.networks import ActorCritic, check_sizes

F32 = NDArray[np.float32]

ADAM_EPS = 1e-5


@dataclass(frozen=True, slots=True)
class PPOConfig:
    """The learner's numbers. Policy and value are networks of their own, each with its learning rate."""

    observation: tuple[int, ...]
    """`(F,)` for features, `(height, width, channels)` for a grid."""
    actions: int
    hidden: tuple[int, ...] = (128, 128)
    minibatch: int = 64
    epochs: int = 10
    policy_lr: float = 3e-4
    value_lr: float = 1e-3
    clip: float = 0.2
    """How far the ratio of new to old probability may leave 1."""
    entropy: float = 0.01
    value_weight: float = 0.5
    max_grad_norm: float = 0.5
    """Over both networks; 0 for none."""
    normalise_advantage: bool = True
    """In each minibatch, to mean 0 and deviation 1."""

    def __post_init__(self) -> None:
        check_sizes(self.observation, self.actions, self.hidden)
        if self.minibatch < 2 or self.epochs < 1:
            raise HotloopError(
                f"minibatch is {self.minibatch} and epochs {self.epochs}: give at least 2 rows and 1 epoch"
            )
        if min(self.policy_lr, self.value_lr) <= 0:
            raise HotloopError(f"learning rates are {self.policy_lr} and {self.value_lr}: give positive ones")
        if min(self.clip, self.entropy, self.value_weight, self.max_grad_norm) < 0:
            raise HotloopError("clip, entropy, value_weight and max_grad_norm: give numbers that are not negative")


class Rollout(NamedTuple):
    """What was gathered with the present policy, in any order. Whatever has these attributes will do."""

    obs: NDArray
    """`[S, ...]`."""
    action: NDArray[np.int64]
    """`[S]`."""
    log_prob: F32
    """`[S]`, of the action when it was chosen."""
    advantage: F32
    """`[S]`."""
    returns: F32
    """`[S]`, goals of the value network."""


class PPOUpdated(NamedTuple):
    """What an update leaves: means over all its minibatches."""

    policy_loss: float
    value_loss: float
    entropy: float
    kl: float
    clip_fraction: float


class PPOState:
    """Both networks with Adam's moments, and the count of updates (minibatches)."""

    def __init__(self, config: PPOConfig, seed: int, device: str) -> None:
        def make() -> ActorCritic:
            return ActorCritic(config.observation, config.actions, config.hidden)

        network = build_seeded(make, seed, device)
        assert isinstance(network, ActorCritic)
        self.config = config
        self.device = device
        self.network = network
        self.trained = Trained(network)
        self.policy_size = sum(parameter.numel() for parameter in network.policy.parameters())
        self.updates = 0


class Kernel(Protocol):
    """A way of doing the same updates: it advances a PPOState in place."""

    def update(self, rollout: Rollout, order: NDArray[np.int64]) -> F32:
        """Do one update with each row of `order` `[U, minibatch]`, which says which rows of the rollout it takes.

        Returns:
            `[U, 5]`, the numbers of `PPOUpdated` for each.
        """
        ...

    def evaluate(self, obs: NDArray) -> tuple[F32, F32]:
        """Logits `[N, A]` and values `[N]`."""
        ...
