"""What a SAC learner consists of, whichever kernel advances it: configuration, weights, what goes in and out."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hotloop.errors import HotloopError
from hotloop.training.learn.flat_params import Trained, build_seeded, flatten
from hotloop.training.learn.learner import TimePhase
from hotloop.training.learn.sac.networks import Critics, Policy, SACShape

F32 = NDArray[np.float32]
ADAM_EPS = 1e-8
PHASES = ("input", "target", "critics", "actor", "temperature", "soft update")
"""The parts of an update, in their order; `input` turns bytes into floats."""


@dataclass(frozen=True, slots=True)
class SACConfig:
    """The learner's numbers."""

    shape: SACShape
    batch: int = 256
    lr: float = 3e-4
    tau: float = 0.005
    """How far the target moves to the critics after each update."""
    alpha: float = 1.0
    """The temperature to begin with."""
    target_entropy: float | None = None
    """Without one, -1 for each number of an action."""
    shift: int = 0
    """Frames are moved by up to so many pixels, by chance; 0: not at all."""
    channels_last: bool = True
    """Keep the channels of a pixel side by side in memory (`lean` kernel)."""
    batched: bool = False
    """Compute twin critics in one operation a layer (`lean` kernel)."""
    compiled: bool = False
    """Let torch compile the networks (`lean` kernel)."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Of the networks' forward passes (`lean` kernel)."""

    def __post_init__(self) -> None:
        for name in ("batch", "lr", "tau", "alpha"):
            if not getattr(self, name) > 0:
                raise HotloopError(f"{name} is {getattr(self, name)}: give a number above 0")
        if self.tau > 1:
            raise HotloopError(f"tau is {self.tau}: give at most 1")
        if self.shift < 0 or (self.shift and not self.shape.sees):
            raise HotloopError(f"shift is {self.shift}: give 0, or for frames a number of pixels")

    @property
    def wanted_entropy(self) -> float:
        """What the temperature is steered to."""
        return -float(self.shape.actions) if self.target_entropy is None else self.target_entropy


class SACUpdated(NamedTuple):
    """What K updates leave, `[K]` each."""

    critic_loss: F32
    actor_loss: F32
    alpha: F32
    """The temperature, before the update."""
    entropy: F32
    """Mean of -log π over the batch."""
    q: F32
    """Mean value of what was done."""


class Chance(NamedTuple):
    """The random numbers of one update, so that every kernel can be given the same."""

    next_action: Tensor
    """Standard normal `[B, A]`."""
    action: Tensor
    """Standard normal `[B, A]`."""
    shift: NDArray[np.int64] | None
    """Pixels up and left by which observations and next observations are moved, `[2, B, 2]`."""


class SACState:
    """Policy and critics with Adam's moments, the critics' target, the temperature, the count of updates."""

    def __init__(self, config: SACConfig, seed: int, device: str) -> None:
        policy = build_seeded(lambda: Policy(config.shape), seed, device)
        critics = build_seeded(lambda: Critics(config.shape), seed + 1, device)
        assert isinstance(policy, Policy) and isinstance(critics, Critics)
        self.config = config
        self.device = device
        self.policy, self.critics = policy, critics
        self.target = copy.deepcopy(critics).requires_grad_(False)
        if config.shape.shared:
            self.target.eyes = nn.ModuleList()  # the eye of all has no target: it looks at both ends of a step
        self.target_weights: Tensor = flatten(self.target)
        self.actor, self.critic = Trained(policy), Trained(critics)
        self.temperature = torch.zeros(3, device=device)
        """log α, and Adam's moments of it."""
        self.temperature[0] = math.log(config.alpha)
        self.updates = 0


class SACKernel(Protocol):
    """A way of doing the same update: it advances a SACState in place."""

    def update(self, rows: tuple[NDArray, ...], chance: Chance, timed: TimePhase) -> Tensor:
        """Do one update.

        Args:
            rows: Observations, actions, rewards, next observations and discounts of B transitions.
            chance: Its random numbers.
            timed: Is told the phases and their parts: convolutions, layers behind them, backward, Adam.

        Returns:
            The five numbers of `SACUpdated`, `[5]`.
        """
        ...

    def policy(self, obs: NDArray) -> tuple[Tensor, Tensor]:
        """Mean and log standard deviation of the actions for observations `[N, ...]`."""
        ...
