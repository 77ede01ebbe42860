"""The DQN learner: one interface, several kernels that compute the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hotloop.training.learn.dqn.state import F32, DQNConfig, DQNState, QRule, Transitions, Updated
from hotloop.training.learn.learner import (
    NoisyLearner,
    TransitionBatch,
    check_kernel,
    check_row_count,
    random_observations,
)
from hotloop.training.learn.networks import check_rows

if TYPE_CHECKING:
    from hotloop.training.learn.dqn.numba_kernel import FusedMLP
    from hotloop.training.learn.dqn.torch_kernels import Plain

KERNELS = ("torch", "torch-fused", "compile", "numba")


def _supported(state: DQNState) -> list[str]:
    shape = state.config.shape
    small = len(shape.observation) == 1 and shape.atoms == 1
    return [name for name in KERNELS if name != "numba" or (small and state.rule.numba and state.device == "cpu")]


def _make_kernel(name: str, state: DQNState) -> Plain | FusedMLP:
    check_kernel(name, KERNELS, _supported(state), state.rule.numba)
    if name == "numba":
        from hotloop.training.learn.dqn.numba_kernel import FusedMLP

        return FusedMLP(state)
    from hotloop.training.learn.dqn import torch_kernels

    kernels = {"torch": torch_kernels.Plain, "torch-fused": torch_kernels.Fused, "compile": torch_kernels.Compiled}
    return kernels[name](state)


class DQN(NoisyLearner[DQNConfig, DQNState, "Plain | FusedMLP"]):
    """A Q-learning agent: acts, learns from batches, and can be saved.

    The rule is loss and target rule, as pure functions: `dqn_snake` has them. The seed is that of the weights and of
    the noise. The kernel is one of `KERNELS`; torch computes on the device.
    """

    def __init__(
        self, config: DQNConfig, rule: QRule, *, seed: int = 0, kernel: str = "torch", device: str = "cpu"
    ) -> None:
        super().__init__(config, DQNState(config, rule, seed, device), _make_kernel, kernel, seed)

    def supported_kernels(self) -> list[str]:
        """Names of the kernels that can run this learner, the reference first."""
        return _supported(self._state)

    def trial(self, kernel: str, updates: int) -> Callable[[], Updated]:
        """Return a call that does updates of random data with a copy of this learner."""
        copy = DQN(self.config, self._state.rule, kernel=kernel, device=self.device)
        copy.load(self.tensors())
        batch = random_dqn_batch(self.config, updates, np.random.default_rng(0))
        return lambda: copy.update(batch)

    def q_values(self, obs: NDArray) -> F32:
        """Values `[N, A]` of all actions in observations `[N, ...]`, without noise."""
        check_rows("obs", np.shape(obs), self.config.shape.observation)
        return self._kernel.q_values(obs, None)

    def greedy(self, obs: NDArray) -> NDArray[np.int64]:
        """Best actions `[N]` for observations `[N, ...]`, without noise."""
        return self.q_values(obs).argmax(axis=1)

    def act(self, obs: NDArray, epsilon: float, rng: np.random.Generator) -> NDArray[np.int64]:
        """Choose actions `[N]`: the best one, or with probability ε a random one.

        A noisy network explores by noise that is redrawn for each call; give it ε = 0. The amount drawn from the
        generator does not depend on ε.
        """
        check_rows("obs", np.shape(obs), self.config.shape.observation)
        count = len(obs)
        explores = rng.random(count) < epsilon
        random_actions = rng.integers(self.config.shape.actions, size=count)
        size = self._state.network.noise_size
        best = self._kernel.q_values(obs, self._draw_noise(size) if size else None).argmax(axis=1)
        return np.where(explores, random_actions, best)

    def update(self, batch: TransitionBatch) -> Updated:
        """Do K updates with K · `config.batch` rows, in their order."""
        rows, size = len(batch.reward), self.config.batch
        check_row_count(rows, size)
        check_rows("obs", np.shape(batch.obs), self.config.shape.observation)
        check_rows("next_obs", np.shape(batch.next_obs), self.config.shape.observation)
        noise_size = self._state.network.noise_size
        noise = self._draw_noise(rows // size, 2, noise_size) if noise_size else None
        return self._kernel.update(batch, noise)

    def _draw_noise(self, *shape: int) -> F32:
        """Draw noise for factorised noisy layers: `f(x) = sign(x) √|x|` of standard normal numbers."""
        x = self._noise.standard_normal(shape, dtype=np.float32)
        return np.sign(x) * np.sqrt(np.abs(x))


def random_dqn_batch(config: DQNConfig, updates: int, rng: np.random.Generator) -> Transitions:
    """Make random transitions for some updates."""
    rows, shape = updates * config.batch, config.shape
    obs, next_obs = (random_observations(shape.observation, rows, rng) for _ in range(2))
    numbers = rng.standard_normal((2, rows), dtype=np.float32)
    discount = np.where(numbers[1] > 2, np.float32(0), np.float32(0.99))
    return Transitions(obs, rng.integers(shape.actions, size=rows), numbers[0], next_obs, discount)
