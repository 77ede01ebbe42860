"""SAC's networks: a policy and two critics, each with its own encoder, or with one shared encoder.

An encoder reads stacks of frames by convolutions; only the critics train a shared one. Feature vectors need no encoder.
The encoder is followed by the `hidden` layers. With `latent` a narrow, normalised layer comes before them, as is usual
behind a shared encoder. Attribute names such as `eye` are part of checkpoints: do not rename them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as f

from hotloop.errors import HotloopError
from hotloop.training.learn.networks import Convs, conv_sides, make_convs

LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0
TWINS = 2
"""Number of critics."""


@dataclass(frozen=True, slots=True)
class SACShape:
    """Sizes and options of the networks."""

    observation: tuple[int, ...]
    """`(stack, side, side)` of uint8 frames, or `(F,)` for features."""
    actions: int
    """Numbers in an action, each from -1 to 1."""
    convs: Convs = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
    """Channels, kernel and stride of each convolution. Not used for features."""
    hidden: tuple[int, ...] = (512,)
    shared: bool = False
    """Use one encoder for all networks, which only the critics train."""
    latent: int = 0
    """Width of the narrow layer behind the encoder; 0 for none."""

    def __post_init__(self) -> None:
        if len(self.observation) not in (1, 3) or min(self.observation) < 1:
            raise HotloopError(f"observation shape is {self.observation}: give (features,) or (stack, side, side)")
        if self.actions < 1:
            raise HotloopError(f"actions is {self.actions}: give at least 1")
        if not self.hidden or min(self.hidden) < 1:
            raise HotloopError(f"hidden is {self.hidden}: give at least one layer, such as (256, 256)")
        if self.has_frames and self.sides[-1] < 1:
            raise HotloopError(f"frames of {self.observation[1]} pixels are too small for convolutions {self.convs}")

    @property
    def has_frames(self) -> bool:
        """Whether observations are frames rather than features."""
        return len(self.observation) == 3

    @property
    def sides(self) -> list[int]:
        """The side of the frames, and of the output of each convolution."""
        return conv_sides(self.observation[1], self.convs)

    @property
    def features(self) -> int:
        """Number of outputs of an encoder."""
        return self.convs[-1][0] * self.sides[-1] ** 2 if self.has_frames else self.observation[0]


class FrameEncoder(nn.Module):
    """The convolutions from frames `[B, stack, side, side]` to `[B, features]`; the kernels apply them."""

    def __init__(self, shape: SACShape) -> None:
        super().__init__()
        self.convs = make_convs(shape.observation[0], shape.convs)


class Body(nn.Module):
    """Layers behind an encoder: features `[B, features]`, and for critics an action, → `[B, outputs]`."""

    def __init__(self, shape: SACShape, action_size: int, outputs: int) -> None:
        super().__init__()
        width = shape.latent or shape.features
        self.narrow = nn.Linear(shape.features, shape.latent) if shape.latent else None
        self.norm = nn.LayerNorm(shape.latent) if shape.latent else None
        widths = [width + action_size, *shape.hidden]
        self.hidden = nn.ModuleList(nn.Linear(n, m) for n, m in pairwise(widths))
        self.head = nn.Linear(widths[-1], outputs)

    def forward(self, features: Tensor, action: Tensor | None = None) -> Tensor:
        """Apply the layers; an action `[B, A]` is appended behind the narrow layer."""
        x = self.narrowed(features)
        x = x if action is None else torch.cat([x, action], dim=1)
        for linear in self.hidden:
            x = linear(x).relu()
        return self.head(x)

    def narrowed(self, features: Tensor) -> Tensor:
        """Apply the narrow layer, if there is one."""
        if self.narrow is None or self.norm is None:
            return features
        return self.norm(self.narrow(features)).tanh()


class Policy(nn.Module):
    """Mean and log standard deviation of an action before it is squashed."""

    def __init__(self, shape: SACShape) -> None:
        super().__init__()
        self.eye = FrameEncoder(shape) if shape.has_frames and not shape.shared else None
        self.body = Body(shape, 0, 2 * shape.actions)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """`[B, features]` → mean and log standard deviation, `[B, A]` each."""
        mean, log_std = self.body(features).chunk(2, dim=1)
        return mean, log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)


class Critics(nn.Module):
    """Two independent values of an action, `[2, B]`; with an encoder each, or one shared encoder."""

    def __init__(self, shape: SACShape) -> None:
        super().__init__()
        encoders = 0 if not shape.has_frames else 1 if shape.shared else TWINS
        self.eyes = nn.ModuleList(FrameEncoder(shape) for _ in range(encoders))
        self.bodies = nn.ModuleList(Body(shape, shape.actions, 1) for _ in range(TWINS))

    def forward(self, features: Sequence[Tensor], action: Tensor) -> Tensor:
        """Values `[2, B]` of actions `[B, A]`."""
        return torch.stack([body(x, action).squeeze(1) for body, x in zip(self.bodies, features, strict=True)])


def squash(mean: Tensor, log_std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Sample actions `a = tanh(u)`, `u = μ + σ ε`, and return them with their log density.

    `log π(a) = Σ_i [log N(u_i; μ_i, σ_i) − log(1 − tanh² u_i)]`, the last term as `2 (log 2 − u − softplus(−2u))`,
    which is equal and stays accurate where tanh is near 1 (Haarnoja et al., 2018, appendix C).

    Args:
        mean: `[B, A]`.
        log_std: `[B, A]`.
        noise: ε, standard normal, `[B, A]`.

    Returns:
        Actions `[B, A]` and log densities `[B]`.
    """
    assert mean.shape == log_std.shape == noise.shape
    u = mean + log_std.exp() * noise
    normal = -0.5 * noise * noise - log_std - 0.5 * math.log(2 * math.pi)
    squashing = 2 * (math.log(2) - u - f.softplus(-2 * u))
    return u.tanh(), (normal - squashing).sum(dim=1)
