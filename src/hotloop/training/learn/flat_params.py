"""A network in training as flat vectors: weights and Adam's two moments.

The parameters of the torch module are views of the one vector of weights. So a kernel written in torch and one
written in numba work on the same memory: changing the kernel copies nothing, a target network is updated by one
operation, Adam is one loop, and what a checkpoint holds does not depend on the kernel that wrote it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import psutil
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hotloop.errors import HotloopError
from hotloop.training.state_checks import MOST, array_of, random_state

Arrays = dict[str, NDArray]
COPIES = 3
"""Vectors of the size of a network that training holds: weights, and Adam's two moments."""


def build_seeded(make: Callable[[], nn.Module], seed: int, device: str) -> nn.Module:
    """Make a network whose initial weights depend on the seed only; torch's own generator is left as it was.

    Raises:
        HotloopError: It would not fit into memory.
    """
    with torch.random.fork_rng(devices=[]):
        _check_size(make)
        torch.manual_seed(seed)
        return make().to(device)


def _check_size(make: Callable[[], nn.Module]) -> None:
    """Refuse a network that does not fit, before any of its memory is asked for."""
    try:
        with torch.device("meta"):
            size = sum(each.numel() * each.element_size() for each in make().parameters())
    except RuntimeError as error:  # the number of its weights is no 64-bit number
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
    """Cut a vector `[P]` into the shapes of a network's parameters, by name."""
    cut, begin = {}, 0
    for name, parameter in network.named_parameters():
        cut[name] = flat[begin : begin + parameter.numel()].view(parameter.shape)
        begin += parameter.numel()
    return cut


class Trained:
    """A network, the vector of its weights, and Adam's moments of the same length."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network
        self.weights = flatten(network)
        self.mean = torch.zeros_like(self.weights)
        self.square = torch.zeros_like(self.weights)

    def adam(self, lr: float, eps: float, updates: int, fused: bool = False) -> torch.optim.Adam:
        """Make torch's Adam for the parameters, on these moments, as if it had done so many updates."""
        optimiser = torch.optim.Adam(self.network.parameters(), lr=lr, eps=eps, fused=fused)
        means, squares = views(self.network, self.mean), views(self.network, self.square)
        device = self.weights.device if fused else "cpu"
        for name, parameter in self.network.named_parameters():
            step = torch.tensor(float(updates), device=device)
            optimiser.state[parameter] = {"step": step, "exp_avg": means[name], "exp_avg_sq": squares[name]}
        return optimiser

    def tensors(self, prefix: str) -> Arrays:
        """Copy weights and moments to the host, each under the name of its parameter."""
        kinds = {"weights": self.weights, "adam_mean": self.mean, "adam_square": self.square}
        return {
            f"{prefix}.{kind}.{name}": view.cpu().numpy().copy()
            for kind, flat in kinds.items()
            for name, view in views(self.network, flat).items()
        }

    def load(self, prefix: str, arrays: Mapping[str, NDArray]) -> None:
        """Take over what `tensors` gave, in place.

        Raises:
            HotloopError: An array is missing, has another shape or is not finite. Nothing was changed then.
        """
        for view, array in self._found(prefix, arrays):
            view.copy_(torch.from_numpy(array))

    def check(self, prefix: str, arrays: Mapping[str, NDArray]) -> None:
        """Raise what `load` would, and change nothing."""
        self._found(prefix, arrays)

    def _found(self, prefix: str, arrays: Mapping[str, NDArray]) -> list[tuple[Tensor, NDArray]]:
        kinds = {"weights": self.weights, "adam_mean": self.mean, "adam_square": self.square}
        return [
            (view, take(arrays, f"{prefix}.{kind}.{name}", tuple(view.shape)))
            for kind, flat in kinds.items()
            for name, view in views(self.network, flat).items()
        ]


def take(arrays: Mapping[str, NDArray], name: str, shape: tuple[int, ...], dtype: Any = np.float32) -> NDArray:
    """Return a writable, contiguous copy of one array of a checkpoint.

    Raises:
        HotloopError: It is missing, has another shape or type, or its numbers are not finite.
    """
    like = np.broadcast_to(np.zeros((), dtype), shape)
    return np.array(array_of(arrays, name, like, remedy="give a checkpoint of this learner and network"))


def take_updates(arrays: Mapping[str, NDArray]) -> int:
    """Return how many updates a checkpoint's learner has done."""
    return int(array_of(arrays, "updates", np.zeros((), np.int64), low=0, high=MOST))


def generator_words(generator: np.random.Generator) -> NDArray[np.uint64]:
    """Write the state of a PCG64 generator as six words."""
    state = generator.bit_generator.state
    low = (1 << 64) - 1
    numbers = [part for name in ("state", "inc") for part in (state["state"][name] & low, state["state"][name] >> 64)]
    return np.array([*numbers, state["has_uint32"], state["uinteger"]], dtype=np.uint64)


def take_generator(arrays: Mapping[str, NDArray]) -> dict[str, Any]:
    """Return the state of a generator, for `bit_generator.state`, that `generator_words` wrote as `noise_generator`."""
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
