"""A network's parameters as flat vectors: weights and Adam's two moments.

The parameters of the torch module are views of one weight vector. A torch kernel and a numba kernel therefore work on
the same memory: switching kernels copies nothing, a target network is updated by one operation, Adam is one loop, and
a checkpoint does not depend on the kernel that wrote it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import numpy as np
import psutil
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor, nn

from hotloop.errors import HotloopError
from hotloop.training.state_checks import array_of, random_state

Arrays = dict[str, NDArray]
NetworkT = TypeVar("NetworkT", bound=nn.Module)
COPIES = 3
"""Vectors as long as the network that training holds: weights and Adam's two moments."""


def build_seeded(make: Callable[[], NetworkT], seed: int, device: str) -> NetworkT:
    """Build a network whose initial weights depend only on the seed. Torch's global generator is not changed."""
    with torch.random.fork_rng(devices=[]):
        _check_size(make)
        torch.manual_seed(seed)
        return make().to(device)


def _check_size(make: Callable[[], nn.Module]) -> None:
    """Reject a network that does not fit into memory, before allocating it."""
    try:
        with torch.device("meta"):
            size = sum(each.numel() * each.element_size() for each in make().parameters())
    except RuntimeError as error:  # the number of weights overflows 64 bits
        raise HotloopError(f"the network cannot be made ({str(error).splitlines()[0]}): give smaller layers") from error
    total = psutil.virtual_memory().total
    if COPIES * size > total:
        raise HotloopError(
            f"training the network takes {COPIES * size:,} bytes and this machine has {total:,}: give smaller layers"
        )


def flatten(network: nn.Module) -> Tensor:
    """Move all parameters into one vector `[P]`, in the order of `parameters()`; they become views of it."""
    flat = torch.cat([parameter.detach().reshape(-1) for parameter in network.parameters()])
    begin = 0
    for parameter in network.parameters():
        end = begin + parameter.numel()
        parameter.data = flat[begin:end].view(parameter.shape)
        begin = end
    return flat


def views(network: nn.Module, flat: Tensor) -> dict[str, Tensor]:
    """Split a vector `[P]` into views with the names and shapes of a network's parameters."""
    cut, begin = {}, 0
    for name, parameter in network.named_parameters():
        cut[name] = flat[begin : begin + parameter.numel()].view(parameter.shape)
        begin += parameter.numel()
    return cut


class FlatNetwork:
    """A network, its weight vector, and Adam's moments as vectors of the same length."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network
        self.weights = flatten(network)
        self.mean = torch.zeros_like(self.weights)
        self.square = torch.zeros_like(self.weights)

    def adam(self, lr: float, eps: float, updates: int, fused: bool = False) -> torch.optim.Adam:
        """Return torch's Adam over the parameters, continuing from these moments after `updates` updates."""
        optimiser = torch.optim.Adam(self.network.parameters(), lr=lr, eps=eps, fused=fused)
        self.set_moments(optimiser, updates, fused)
        return optimiser

    def set_moments(self, optimiser: torch.optim.Adam, updates: int, fused: bool = False) -> None:
        """Let an Adam over the parameters continue from these moments after `updates` updates."""
        means, squares = views(self.network, self.mean), views(self.network, self.square)
        device = self.weights.device if fused else "cpu"
        for name, parameter in self.network.named_parameters():
            step = torch.tensor(float(updates), device=device)
            optimiser.state[parameter] = {"step": step, "exp_avg": means[name], "exp_avg_sq": squares[name]}

    def flat_adam(self, lr: float, eps: float, updates: int) -> tuple[torch.optim.Adam, Tensor]:
        """Return a fused Adam over the whole weight vector, and the gradient vector `[P]` that it reads.

        The gradients of the parameters become views of that vector: zero it in place before each backward pass.
        """
        flat = nn.Parameter(self.weights, requires_grad=True)
        gradient = flat.grad = torch.zeros_like(self.weights)
        gradients = views(self.network, gradient)
        for name, parameter in self.network.named_parameters():
            parameter.grad = gradients[name]
        optimiser = torch.optim.Adam([flat], lr=lr, eps=eps, fused=True)
        step = torch.tensor(float(updates), device=self.weights.device)
        optimiser.state[flat] = {"step": step, "exp_avg": self.mean, "exp_avg_sq": self.square}
        return optimiser, gradient

    def checkpoint_tensors(self, prefix: str) -> dict[str, Tensor]:
        """Return views of weights and moments, named `prefix.kind.parameter`."""
        kinds = {"weights": self.weights, "adam_mean": self.mean, "adam_square": self.square}
        return {
            f"{prefix}.{kind}.{name}": view
            for kind, flat in kinds.items()
            for name, view in views(self.network, flat).items()
        }


class NetworkState:
    """A network with Adam's moments, and the number of updates; `name` is the prefix of its tensors in a checkpoint."""

    def __init__(self, network: nn.Module, name: str, device: str) -> None:
        self.device = device
        self.flat = FlatNetwork(network)
        self.updates = 0
        self._name = name

    def checkpoint_tensors(self) -> dict[str, Tensor]:
        """Return all tensors of a checkpoint by name, as views."""
        return self.flat.checkpoint_tensors(self._name)


class TargetState(Generic[NetworkT]):
    """An online network with Adam's moments, a target network that begins as its copy, and the number of updates."""

    def __init__(self, network: NetworkT, device: str) -> None:
        self.device = device
        self.network = network
        self.target_network = copy.deepcopy(network).requires_grad_(False)
        self.target_weights: Tensor = flatten(self.target_network)
        self.online = FlatNetwork(network)
        self.updates = 0

    def checkpoint_tensors(self) -> dict[str, Tensor]:
        """Return all tensors of a checkpoint by name, as views."""
        target = views(self.target_network, self.target_weights)
        named = {f"target.weights.{name}": view for name, view in target.items()}
        return self.online.checkpoint_tensors("online") | named


def take(arrays: Mapping[str, NDArray], name: str, shape: tuple[int, ...], dtype: DTypeLike = np.float32) -> NDArray:
    """Return a writable, contiguous copy of one array of a checkpoint, of this shape and type, and finite."""
    like = np.broadcast_to(np.zeros((), dtype), shape)
    return np.array(array_of(arrays, name, like, remedy="give a checkpoint of this learner and network"))


def generator_words(generator: np.random.Generator) -> NDArray[np.uint64]:
    """Encode the state of a PCG64 generator as six words."""
    state = generator.bit_generator.state
    low = (1 << 64) - 1
    numbers = [part for name in ("state", "inc") for part in (state["state"][name] & low, state["state"][name] >> 64)]
    return np.array([*numbers, state["has_uint32"], state["uinteger"]], dtype=np.uint64)


def take_generator(arrays: Mapping[str, NDArray]) -> dict[str, Any]:
    """Decode the array `noise_generator`, written by `generator_words`, into a value for `bit_generator.state`."""
    words = take(arrays, "noise_generator", (6,), np.uint64)
    state_low, state_high, inc_low, inc_high, has, kept = (int(word) for word in words)
    return random_state(
        {
            "bit_generator": "PCG64",
            "state": {"state": state_low | state_high << 64, "inc": inc_low | inc_high << 64},
            "has_uint32": has,
            "uinteger": kept,
        }
    )
