"""DQN's configuration, what goes into and out of an update, and the state that the kernels advance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from numpy.typing import NDArray
from torch import Tensor

from hotloop.training.learn.flat_params import TargetState, build_seeded
from hotloop.training.learn.learner import F32
from hotloop.training.learn.networks import QNetwork, QShape, check_numbers

ADAM_EPS = 1e-8


@dataclass(frozen=True, slots=True)
class DQNConfig:
    """DQN's hyperparameters. Counts are in updates: the learner does not know about environment steps."""

    shape: QShape
    batch: int = 64
    lr: float = 1e-3
    double: bool = True
    clip: float = 1.0
    """Largest norm of the gradient; 0 for no clipping."""
    target_every: int = 1000
    """Updates between two moves of the target network by `tau` of the way to the online network."""
    tau: float = 1.0

    def __post_init__(self) -> None:
        check_numbers(self, positive=("batch", "lr", "target_every"), not_negative=("clip",), shares=("tau",))


class Transitions(NamedTuple):
    """R transitions, each field `[R, ...]`; a `Batch` of `hotloop.training.replay` has the same fields."""

    obs: NDArray
    action: NDArray
    reward: F32
    """Summed over n steps if n > 1."""
    next_obs: NDArray
    discount: F32
    """γⁿ, and 0 where the episode terminated."""
    weight: F32 | None = None
    """Importance weights; None means 1."""


class Updated(NamedTuple):
    """Metrics of K updates: the error of each row, and the loss of each update."""

    td_abs: F32
    """`[K * B]`: |TD error|, or with atoms the cross entropy. Prioritised replay uses it."""
    loss: F32
    """`[K]`."""


class QRows(NamedTuple):
    """The B transitions of one update, as tensors; see `Transitions`."""

    obs: Tensor
    action: Tensor
    reward: Tensor
    next_obs: Tensor
    discount: Tensor
    weight: Tensor


class QNetworks(NamedTuple):
    """The networks as functions of observations `[B, ...]`. Their noise, if any, is already chosen."""

    online: Callable[[Tensor], Tensor]
    """Values `[B, A]`, or with atoms the logits of their distributions, `[B, A, atoms]`."""
    target: Callable[[Tensor], Tensor]
    values: Callable[[Tensor], Tensor]
    """Expected returns `[B, A]` from the output of a network."""
    support: Tensor
    """`[atoms]`: the returns that the atoms stand for."""


class QRule(NamedTuple):
    """What an update computes. The torch kernels call these functions."""

    loss: Callable[[DQNConfig, QNetworks, QRows], tuple[Tensor, Tensor]]
    """Return the loss, and the absolute TD error of each row, `[B]`."""
    move_target: Callable[[DQNConfig, Tensor, Tensor, int], None]
    """Move the target network's weights; called with those of both networks, `[P]`, after each update."""
    numba: bool = False
    """Whether the numba kernel, which does not call them, computes the same numbers. True for `dqn_snake`'s only."""


class DQNState(TargetState[QNetwork]):
    """The networks, and what an update computes."""

    def __init__(self, config: DQNConfig, rule: QRule, seed: int, device: str) -> None:
        super().__init__(build_seeded(lambda: QNetwork(config.shape), seed, device), device)
        self.config = config
        self.rule = rule
