"""The SAC learner (Haarnoja et al., 2018): one interface, two kernels that compute the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from hotloop.errors import HotloopError
from hotloop.phases import Phase
from hotloop.spans import span
from hotloop.training.learn.dqn.state import Transitions
from hotloop.training.learn.learner import (
    F32,
    NoisyLearner,
    TimePhase,
    TransitionBatch,
    check_row_count,
    random_observations,
)
from hotloop.training.learn.sac.networks import squash
from hotloop.training.learn.sac.state import Noise, SACConfig, SACRule, SACState, SACUpdated

if TYPE_CHECKING:
    from hotloop.training.learn.sac.torch_kernels import Plain

SAC_KERNELS = ("torch", "lean")
RECORDED_PHASES = {
    "input": Phase.TRANSFER,
    "temperature": Phase.OPTIMISE,
    "soft update": Phase.SYNC_WEIGHTS,
    "backward": Phase.BACKWARD,
    "adam": Phase.OPTIMISE,
}
"""The phase in a recording of each part of an update; all other parts are forward passes."""


def _lean_options(config: SACConfig) -> list[str]:
    """Names of the options in use that only the kernel `lean` supports."""
    used = {"batched": config.batched, "compiled": config.compiled, "precision": config.precision != "float32"}
    return [name for name, is_used in used.items() if is_used]


def as_span(name: str, /) -> AbstractContextManager[object]:
    """Time a phase of an update, or a part of one, as a span of the recording."""
    return span(f"sac.{name.replace(' ', '_')}", RECORDED_PHASES.get(name, Phase.FORWARD))


def _make_kernel(name: str, state: SACState) -> Plain:
    from hotloop.training.learn.sac import torch_kernels

    if name not in SAC_KERNELS:
        raise HotloopError(f"there is no kernel {name!r} of SAC: choose one of {', '.join(SAC_KERNELS)}")
    options = ", ".join(_lean_options(state.config))
    if options and name != "lean":
        raise HotloopError(f"the kernel {name!r} of SAC cannot run with {options}: use 'lean', or leave that out")
    return {"torch": torch_kernels.Plain, "lean": torch_kernels.Lean}[name](state)


class SAC(NoisyLearner[SACConfig, SACState, "Plain"]):
    """A soft actor-critic: acts, learns from batches, and can be saved.

    The rule is losses and target rule, as pure functions: `sac_carracing` has them. The seed is that of the weights and
    of the noise. The kernel is one of `SAC_KERNELS`; torch computes on the device.
    """

    def __init__(
        self, config: SACConfig, rule: SACRule, *, seed: int = 0, kernel: str = "lean", device: str = "cpu"
    ) -> None:
        super().__init__(config, SACState(config, rule, seed, device), _make_kernel, kernel, seed)

    def supported_kernels(self) -> list[str]:
        """Names of the kernels that can run this learner, the reference first."""
        return ["lean"] if _lean_options(self.config) else list(SAC_KERNELS)

    def trial(self, kernel: str, updates: int) -> Callable[[], SACUpdated]:
        """Return a call that does updates of random data with a copy of this learner."""
        copy = SAC(self.config, self._state.rule, kernel=kernel, device=self.device)
        copy.load(self.tensors())
        batch = random_sac_batch(self.config, updates, np.random.default_rng(0))
        return lambda: copy.update(batch)

    def greedy(self, obs: NDArray) -> F32:
        """Most likely actions `[N, A]`, each number from -1 to 1, for observations `[N, ...]`."""
        mean, _ = self._kernel.policy(obs)
        return mean.tanh().cpu().numpy()

    def act(self, obs: NDArray) -> F32:
        """Sample actions `[N, A]` for observations `[N, ...]`."""
        mean, log_std = self._kernel.policy(obs)
        action, _ = squash(mean, log_std, self._normal(len(obs), self.config.shape.actions))
        return action.cpu().numpy()

    def update(self, batch: TransitionBatch, timed: TimePhase = as_span) -> SACUpdated:
        """Do K updates with K · `config.batch` rows, in their order. Actions are float32 `[R, A]`.

        `timed` times the phases of each update, and their parts.
        """
        rows, size = len(batch.reward), self.config.batch
        check_row_count(rows, size)
        columns = (batch.obs, batch.action, batch.reward, batch.next_obs, batch.discount)
        metrics = []
        for begin in range(0, rows, size):
            part = slice(begin, begin + size)
            metrics.append(self._kernel.update(tuple(each[part] for each in columns), self._draw_noise(), timed))
        return SACUpdated(*torch.stack(metrics, dim=1).cpu().numpy())  # host sync

    def _draw_noise(self) -> Noise:
        config = self.config
        size, shift = (config.batch, config.shape.actions), None
        if config.shift:
            shift = self._noise.integers(-config.shift, config.shift + 1, (2, config.batch, 2))
        return Noise(self._normal(*size), self._normal(*size), shift)

    def _normal(self, *shape: int) -> torch.Tensor:
        return torch.from_numpy(self._noise.standard_normal(shape, dtype=np.float32)).to(self._state.device)


def random_sac_batch(config: SACConfig, updates: int, rng: np.random.Generator) -> Transitions:
    """Make random transitions for some updates."""
    rows, shape = updates * config.batch, config.shape
    obs, next_obs = (random_observations(shape.observation, rows, rng) for _ in range(2))
    action = rng.uniform(-1, 1, (rows, shape.actions)).astype(np.float32)
    reward = rng.standard_normal(rows, dtype=np.float32)
    return Transitions(obs, action, reward, next_obs, np.full(rows, 0.99, np.float32))
