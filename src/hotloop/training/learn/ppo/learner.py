"""The PPO learner: one interface, two kernels that compute the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hotloop.training.learn.learner import F32, KernelLearner, check_kernel, check_row_count, random_observations
from hotloop.training.learn.networks import check_rows
from hotloop.training.learn.ppo.state import PPOConfig, PPORule, PPOState, PPOUpdated, Rollout

if TYPE_CHECKING:
    from hotloop.training.learn.ppo.numba_kernel import FusedMLP
    from hotloop.training.learn.ppo.torch_kernels import Plain

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


def _supported(state: PPOState) -> list[str]:
    small = len(state.config.observation) == 1 and state.device == "cpu"
    return list(PPO_KERNELS) if small and state.rule.numba else ["torch"]


def _make_kernel(name: str, state: PPOState) -> Plain | FusedMLP:
    check_kernel(name, PPO_KERNELS, _supported(state), state.rule.numba)
    if name == "numba":
        from hotloop.training.learn.ppo.numba_kernel import FusedMLP

        return FusedMLP(state)
    from hotloop.training.learn.ppo.torch_kernels import Plain

    return Plain(state)


class PPO(KernelLearner[PPOConfig, PPOState, "Plain | FusedMLP"]):
    """A policy-gradient agent: acts, learns from rollouts, and can be saved.

    The rule is the loss, as a pure function: `ppo_snake` has it. The kernel is one of `PPO_KERNELS`; torch computes on
    the device.
    """

    def __init__(
        self, config: PPOConfig, rule: PPORule, *, seed: int = 0, kernel: str = "torch", device: str = "cpu"
    ) -> None:
        super().__init__(config, PPOState(config, rule, seed, device), _make_kernel, kernel)

    def supported_kernels(self) -> list[str]:
        """Names of the kernels that can run this learner, the reference first."""
        return _supported(self._state)

    def trial(self, kernel: str, updates: int) -> Callable[[], F32]:
        """Return a call that does updates of random data with a copy of this learner."""
        copy, rng = PPO(self.config, self._state.rule, kernel=kernel, device=self.device), np.random.default_rng(0)
        copy.load(self.tensors())
        rollout, size = random_rollout(self.config, rng), self.config.minibatch
        order = rng.permutation(len(rollout.action)).reshape(-1, size)[:updates]
        order = np.ascontiguousarray(np.resize(order, (updates, size)))
        return lambda: copy._kernel.update(rollout, order)

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

        The rollout must have a multiple of the minibatch's rows.
        """
        rows, size = len(rollout.action), self.config.minibatch
        check_row_count(rows, size, "minibatch")
        check_rows("obs", np.shape(rollout.obs), self.config.observation)
        order = np.concatenate([rng.permutation(rows) for _ in range(self.config.epochs)]).reshape(-1, size)
        return PPOUpdated(*self._kernel.update(rollout, order).mean(axis=0).tolist())


def random_rollout(config: PPOConfig, rng: np.random.Generator) -> Rollout:
    """Make a random rollout of 8 minibatches."""
    rows = 8 * config.minibatch
    numbers = rng.standard_normal((2, rows), dtype=np.float32)
    log_prob = np.full(rows, -np.log(config.actions), dtype=np.float32)
    action = rng.integers(config.actions, size=rows)
    return Rollout(random_observations(config.observation, rows, rng), action, log_prob, numbers[0], numbers[1])
