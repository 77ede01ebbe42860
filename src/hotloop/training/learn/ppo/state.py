"""PPO's configuration, what goes into and out of an update, and the state that the kernels advance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from hotloop.errors import HotloopError
from hotloop.training.learn.flat_params import NetworkState, build_seeded
from hotloop.training.learn.learner import F32
from hotloop.training.learn.loss_terms import PPOLosses
from hotloop.training.learn.networks import ActorCritic, check_numbers, check_sizes

ADAM_EPS = 1e-5


@dataclass(frozen=True, slots=True)
class PPOConfig:
    """PPO's hyperparameters. Policy and value are separate networks, each with its own learning rate."""

    observation: tuple[int, ...]
    """`(F,)` for features, `(height, width, channels)` for a grid."""
    actions: int
    hidden: tuple[int, ...] = (128, 128)
    minibatch: int = 64
    epochs: int = 10
    policy_lr: float = 3e-4
    value_lr: float = 1e-3
    clip: float = 0.2
    """Largest distance from 1 of the ratio of new to old probability."""
    entropy: float = 0.01
    value_weight: float = 0.5
    max_grad_norm: float = 0.5
    """Over both networks; 0 for no clipping."""
    normalise_advantage: bool = True
    """In each minibatch, to mean 0 and standard deviation 1."""

    def __post_init__(self) -> None:
        check_sizes(self.observation, self.actions, self.hidden)
        check_numbers(
            self,
            positive=("epochs", "policy_lr", "value_lr"),
            not_negative=("clip", "entropy", "value_weight", "max_grad_norm"),
        )
        if self.minibatch < 2:
            raise HotloopError(f"minibatch is {self.minibatch}: give at least 2 rows")


class Rollout(NamedTuple):
    """S steps collected with the current policy, in any order."""

    obs: NDArray
    """`[S, ...]`."""
    action: NDArray[np.int64]
    """`[S]`."""
    log_prob: F32
    """`[S]`: of the action, when it was chosen."""
    advantage: F32
    """`[S]`."""
    returns: F32
    """`[S]`: the targets of the value network."""


class PPORows(NamedTuple):
    """The rows of one minibatch, as tensors; see `Rollout`."""

    obs: Tensor
    action: Tensor
    log_prob: Tensor
    advantage: Tensor
    returns: Tensor


class PPORule(NamedTuple):
    """What an update computes. The torch kernel calls this function."""

    loss: Callable[[PPOConfig, ActorCritic, PPORows], tuple[Tensor, PPOLosses]]
    """Return the loss of a minibatch, and its parts."""
    numba: bool = False
    """Whether the numba kernel, which does not call it, computes the same numbers. True for `ppo_snake`'s only."""


class PPOUpdated(NamedTuple):
    """Metrics of an update: means over all its minibatches."""

    policy_loss: float
    value_loss: float
    entropy: float
    kl: float
    clip_fraction: float


class PPOState(NetworkState):
    """Both networks, and what an update (one minibatch) computes."""

    def __init__(self, config: PPOConfig, rule: PPORule, seed: int, device: str) -> None:
        network = build_seeded(lambda: ActorCritic(config.observation, config.actions, config.hidden), seed, device)
        super().__init__(network, "actor_critic", device)
        self.config = config
        self.rule = rule
        self.network = network
        self.policy_size = sum(parameter.numel() for parameter in network.policy.parameters())
