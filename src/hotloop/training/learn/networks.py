"""A Q network with the parts of Rainbow in any combination, and an actor-critic.

Noise is an argument of `forward` and not a state of the layers. So a network is a pure function of weights, input and
noise, and every kernel can use the same three.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from hotloop.errors import HotloopError

Convs = tuple[tuple[int, int, int], ...]
"""Channels, kernel and stride of each convolution."""
SIGMA = 0.5
"""Initial size of the noise of a noisy layer; it is divided by √inputs."""


@dataclass(frozen=True, slots=True)
class QShape:
    """Sizes and options of a Q network.

    A dueling network has two streams, each as wide as the last of `hidden`. In a noisy network the last hidden layer
    and the heads are noisy. With more than one atom the output is a distribution.
    """

    observation: tuple[int, ...]
    """`(F,)` for features, or `(height, width, channels)` for a grid of 0 and 1, read by a small CNN."""
    actions: int
    hidden: tuple[int, ...] = (128, 128)
    dueling: bool = False
    noisy: bool = False
    atoms: int = 1
    v_min: float = -10.0
    v_max: float = 10.0

    def __post_init__(self) -> None:
        check_sizes(self.observation, self.actions, self.hidden)
        if self.atoms < 1:
            raise HotloopError(f"atoms is {self.atoms}: give 1 for a plain value or 51 for a distribution")
        if self.atoms > 1 and not self.v_min < self.v_max:
            raise HotloopError(f"v_min {self.v_min} is not below v_max {self.v_max}: atoms need a range")


def check_numbers(
    config: object, *, positive: Sequence[str] = (), not_negative: Sequence[str] = (), shares: Sequence[str] = ()
) -> None:
    """Raise HotloopError unless fields are above 0, at least 0, or above 0 and at most 1."""
    rules = (
        (positive, "a number above 0", lambda value: value > 0),
        (not_negative, "0 or more", lambda value: value >= 0),
        (shares, "a number above 0, at most 1", lambda value: 0 < value <= 1),
    )
    for names, remedy, holds in rules:
        for name in names:
            if not holds(getattr(config, name)):
                raise HotloopError(f"{name} is {getattr(config, name)}: give {remedy}")


def check_sizes(observation: tuple[int, ...], actions: int, hidden: tuple[int, ...]) -> None:
    """Raise HotloopError unless a network of these sizes can be made."""
    if len(observation) not in (1, 3) or min(observation) < 1:
        raise HotloopError(f"observation shape is {observation}: give (features,) or (height, width, channels)")
    if actions < 2:
        raise HotloopError(f"actions is {actions}: an agent needs at least 2")
    if not hidden or min(hidden) < 1:
        raise HotloopError(f"hidden is {hidden}: give at least one layer, such as (128, 128)")


def check_rows(what: str, shape: tuple[int, ...], observation: tuple[int, ...]) -> None:
    """Raise HotloopError unless rows of observations have the shape `[N, *observation]`.

    Numba kernels do not check bounds: they would read beyond the end of narrower rows.
    """
    if tuple(shape[1:]) != tuple(observation):
        raise HotloopError(
            f"{what} has shape {shape}: the network was made for observations of {observation}; "
            f"give ({', '.join(map(str, ('N', *observation)))})"
        )


def conv_sides(side: int, convs: Convs) -> list[int]:
    """Return the side of the frames, and of the output of each convolution; below 1 if the frames are too small."""
    sides = [side]
    for _, kernel, stride in convs:
        sides.append((sides[-1] - kernel) // stride + 1)
    return sides


def make_convs(inputs: int, convs: Convs, bias: bool = True) -> nn.ModuleList:
    """Make the convolutions that read frames of this number of channels."""
    channels = [inputs, *(each[0] for each in convs)]
    return nn.ModuleList(
        nn.Conv2d(n, m, kernel, stride, bias=bias)
        for (n, m), (_, kernel, stride) in zip(pairwise(channels), convs, strict=True)
    )


class NoisyLinear(nn.Module):
    """A linear layer with factorised Gaussian noise of learnt size on its weights.

    `w = μ + σ · ε_out ε_inᵀ`, and for the bias `b = μ_b + σ_b · ε_out` (Fortunato et al., 2018).
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(outputs, inputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(outputs).uniform_(-bound, bound))
        self.weight_sigma = nn.Parameter(torch.full((outputs, inputs), SIGMA * bound))
        self.bias_sigma = nn.Parameter(torch.full((outputs,), SIGMA * bound))
        self.noise_size = inputs + outputs

    def forward(self, x: Tensor, noise: Tensor | None) -> Tensor:
        """Apply the layer to `[N, inputs]`, with noise `[inputs + outputs]`, or None for the mean weights."""
        if noise is None:
            return nn.functional.linear(x, self.weight, self.bias)
        for_inputs, for_outputs = noise.split([self.weight.shape[1], self.weight.shape[0]])
        weight = self.weight + self.weight_sigma * torch.outer(for_outputs, for_inputs)
        return nn.functional.linear(x, weight, self.bias + self.bias_sigma * for_outputs)


