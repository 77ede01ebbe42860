"""SAC's configuration, its state, and the interface of the kernels that advance the state."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hotloop.errors import HotloopError
from hotloop.training.learn.flat_params import FlatNetwork, build_seeded, flatten, views
from hotloop.training.learn.learner import F32
from hotloop.training.learn.networks import check_numbers
from hotloop.training.learn.sac.networks import Critics, Policy, SACShape

ADAM_EPS = 1e-8
PHASES = ("input", "target", "critics", "actor", "temperature", "soft update")
"""The phases of an update, in their order; `input` converts bytes to floats."""


@dataclass(frozen=True, slots=True)
class SACConfig:
    """SAC's hyperparameters."""

    shape: SACShape
    batch: int = 256
    lr: float = 3e-4
    tau: float = 0.005
    """Fraction of the way that the target moves to the critics after each update."""
    alpha: float = 1.0
    """Initial temperature."""
    target_entropy: float | None = None
    """Entropy that the temperature aims for; None means -1 per number of an action."""
    shift: int = 0
    """Augmentation: frames are shifted by up to this number of pixels at random; 0 turns it off."""
    channels_last: bool = True
    """Use the channels-last memory layout (`lean` kernel)."""
    batched: bool = False
    """Compute both critics in one operation per layer (`lean` kernel)."""
    compiled: bool = False
    """Use torch.compile for the networks (`lean` kernel)."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Precision of the networks' forward passes (`lean` kernel)."""

    def __post_init__(self) -> None:
        check_numbers(self, positive=("batch", "lr", "alpha"), shares=("tau",))
        if self.shift < 0 or (self.shift and not self.shape.has_frames):
            raise HotloopError(f"shift is {self.shift}: give 0, or for frames a number of pixels")

    @property
    def entropy_goal(self) -> float:
        """Entropy that the temperature aims for."""
        return -float(self.shape.actions) if self.target_entropy is None else self.target_entropy


class SACUpdated(NamedTuple):
    """Metrics of K updates, `[K]` each."""

    critic_loss: F32
    actor_loss: F32
    alpha: F32
    """The temperature, before the update."""
    entropy: F32
    """Mean of −log π over the batch."""
    q: F32
    """Mean value of the actions in the batch."""


class SACRule(NamedTuple):
    """What an update computes, as functions of the networks' outputs. All kernels call them."""

    critic_target: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
    """Target of both critics `[B]`, from next values `[2, B]`, log π, rewards, discounts `[B]` and α."""
    critic_loss: Callable[[Tensor, Tensor], Tensor]
    """Loss, from values `[2, B]` and targets `[B]`."""
    actor_loss: Callable[[Tensor, Tensor, Tensor], Tensor]
    """Loss, from values `[2, B]` and log π `[B]` of the policy's actions, and α."""
    temperature_gradient: Callable[[Tensor, float], Tensor]
    """Gradient of log α, from log π `[B]` and the entropy to aim for."""
    move_target: Callable[[SACConfig, Tensor, Tensor], None]
    """Move a tensor of the target critics towards the critics', after each update."""


class Noise(NamedTuple):
    """The random numbers of one update. They are an argument so that every kernel can use the same."""

    next_action: Tensor
    """Standard normal `[B, A]`."""
    action: Tensor
    """Standard normal `[B, A]`."""
    shift: NDArray[np.int64] | None
    """Pixels by which observations and next observations are shifted up and left, `[2, B, 2]`."""


class SACState:
    """Policy and critics with Adam's moments, the critics' target, the temperature, the number of updates."""

    def __init__(self, config: SACConfig, rule: SACRule, seed: int, device: str) -> None:
        policy = build_seeded(lambda: Policy(config.shape), seed, device)
        critics = build_seeded(lambda: Critics(config.shape), seed + 1, device)
        self.config = config
        self.rule = rule
        self.device = device
        self.policy, self.critics = policy, critics
        self.target = copy.deepcopy(critics).requires_grad_(False)
        if config.shape.shared:
            self.target.eyes = nn.ModuleList()  # a shared encoder has no target: it reads obs and next_obs
        self.target_weights: Tensor = flatten(self.target)
        self.actor, self.critic = FlatNetwork(policy), FlatNetwork(critics)
        self.temperature = torch.zeros(3, device=device)
        """log α and its two Adam moments."""
        self.temperature[0] = math.log(config.alpha)
        self.updates = 0

    def checkpoint_tensors(self) -> dict[str, Tensor]:
        """Return all tensors of a checkpoint by name, as views."""
        target = views(self.target, self.target_weights)
        return {
            **self.actor.checkpoint_tensors("actor"),
            **self.critic.checkpoint_tensors("critic"),
            **{f"target.weights.{name}": view for name, view in target.items()},
            "temperature": self.temperature,
        }
