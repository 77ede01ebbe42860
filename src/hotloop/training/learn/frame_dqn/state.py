"""DQN on stacked frames: configuration, network, state, and the interface of the kernels.

The running statistics of batch normalisation are treated like weights: they are saved, sent to policies, and copied to
the target network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from hotloop.errors import HotloopError
from hotloop.training.learn.flat_params import TargetState, build_seeded
from hotloop.training.learn.networks import Convs, check_numbers, conv_sides, make_convs

ADAM_EPS = 1e-5
"""Between torch's default, which amplifies the noise of tiny gradients, and Rainbow's, larger than many gradients."""
HEAD_STD = 0.01
"""Initial standard deviation of the last layers' weights: values start near 0."""
PHASES = ("input", "target", "forward", "backward", "adam", "soft update")
"""The phases of an update, in their order; `input` converts bytes to floats."""


@dataclass(frozen=True, slots=True)
class FrameQShape:
    """Sizes and options of the network."""

    observation: tuple[int, int, int]
    """`(stack, side, side)` of uint8 frames."""
    actions: int
    convs: Convs = ((16, 4, 4), (32, 3, 2), (32, 3, 2))
    """Channels, kernel and stride of each convolution."""
    hidden: int = 256
    """Units of the layer behind the convolutions; with `dueling`, of each of the two streams."""
    dueling: bool = True
    norm: bool = False
    """Use batch normalisation behind each convolution, which then has no bias."""

    def __post_init__(self) -> None:
        if len(self.observation) != 3 or min(self.observation) < 1 or self.observation[1] != self.observation[2]:
            raise HotloopError(f"observation shape is {self.observation}: give (stack, side, side)")
        if self.actions < 2:
            raise HotloopError(f"actions is {self.actions}: an agent needs at least 2")
        check_numbers(self, positive=("hidden",))
        if not self.convs or any(len(each) != 3 or min(each) < 1 for each in self.convs):
            raise HotloopError(f"convs is {self.convs}: give channels, kernel and stride of at least one convolution")
        if self.sides[-1] < 1:
            raise HotloopError(f"frames of {self.observation[1]} pixels are too small for convolutions {self.convs}")

    @property
    def sides(self) -> list[int]:
        """The side of the frames, and of the output of each convolution."""
        return conv_sides(self.observation[1], self.convs)

    @property
    def features(self) -> int:
        """Number of outputs of the last convolution."""
        return self.convs[-1][0] * self.sides[-1] ** 2


@dataclass(frozen=True, slots=True)
class FrameDQNConfig:
    """The hyperparameters. Counts are in updates: the learner does not know about environment steps."""

    shape: FrameQShape
    batch: int = 32
    """Rows per update."""
    accumulate: int = 1
    """Gradient accumulation: the batch is processed in this number of parts, which takes less memory."""
    lr: float = 3e-4
    double: bool = True
    clip: float = 10.0
    """Largest norm of the gradient; 0 for no clipping."""
    tau: float = 0.005
    """Fraction of the way that the target moves to the online network after each update."""
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    """Precision of the forward passes. float16 needs CUDA, and scales the loss."""

    def __post_init__(self) -> None:
        check_numbers(self, positive=("batch", "accumulate", "lr"), not_negative=("clip",), shares=("tau",))
        if self.batch % self.accumulate:
            raise HotloopError(f"accumulate is {self.accumulate}: give a number that divides the batch, {self.batch}")


class FrameQNetwork(nn.Module):
    """Values of all actions, `[N, A]`, for frames from 0 to 1, `[N, stack, side, side]`."""

    def __init__(self, shape: FrameQShape) -> None:
        super().__init__()
        self.convs = make_convs(shape.observation[0], shape.convs, bias=not shape.norm)
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for channels, _, _ in shape.convs if shape.norm)
        self.top = nn.Linear(shape.features, shape.hidden * (2 if shape.dueling else 1))
        self.value = nn.Linear(shape.hidden, 1) if shape.dueling else None
        self.advantage = nn.Linear(shape.hidden, shape.actions)
        for layer in (*self.convs, self.top):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")  # type: ignore[arg-type]
        for layer in (self.value, self.advantage):
            if layer is not None:
                nn.init.normal_(layer.weight, std=HEAD_STD)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def forward(self, frames: Tensor) -> Tensor:
        """Apply all layers."""
        x = frames
        for k, conv in enumerate(self.convs):
            x = self.activate(k, conv(x))
        return self.head(x)

    def activate(self, k: int, x: Tensor) -> Tensor:
        """Apply normalisation, if any, and ReLU to the output of the k-th convolution, which may be overwritten."""
        return (self.norms[k](x) if len(self.norms) else x).relu_()

    def head(self, x: Tensor) -> Tensor:
        """Values `[N, A]` from the output of the convolutions: `V + A − mean A` if dueling."""
        x = self.top(x.flatten(1)).relu_()
        if self.value is None:
            return self.advantage(x)
        for_value, for_advantage = x.chunk(2, dim=1)
        advantage = self.advantage(for_advantage)
        return self.value(for_value) + advantage - advantage.mean(dim=1, keepdim=True)


def statistics(network: nn.Module) -> dict[str, Tensor]:
    """Return the running means and variances of batch normalisation by name; empty without normalisation."""
    return {name: buffer for name, buffer in network.named_buffers() if buffer.is_floating_point()}


class FrameQNetworks(NamedTuple):
    """The networks as functions from their input to values `[B, A]`."""

    online: Callable[[Tensor], Tensor]
    target: Callable[[Tensor], Tensor]


class FrameQRule(NamedTuple):
    """What an update computes, as functions of the networks' values. All kernels call them."""

    goal: Callable[[FrameDQNConfig, FrameQNetworks, Tensor, Tensor, Tensor], Tensor]
    """Targets `[B]`, from the networks, next observations, rewards and discounts."""
    loss: Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
    """Loss and |TD error| `[B]`, from values `[B, A]`, actions, targets and importance weights."""
    move_target: Callable[[FrameDQNConfig, Tensor, Tensor], None]
    """Move a tensor of the target network towards the online network's, after each update."""


class FrameDQNState(TargetState[FrameQNetwork]):
    """The networks, both in `eval` mode, and what an update computes."""

    def __init__(self, config: FrameDQNConfig, rule: FrameQRule, seed: int, device: str) -> None:
        super().__init__(build_seeded(lambda: FrameQNetwork(config.shape), seed, device).eval(), device)
        self.config = config
        self.rule = rule
        self.loss_scale = 65536.0 if config.precision == "float16" else 1.0
        """Factor of the loss for float16 gradients; it is adapted so that they do not overflow."""

    def checkpoint_tensors(self) -> dict[str, Tensor]:
        """Return all tensors of a checkpoint by name, as views."""
        networks = {"online": self.network, "target": self.target_network}
        return super().checkpoint_tensors() | {
            f"{kind}.statistics.{name}": each
            for kind, network in networks.items()
            for name, each in statistics(network).items()
        }


def check_frames(obs: NDArray, shape: FrameQShape) -> None:
    """Raise HotloopError unless observations are stacks of bytes of this network's size."""
    if obs.shape[1:] != shape.observation or obs.dtype != np.uint8:
        expected = ", ".join(map(str, shape.observation))
        raise HotloopError(f"observations are {obs.dtype} {list(obs.shape)}: this network reads uint8 [N, {expected}]")