class GridEncoder(nn.Module):
    """Two convolutions that read a small board: uint8 `[N, H, W, C]` → float32 `[N, features]`."""

    def __init__(self, observation: tuple[int, ...]) -> None:
        super().__init__()
        height, width, channels = observation
        self.near = nn.Conv2d(channels, 32, 3, padding=1)
        self.far = nn.Conv2d(32, 32, 3, stride=2, padding=1)
        self.features = 32 * -(-height // 2) * -(-width // 2)

    def forward(self, grid: Tensor) -> Tensor:
        """Apply both convolutions and flatten the result."""
        x = grid.permute(0, 3, 1, 2).to(self.near.weight.dtype)
        return self.far(self.near(x).relu()).relu().flatten(1)


class QNetwork(nn.Module):
    """Values of all actions: `[N, A]`, or with atoms the logits of their distributions, `[N, A, atoms]`."""

    support: Tensor

    def __init__(self, shape: QShape) -> None:
        super().__init__()
        self.shape = shape
        self.encoder = GridEncoder(shape.observation) if len(shape.observation) == 3 else None
        features = self.encoder.features if self.encoder else shape.observation[0]
        layer = NoisyLinear if shape.noisy else nn.Linear
        widths = [features, *shape.hidden[:-1]]
        self.body = nn.ModuleList(nn.Linear(n, m) for n, m in pairwise(widths))
        last = shape.hidden[-1]
        self.top = layer(widths[-1], last * (2 if shape.dueling else 1))
        self.value = layer(last, shape.atoms) if shape.dueling else None
        self.advantage = layer(last, shape.actions * shape.atoms)
        self.noise_size = sum(m.noise_size for m in self.modules() if isinstance(m, NoisyLinear))
        support = torch.linspace(shape.v_min, shape.v_max, shape.atoms) if shape.atoms > 1 else torch.zeros(1)
        self.register_buffer("support", support, persistent=False)

    def forward(self, obs: Tensor, noise: Tensor | None = None) -> Tensor:
        """Compute the output for observations `[N, ...]`; noise `[noise_size]`, or None for the mean weights."""
        shape = self.shape
        x = obs if self.encoder is None else self.encoder(obs)
        for linear in self.body:
            x = linear(x).relu()
        x, noise = _apply(self.top, x, noise)
        x = x.relu()
        if self.value is None:
            q, _ = _apply(self.advantage, x, noise)
            q = q.view(-1, shape.actions, shape.atoms)
        else:
            for_value, for_advantage = x.chunk(2, dim=1)
            value, noise = _apply(self.value, for_value, noise)
            advantage, _ = _apply(self.advantage, for_advantage, noise)
            advantage = advantage.view(-1, shape.actions, shape.atoms)
            q = value.view(-1, 1, shape.atoms) + advantage - advantage.mean(dim=1, keepdim=True)
        return q.squeeze(-1) if shape.atoms == 1 else q

    def values(self, output: Tensor) -> Tensor:
        """Expected returns `[N, A]` from the output of `forward`."""
        return output if self.shape.atoms == 1 else (output.softmax(dim=-1) * self.support).sum(dim=-1)


def _apply(layer: nn.Module, x: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Apply a layer that may be noisy; also return the rest of the noise, for the following layers."""
    if not isinstance(layer, NoisyLinear):
        return layer(x), noise
    if noise is None:
        return layer(x, None), None
    return layer(x, noise[: layer.noise_size]), noise[layer.noise_size :]


class Tower(nn.Module):
    """The network of the policy or of the value: hidden layers with ReLU, then a linear head.

    Orthogonal initialisation, as in well-performing PPO implementations: gain √2, and `gain` for the head.
    """

    def __init__(self, observation: tuple[int, ...], hidden: tuple[int, ...], outputs: int, gain: float) -> None:
        super().__init__()
        self.encoder = GridEncoder(observation) if len(observation) == 3 else None
        widths = [self.encoder.features if self.encoder else observation[0], *hidden]
        self.body = nn.ModuleList(nn.Linear(n, m) for n, m in pairwise(widths))
        self.head = nn.Linear(widths[-1], outputs)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Conv2d):
                nn.init.orthogonal_(module.weight, gain if module is self.head else math.sqrt(2))
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, obs: Tensor) -> Tensor:
        """Compute `[N, outputs]` for observations `[N, ...]`."""
        x = obs if self.encoder is None else self.encoder(obs)
        for linear in self.body:
            x = linear(x).relu()
        return self.head(x)


class ActorCritic(nn.Module):
    """Separate networks for policy and value, so that each can have its own learning rate."""

    def __init__(self, observation: tuple[int, ...], actions: int, hidden: tuple[int, ...]) -> None:
        super().__init__()
        check_sizes(observation, actions, hidden)
        self.policy = Tower(observation, hidden, actions, gain=0.01)
        self.value = Tower(observation, hidden, 1, gain=1.0)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits `[N, A]` and values `[N]`."""
        return self.policy(obs), self.value(obs).squeeze(-1)
