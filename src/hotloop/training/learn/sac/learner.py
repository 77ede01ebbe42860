"""The SAC learner (Haarnoja et al., 2018): one interface, two kernels that give the same numbers.

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
from hotloop.training.learn.flat_params import Arrays, generator_words, take, take_generator, take_updates, views
from hotloop.training.learn.learner import Learner, TimePhase
from hotloop.training.learn.sac.networks import SACShape, squash
from hotloop.training.learn.sac.state import F32, PHASES, Chance, SACConfig, SACKernel, SACState, SACUpdated

SAC_KERNELS = ("torch", "lean")
OF_PHASE = {
    "input": Phase.TRANSFER, "temperature": Phase.OPTIMISE, "soft update": Phase.SYNC_WEIGHTS,
    "backward": Phase.BACKWARD, "adam": Phase.OPTIMISE,
}  # fmt: skip
"""What the phases and parts of an update are in a recording; all others are forward passes."""
LEAN_ONLY = {"batched": False, "compiled": False, "precision": "float32"}
"""Options that only the kernel `lean` has, and what they are without it."""


def supported_sac_kernels(config: SACConfig, device: str = "cpu") -> list[str]:
    """Names of the kernels that can run this configuration, the reference first."""
    return ["lean"] if lean_options(config) else list(SAC_KERNELS)


def lean_options(config: SACConfig) -> list[str]:
    """Names of the options that are set and that only `lean` has."""
    return [name for name, usual in LEAN_ONLY.items() if getattr(config, name) != usual]


def as_span(name: str, /) -> AbstractContextManager[object]:
    """Time a phase of an update, or a part of one, as a span of the recording."""
    return span(f"sac.{name.replace(' ', '_')}", OF_PHASE.get(name, Phase.FORWARD))


def _make_kernel(name: str, state: SACState) -> SACKernel:
    from hotloop.training.learn.sac import torch_kernels

    if name not in SAC_KERNELS:
        raise HotloopError(f"there is no kernel {name!r} of SAC: choose one of {', '.join(SAC_KERNELS)}")
    if name not in supported_sac_kernels(state.config):
        options = ", ".join(lean_options(state.config))
        raise HotloopError(f"the kernel {name!r} of SAC cannot run with {options}: use 'lean', or leave that out")
    return {"torch": torch_kernels.Plain, "lean": torch_kernels.Lean}[name](state)


class SAC(Learner[SACConfig, SACState, SACKernel]):
    """A soft actor-critic: acts, learns from batches, and can be saved."""

    def __init__(self, config: SACConfig, *, seed: int = 0, kernel: str = "lean", device: str = "cpu") -> None:
        super().__init__(SACState(config, seed, device), _make_kernel, kernel)
        self._noise = np.random.Generator(np.random.PCG64(seed))

    @property
    def networks(self) -> tuple[torch.nn.Module, torch.nn.Module]:
        """The policy and the critics, to be looked at."""
        return self._state.policy, self._state.critics

    def greedy(self, obs: NDArray) -> F32:
        """Most likely actions `[N, A]`, each number from -1 to 1, for observations `[N, ...]`."""
        mean, _ = self._kernel.policy(obs)
        return mean.tanh().cpu().numpy()

    def act(self, obs: NDArray) -> F32:
        """Draw actions `[N, A]` for observations `[N, ...]`."""
        mean, log_std = self._kernel.policy(obs)
        action, _ = squash(mean, log_std, self._normal(len(obs), self.config.shape.actions))
        return action.cpu().numpy()

    def update(self, batch: Any, timed: TimePhase = as_span) -> SACUpdated:
        """Learn from K · `config.batch` rows: K updates, one after the other.

        Args:
            batch: Has obs, action float32 `[R, A]`, reward, next_obs and discount, like a replay's `Batch`.
            timed: Is told the phases of each update, and their parts.

        Raises:
            HotloopError: The number of rows is not a multiple of the batch size.
        """
        rows, size = len(batch.reward), self.config.batch
        if rows == 0 or rows % size:
            raise HotloopError(f"an update got {rows} rows: give a multiple of the batch size, {size}")
        told = []
        for begin in range(0, rows, size):
            part = slice(begin, begin + size)
            columns = (batch.obs, batch.action, batch.reward, batch.next_obs, batch.discount)
            told.append(self._kernel.update(tuple(each[part] for each in columns), self._chance(), timed))
        return SACUpdated(*torch.stack(told, dim=1).cpu().numpy())  # host sync

    def _chance(self) -> Chance:
        config = self.config
        size, shift = (config.batch, config.shape.actions), None
        if config.shift:
            shift = self._noise.integers(-config.shift, config.shift + 1, (2, config.batch, 2))
        return Chance(self._normal(*size), self._normal(*size), shift)

    def _normal(self, *shape: int) -> torch.Tensor:
        return torch.from_numpy(self._noise.standard_normal(shape, dtype=np.float32)).to(self._state.device)

    def tensors(self) -> Arrays:
        """Copy all that makes up the learner's state; `load` of it goes on bit by bit as this one would."""
        state = self._state
        target = views(state.target, state.target_weights)
        return {
            **state.actor.tensors("actor"),
            **state.critic.tensors("critic"),
            **{f"target.weights.{name}": view.cpu().numpy().copy() for name, view in target.items()},
            "temperature": state.temperature.cpu().numpy().copy(),
            "updates": np.array(state.updates, dtype=np.int64),
            "noise_generator": generator_words(self._noise),
        }

    def load(self, arrays: Mapping[str, NDArray]) -> None:
        """Take over what `tensors` gave, from a learner with the same networks and any kernel.

        Raises:
            HotloopError: Something is missing, has another shape or is not finite. The learner is unchanged then.
        """
        state = self._state
        target = views(state.target, state.target_weights)
        found = [(view, take(arrays, f"target.weights.{name}", tuple(view.shape))) for name, view in target.items()]
        updates, noise = take_updates(arrays), take_generator(arrays)
        temperature = take(arrays, "temperature", (3,))
        state.actor.check("actor", arrays)
        state.critic.load("critic", arrays)
        state.actor.load("actor", arrays)
        with torch.no_grad():
            for view, array in [*found, (state.temperature, temperature)]:
                view.copy_(torch.from_numpy(array))
        state.updates = updates
        self._noise.bit_generator.state = noise
        self.use(self.kernel)


__all__ = ["PHASES", "SAC", "SAC_KERNELS", "SACConfig", "SACShape", "SACUpdated", "supported_sac_kernels"]
