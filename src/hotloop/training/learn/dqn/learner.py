"""The DQN learner: one interface, several kernels that give the same numbers.

A learner knows transitions, weights and updates, and nothing of environments, replay or schedules. Its state is
the same whichever kernel advances it (see `trained`), so the kernel may be changed at any time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotloop.errors import HotloopError
from hotloop.training.learn.dqn.state import F32, DQNConfig, DQNState, Kernel, Transitions, Updated
from hotloop.training.learn.flat_params import Arrays, generator_words, take, take_generator, take_updates, views
from hotloop.training.learn.learner import Learner
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


class DQN(Learner[DQNConfig, DQNState, Kernel]):
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
        """Choose actions `[N]`: the best, or with probability ε any.

        A noisy network explores by noise that is drawn anew for each call; give it ε = 0. The generator is asked
        for the same amount whatever ε is.
        """
        check_rows("obs", np.shape(obs), self.config.shape.observation)
        count = len(obs)
        anything = rng.random(count) < epsilon
        actions = rng.integers(self.config.shape.actions, size=count)
        size = self._state.network.noise_size
        best = self._kernel.q_values(obs, self._draw(size) if size else None).argmax(axis=1)
        return np.where(anything, actions, best)

    def update(self, batch: Any) -> Updated:
        """Learn from K · `config.batch` rows: K updates, one after the other.

        Args:
            batch: Has the attributes of `Transitions`.

        Raises:
            HotloopError: The number of rows is not a multiple of the batch size, or the observations do not fit.
        """
        rows, size = len(batch.reward), self.config.batch
        if rows == 0 or rows % size:
            raise HotloopError(f"an update got {rows} rows: give a multiple of the batch size, {size}")
        check_rows("obs", np.shape(batch.obs), self.config.shape.observation)
        check_rows("next_obs", np.shape(batch.next_obs), self.config.shape.observation)
        noise_size = self._state.network.noise_size
        noise = self._draw(rows // size, 2, noise_size) if noise_size else None
        return self._kernel.update(batch, noise)

    def _draw(self, *shape: int) -> F32:
        """Noise as the factorised layers want it: `f(x) = sign(x) √|x|` of standard normal numbers."""
        x = self._noise.standard_normal(shape, dtype=np.float32)
        return np.sign(x) * np.sqrt(np.abs(x))

    def tensors(self) -> Arrays:
        """Copy all that makes up the learner's state; `load` of it goes on bit by bit as this one would."""
        state = self._state
        target = views(state.target_network, state.target_weights)
        return {
            **state.online.tensors("online"),
            **{f"target.weights.{name}": view.cpu().numpy().copy() for name, view in target.items()},
            "updates": np.array(state.updates, dtype=np.int64),
            "noise_generator": generator_words(self._noise),
        }

    def load(self, arrays: Mapping[str, NDArray]) -> None:
        """Take over what `tensors` gave, from a learner with the same network and any kernel.

        Raises:
            HotloopError: Something is missing, has another shape or is not finite. The learner is unchanged then.
        """
        import torch

        state = self._state
        target = views(state.target_network, state.target_weights)
        found = [(view, take(arrays, f"target.weights.{name}", tuple(view.shape))) for name, view in target.items()]
        updates, noise = take_updates(arrays), take_generator(arrays)
        state.online.load("online", arrays)
        for view, array in found:
            view.copy_(torch.from_numpy(array))
        state.updates = updates
        self._noise.bit_generator.state = noise
        self.use(self.kernel)


__all__ = ["DQN", "KERNELS", "DQNConfig", "Transitions", "Updated", "supported_kernels"]
