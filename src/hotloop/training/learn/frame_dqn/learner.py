"""DQN on stacked frames: double, dueling, with importance weights; several kernels that compute the same numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from hotloop.errors import HotloopError
from hotloop.phases import Phase
from hotloop.spans import span
from hotloop.training.learn.dqn.state import Transitions, Updated
from hotloop.training.learn.flat_params import Arrays
from hotloop.training.learn.frame_dqn.state import (
    FrameDQNConfig,
    FrameDQNState,
    FrameQRule,
    statistics,
)
from hotloop.training.learn.learner import F32, KernelLearner, TimePhase, TransitionBatch, check_row_count
from hotloop.training.state_checks import array_of

if TYPE_CHECKING:
    from hotloop.training.learn.frame_dqn.torch_kernels import Plain

FRAME_KERNELS = ("torch", "lean", "compile")
RECORDED_PHASES = {
    "input": Phase.TRANSFER,
    "target": Phase.FORWARD,
    "forward": Phase.FORWARD,
    "backward": Phase.BACKWARD,
    "adam": Phase.OPTIMISE,
    "soft update": Phase.SYNC_WEIGHTS,
}
"""The phase in a recording of each phase of an update."""


def as_span(name: str, /) -> AbstractContextManager[object]:
    """Time a phase of an update as a span of the recording."""
    return span(f"dqn.{name.replace(' ', '_')}", RECORDED_PHASES[name])


def _make_kernel(name: str, state: FrameDQNState) -> Plain:
    from hotloop.training.learn.frame_dqn import torch_kernels as kernels

    if name not in FRAME_KERNELS:
        raise HotloopError(f"there is no kernel {name!r} of DQN over frames: choose one of {', '.join(FRAME_KERNELS)}")
    return {"torch": kernels.Plain, "lean": kernels.Lean, "compile": kernels.Compiled}[name](state)


class FrameDQN(KernelLearner[FrameDQNConfig, FrameDQNState, "Plain"]):
    """A Q-learning agent on frames: acts, learns from batches, and can be saved.

    The rule is targets, loss and target rule, as pure functions: `dqn_mario` has them. The kernel is one of
    `FRAME_KERNELS`; torch computes on the device.
    """

    def __init__(
        self, config: FrameDQNConfig, rule: FrameQRule, *, seed: int = 0, kernel: str = "lean", device: str = "cpu"
    ) -> None:
        if config.precision == "float16" and not device.startswith("cuda"):
            raise HotloopError(f"precision float16 is for CUDA, not for {device}: give bfloat16 or float32")
        super().__init__(config, FrameDQNState(config, rule, seed, device), _make_kernel, kernel)

    def supported_kernels(self) -> list[str]:
        """Names of the kernels that can run this learner, the reference first."""
        return list(FRAME_KERNELS)

    def trial(self, kernel: str, updates: int) -> Callable[[], Updated]:
        """Return a call that does updates of random data with a copy of this learner.

        With gradient accumulation it is enough to measure one part of the batch.
        """
        part = replace(self.config, batch=self.config.batch // self.config.accumulate, accumulate=1)
        copy = FrameDQN(part, self._state.rule, kernel=kernel, device=self.device)
        copy.load(self.tensors())
        batch = random_frame_batch(part, updates, np.random.default_rng(0))
        return lambda: copy.update(batch)

    def q_values(self, obs: NDArray) -> F32:
        """Values `[N, A]` of all actions in observations `[N, stack, side, side]`, uint8."""
        return self._kernel.q_values(obs).cpu().numpy()

    def greedy(self, obs: NDArray) -> NDArray[np.int64]:
        """Best actions `[N]`."""
        return self.q_values(obs).argmax(axis=1)

    def update(self, batch: TransitionBatch, timed: TimePhase = as_span) -> Updated:
        """Do K updates with K · `config.batch` rows, in their order; `timed` times the phases of each.

        Observations are uint8 `[R, stack, side, side]`.
        """
        rows, size = len(batch.reward), self.config.batch
        check_row_count(rows, size)
        weight = np.ones(rows, np.float32) if batch.weight is None else batch.weight
        columns = (batch.obs, batch.action, batch.reward, batch.next_obs, batch.discount, weight)
        errors, losses = [], []
        for begin in range(0, rows, size):
            error, loss = self._kernel.update(tuple(each[begin : begin + size] for each in columns), timed)
            errors.append(error)
            losses.append(loss)
        return Updated(torch.cat(errors).cpu().numpy(), torch.stack(losses).cpu().numpy())  # host sync

    def weights(self) -> dict[str, torch.Tensor]:
        """Return the online network's tensors by name, for a policy. They are not copies: updates change them."""
        network = self._state.network
        return {name: each.detach() for name, each in network.named_parameters()} | statistics(network)

    def tensors(self) -> Arrays:
        """Copy the whole state of the learner, including the scale of its loss."""
        return {**super().tensors(), "loss_scale": np.array(self._state.loss_scale)}

    def load(self, arrays: Mapping[str, NDArray]) -> None:
        """Restore the state that `tensors` returned; see `KernelLearner.load`."""
        scale = array_of(arrays, "loss_scale", np.array(self._state.loss_scale), low=0)
        super().load(arrays)
        self._state.loss_scale = float(scale)
        self.use(self.kernel)  # a kernel reads the scale when it is made


def random_frame_batch(config: FrameDQNConfig, updates: int, rng: np.random.Generator) -> Transitions:
    """Make random transitions for some updates."""
    rows, shape = updates * config.batch, config.shape
    obs, next_obs = rng.integers(256, size=(2, rows, *shape.observation), dtype=np.uint8)
    numbers = rng.standard_normal((2, rows), dtype=np.float32)
    discount = np.where(numbers[1] > 2, np.float32(0), np.float32(0.95))
    weight = rng.random(rows, dtype=np.float32)
    return Transitions(obs, rng.integers(shape.actions, size=rows), numbers[0], next_obs, discount, weight)
