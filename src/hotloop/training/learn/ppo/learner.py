"""The PPO learner: one interface, two kernels that compute the same numbers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hotloop.errors import HotloopError
from hotloop.training.learn.learner import F32, KernelLearner, check_row_count
from hotloop.training.learn.networks import check_rows
from hotloop.training.learn.ppo.state import Kernel, PPOConfig, PPOState, PPOUpdated, Rollout

PPO_KERNELS = ("torch", "numba")


class Acted(NamedTuple):
    """Actions of the policy in N environments."""

    action: NDArray[np.int64]
    """`[N]`."""
    log_prob: F32
    """`[N]`: of the actions."""
    value: F32
    """`[N]`: of the observations."""


def sample_actions(logits: F32, value: F32, rng: np.random.Generator) -> Acted:
    """Sample actions from logits `[N, A]`, with one random number per row."""
    log_policy = logits - logits.max(axis=1, keepdims=True)
    log_policy -= np.log(np.exp(log_policy).sum(axis=1, keepdims=True))
    # The last action gets the rest, so that rounding errors of the sum do not matter.
    below = np.exp(log_policy[:, :-1]).cumsum(axis=1) <= rng.random(len(logits), dtype=np.float32)[:, None]
    action = below.sum(axis=1)
    return Acted(action, np.take_along_axis(log_policy, action[:, None], axis=1)[:, 0], value)


def supported_ppo_kernels(config: PPOConfig, device: str = "cpu") -> list[str]:
    """Names of the kernels that can run this configuration, the reference first."""
    small = len(config.observation) == 1 and device == "cpu"
    return list(PPO_KERNELS) if small else ["torch"]


def _make_kernel(name: str, state: PPOState) -> Kernel:
    supported = supported_ppo_kernels(state.config, state.device)
    if name not in supported:
        raise HotloopError(f"the PPO learner cannot use the kernel {name!r} here: choose one of {', '.join(supported)}")
    if name == "numba":
        from hotloop.training.learn.ppo.fused import FusedMLP

        return FusedMLP(state)
    from hotloop.training.learn.ppo.torch_kernels import Plain

    return Plain(state)


class PPO(KernelLearner[PPOConfig, PPOState, Kernel]):
    """A policy-gradient agent: acts, learns from rollouts, and can be saved."""

    def __init__(self, config: PPOConfig, *, seed: int = 0, kernel: str = "torch", device: str = "cpu") -> None:
        super().__init__(PPOState(config, seed, device), _make_kernel, kernel)

    def logits(self, obs: NDArray) -> F32:
        """Logits `[N, A]` of the policy."""
        return self._evaluate(obs)[0]

    def value(self, obs: NDArray) -> F32:
        """Values `[N]` of observations `[N, ...]`."""
        return self._evaluate(obs)[1]

    def greedy(self, obs: NDArray) -> NDArray[np.int64]:
        """Most probable actions `[N]`."""
        return self.logits(obs).argmax(axis=1)

    def act(self, obs: NDArray, rng: np.random.Generator) -> Acted:
        """Sample actions from the policy, with one random number per observation."""
        return sample_actions(*self._evaluate(obs), rng)

    def _evaluate(self, obs: NDArray) -> tuple[F32, F32]:
        check_rows("obs", np.shape(obs), self.config.observation)
        return self._kernel.evaluate(obs)

    def update(self, rollout: Rollout, rng: np.random.Generator) -> PPOUpdated:
        """Do `epochs` passes over a rollout in minibatches, shuffled by `rng` for each pass.

        Raises:
            HotloopError: The number of rows is not a multiple of the minibatch, or the observations do not fit.
        """
        rows, size = len(rollout.action), self.config.minibatch
        check_row_count(rows, size, "minibatch")
        check_rows("obs", np.shape(rollout.obs), self.config.observation)
        order = np.concatenate([rng.permutation(rows) for _ in range(self.config.epochs)]).reshape(-1, size)
        return PPOUpdated(*self._kernel.update(rollout, order).mean(axis=0).tolist())


__all__ = ["PPO", "PPO_KERNELS", "Acted", "PPOConfig", "PPOUpdated", "Rollout", "supported_ppo_kernels"]
