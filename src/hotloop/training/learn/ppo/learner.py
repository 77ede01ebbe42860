"""The PPO learner: one interface, two kernels that give the same numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hotloop.errors import HotloopError
from hotloop.training.learn.flat_params import Arrays, take_updates
from hotloop.training.learn.learner import Learner
from hotloop.training.learn.networks import check_rows
from hotloop.training.learn.ppo.state import F32, Kernel, PPOConfig, PPOState, PPOUpdated, Rollout

PPO_KERNELS = ("torch", "numba")


class Acted(NamedTuple):
    """What the policy did in N environments."""

    action: NDArray[np.int64]
    """`[N]`."""
    log_prob: F32
    """`[N]`, of the actions."""
    value: F32
    """`[N]`, of the observations."""


def drawn(logits: F32, value: F32, rng: np.random.Generator) -> Acted:
    """Draw actions by logits `[N, A]`, with one number of the generator for each row."""
    log_policy = logits - logits.max(axis=1, keepdims=True)
    log_policy -= np.log(np.exp(log_policy).sum(axis=1, keepdims=True))
    # The last action takes what rounding leaves of 1.
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


class PPO(Learner[PPOConfig, PPOState, Kernel]):
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
        """Draw actions from the policy, with one number of the generator for each observation."""
        return drawn(*self._evaluate(obs), rng)

    def _evaluate(self, obs: NDArray) -> tuple[F32, F32]:
        check_rows("obs", np.shape(obs), self.config.observation)
        return self._kernel.evaluate(obs)

    def update(self, rollout: Any, rng: np.random.Generator) -> PPOUpdated:
        """Learn from a rollout: `epochs` times all of its rows, in minibatches, in an order drawn anew each time.

        Args:
            rollout: Has the attributes of `Rollout`.
            rng: Draws the orders.

        Raises:
            HotloopError: The number of rows is not a multiple of the minibatch, or the observations do not fit.
        """
        rows, size = len(rollout.action), self.config.minibatch
        if rows == 0 or rows % size:
            raise HotloopError(f"an update got {rows} rows: give a multiple of the minibatch, {size}")
        check_rows("obs", np.shape(rollout.obs), self.config.observation)
        order = np.concatenate([rng.permutation(rows) for _ in range(self.config.epochs)]).reshape(-1, size)
        return PPOUpdated(*self._kernel.update(rollout, order).mean(axis=0).tolist())

    def tensors(self) -> Arrays:
        """Copy all that makes up the learner's state; `load` of it goes on bit by bit as this one would."""
        updates = np.array(self._state.updates, dtype=np.int64)
        return {**self._state.trained.tensors("actor_critic"), "updates": updates}

    def load(self, arrays: Mapping[str, NDArray]) -> None:
        """Take over what `tensors` gave, from a learner with the same networks and any kernel.

        Raises:
            HotloopError: Something is missing, has another shape or is not finite. The learner is unchanged then.
        """
        updates = take_updates(arrays)
        self._state.trained.load("actor_critic", arrays)
        self._state.updates = updates
        self.use(self.kernel)


__all__ = ["PPO", "PPO_KERNELS", "Acted", "PPOConfig", "PPOUpdated", "Rollout", "supported_ppo_kernels"]
