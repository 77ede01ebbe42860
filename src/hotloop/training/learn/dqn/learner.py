"""The DQN learner: one interface, several kernels that compute the same numbers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from hotloop.errors import HotloopError
from hotloop.training.learn.dqn.state import F32, DQNConfig, DQNState, Kernel, Transitions, Updated
from hotloop.training.learn.flat_params import Arrays, generator_words, take_generator
from hotloop.training.learn.learner import KernelLearner, TransitionBatch, check_row_count
from hotloop.training.learn.networks import check_rows

KERNELS = ("torch", "torch-fused", "compile", "numba")


def supported_kernels(config: DQNConfig, device: str = "cpu") -> list[str]:
    """Names of the kernels that can run this configuration, the reference first."""
    shape = config.shape
    small = len(shape.observation) == 1 and shape.atoms == 1
    return [name for name in KERNELS if name != "numba" or (small and device == "cpu")]


def _make_kernel(name: str, state: DQNState) -> Kernel:
    if name not in KERNELS:
        raise HotloopError(f"there is no kernel {name!r}: choose one of {', '.join(KERNELS)}")
    supported = supported_kernels(state.config, state.device)
    if name not in supported:
        raise HotloopError(f"the {name!r} kernel cannot run this network: choose one of {', '.join(supported)}")
    if name == "numba":
        from hotloop.training.learn.dqn.fused import FusedMLP

        return FusedMLP(state)
    from hotloop.training.learn.dqn import torch_kernels

    kernels = {"torch": torch_kernels.Plain, "torch-fused": torch_kernels.Fused, "compile": torch_kernels.Compiled}
    return kernels[name](state)


class DQN(KernelLearner[DQNConfig, DQNState, Kernel]):
    """A Q-learning agent: acts, learns from batches, and can be saved."""

    def __init__(self, config: DQNConfig, *, seed: int = 0, kernel: str = "torch", device: str = "cpu") -> None:
        super().__init__(DQNState(config, seed, device), _make_kernel, kernel)
        self._noise = np.random.Generator(np.random.PCG64(seed))

    def q_values(self, obs: NDArray) -> F32:
        """Values `[N, A]` of all actions in observations `[N, ...]`, without noise.

        Raises:
            HotloopError: The network was made for observations of another shape.
        """
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
        """Do K updates with K · `config.batch` rows, in their order.

        Raises:
            HotloopError: The number of rows is not a multiple of the batch size, or the observations do not fit.
        """
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

    def tensors(self) -> Arrays:
        """Copy the whole state of the learner, including the generator of its noise."""
        return {**super().tensors(), "noise_generator": generator_words(self._noise)}

    def load(self, arrays: Mapping[str, NDArray]) -> None:
        """Restore the state that `tensors` returned; see `KernelLearner.load`."""
        noise = take_generator(arrays)
        super().load(arrays)
        self._noise.bit_generator.state = noise


__all__ = ["DQN", "KERNELS", "DQNConfig", "Transitions", "Updated", "supported_kernels"]
