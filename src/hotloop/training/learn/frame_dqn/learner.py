"""The DQN learner over stacked frames: double, dueling, with importance weights, in several kernels of equal numbers.

A learner knows transitions, weights and updates, and nothing of environments, replay or schedules. Its state is
the same whichever kernel advances it (see `trained`), so the kernel may be changed at any time.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hotloop.errors import HotloopError
from hotloop.phases import Phase
from hotloop.spans import span
from hotloop.training.learn.dqn.state import F32, Updated
from hotloop.training.learn.flat_params import Arrays, take, take_updates, views
from hotloop.training.learn.frame_dqn.state import (
    PHASES,
    FrameDQNConfig,
    FrameDQNKernel,
    FrameDQNState,
    FrameQShape,
    statistics,
)
from hotloop.training.learn.learner import Learner, TimePhase
from hotloop.training.state_checks import array_of

FRAME_KERNELS = ("torch", "lean", "compile")
OF_PHASE = {
    "input": Phase.TRANSFER, "target": Phase.FORWARD, "forward": Phase.FORWARD, "backward": Phase.BACKWARD,
    "adam": Phase.OPTIMISE, "soft update": Phase.SYNC_WEIGHTS,
}  # fmt: skip
"""What the phases of an update are in a recording."""


def supported_frame_kernels(config: FrameDQNConfig, device: str = "cpu") -> list[str]:
    """Names of the kernels that can run this configuration, the reference first."""
    return list(FRAME_KERNELS)


def as_span(name: str, /) -> AbstractContextManager[object]:
    """Time a phase of an update as a span of the recording."""
    return span(f"dqn.{name.replace(' ', '_')}", OF_PHASE[name])


def _make_kernel(name: str, state: FrameDQNState) -> FrameDQNKernel:
    from hotloop.training.learn.frame_dqn import torch_kernels as kernels

    if name not in FRAME_KERNELS:
        raise HotloopError(f"there is no kernel {name!r} of DQN over frames: choose one of {', '.join(FRAME_KERNELS)}")
    return {"torch": kernels.Plain, "lean": kernels.Lean, "compile": kernels.Compiled}[name](state)


class FrameDQN(Learner[FrameDQNConfig, FrameDQNState, FrameDQNKernel]):
    """A Q-learning agent that looks at frames: acts, learns from batches, and can be saved."""

    def __init__(self, config: FrameDQNConfig, *, seed: int = 0, kernel: str = "lean", device: str = "cpu") -> None:
        if config.precision == "float16" and not device.startswith("cuda"):
            raise HotloopError(f"precision float16 is for CUDA, not for {device}: give bfloat16 or float32")
        super().__init__(FrameDQNState(config, seed, device), _make_kernel, kernel)

    def q_values(self, obs: NDArray) -> F32:
        """Values `[N, A]` of all actions in observations `[N, stack, side, side]`, uint8."""
        return self._kernel.q_values(obs).cpu().numpy()

    def greedy(self, obs: NDArray) -> NDArray[np.int64]:
        """Best actions `[N]`."""
        return self.q_values(obs).argmax(axis=1)

    def update(self, batch: Any, timed: TimePhase = as_span) -> Updated:
        """Learn from K · `config.batch` rows: K updates, one after the other.

        Args:
            batch: Has the attributes of `Transitions`, as a batch of hotloop.training.replay has.
            timed: Is told the phases of each update.

        Raises:
            HotloopError: The number of rows is not a multiple of the batch size.
        """
        rows, size = len(batch.reward), self.config.batch
        if rows == 0 or rows % size:
            raise HotloopError(f"an update got {rows} rows: give a multiple of the batch size, {size}")
        weight = np.ones(rows, np.float32) if batch.weight is None else batch.weight
        columns = (batch.obs, batch.action, batch.reward, batch.next_obs, batch.discount, weight)
        errors, losses = [], []
        for begin in range(0, rows, size):
            error, loss = self._kernel.update(tuple(each[begin : begin + size] for each in columns), timed)
            errors.append(error)
            losses.append(loss)
        return Updated(torch.cat(errors).cpu().numpy(), torch.stack(losses).cpu().numpy())  # host sync

    def weights(self) -> dict[str, torch.Tensor]:
        """Return the online network as it is now, by name: what a policy needs. It changes with the next update."""
        network = self._state.network
        return {name: each.detach() for name, each in network.named_parameters()} | statistics(network)

    def tensors(self) -> Arrays:
        """Copy all that makes up the learner's state; `load` of it goes on bit by bit as this one would."""
        state = self._state
        held = {f"target.weights.{name}": each for name, each in self._target().items()} | self._statistics()
        return {
            **state.online.tensors("online"),
            **{name: each.cpu().numpy().copy() for name, each in held.items()},
            "updates": np.array(state.updates, dtype=np.int64),
            "loss_scale": np.array(state.loss_scale),
        }

    def load(self, arrays: Mapping[str, NDArray]) -> None:
        """Take over what `tensors` gave, from a learner with the same network and any kernel.

        Raises:
            HotloopError: Something is missing, has another shape or is not finite. The learner is unchanged then.
        """
        state = self._state
        held = {f"target.weights.{name}": each for name, each in self._target().items()} | self._statistics()
        found = [(each, take(arrays, name, tuple(each.shape))) for name, each in held.items()]
        updates = take_updates(arrays)
        scale = array_of(arrays, "loss_scale", np.array(state.loss_scale), low=0)
        state.online.load("online", arrays)
        with torch.no_grad():
            for tensor, array in found:
                tensor.copy_(torch.from_numpy(array))
        state.updates, state.loss_scale = updates, float(scale)
        self.use(self.kernel)

    def _target(self) -> dict[str, torch.Tensor]:
        return views(self._state.target_network, self._state.target_weights)

    def _statistics(self) -> dict[str, torch.Tensor]:
        networks = {"online": self._state.network, "target": self._state.target_network}
        return {
            f"{which}.statistics.{name}": each
            for which, network in networks.items()
            for name, each in statistics(network).items()
        }


__all__ = [
    "FRAME_KERNELS",
    "PHASES",
    "FrameDQN",
    "FrameDQNConfig",
    "FrameQShape",
    "supported_frame_kernels",
]
