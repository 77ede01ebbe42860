"""VectorReplay: transitions with flat observations, added a vector step at a time and gathered by one kernel.

A record holds a whole transition, both observations included, in one stretch of memory. Sampling a transition costs
one or two cache misses, and the last observation of an episode needs no slot of its own. n-step returns are computed
when sampled, so adding needs no bookkeeping at episode ends, truncations or the head of the ring.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from hotloop.training.replay.base import Replay
from hotloop.training.replay.batch import Batch
from hotloop.training.replay.kernels import Shape, gather
from hotloop.training.replay.record_layout import as_column, record_dtype, words_of
from hotloop.training.replay.ring_layout import Layout, Ring, check_returns, guard_of, lane_length
from hotloop.training.replay.samplers import Prioritised, draw_intact
from hotloop.training.replay.writers import VectorWriter
from hotloop.training.shared_memory import Where


class VectorReplay(Replay):
    """A ring of transitions with flat observations, one lane for each of N environments.

    Args:
        capacity: Transitions to keep. Each environment gets capacity // num_envs of them.
        num_envs: N.
        obs_shape: Shape of one observation.
        obs_dtype: Dtype of observations; float32 for features, uint8 for grids.
        action_shape: Shape of one action; () if discrete.
        action_dtype: Dtype of actions.
        n_step: Number of rewards summed before bootstrapping.
        gamma: Discount per step.
        prioritised: Options of prioritised sampling; None samples uniformly.
        storage: "memory", "shared" (several writing processes), or the Path of a new file (may exceed memory).
        guard: Oldest steps per environment that are not sampled while other processes write; None for a default.
    """

    def __init__(  # noqa: PLR0913  the options of a replay, all with defaults
        self,
        capacity: int,
        num_envs: int,
        obs_shape: tuple[int, ...],
        obs_dtype: DTypeLike = np.float32,
        *,
        action_shape: tuple[int, ...] = (),
        action_dtype: DTypeLike = np.int64,
        n_step: int = 1,
        gamma: float = 0.99,
        prioritised: Prioritised | None = None,
        storage: Where = "memory",
        guard: int | None = None,
    ) -> None:
        check_returns(n_step, gamma)
        guard = guard_of(storage, guard, capacity, num_envs)
        length = lane_length(capacity, num_envs, guard + n_step)
        record = record_dtype(
            action=(action_dtype, action_shape), obs=(obs_dtype, obs_shape), next_obs=(obs_dtype, obs_shape)
        )
        ring = Ring.make(Layout(record, Shape(num_envs, length, guard, 0, n_step - 1)), storage)
        self._writer = VectorWriter(ring, 0, num_envs)
        super().__init__(ring, self._writer, prioritised)
        self._returns = (n_step, float(gamma))
        columns = record.fields or {}
        self._action, self._obs = columns["action"][0], columns["obs"][0]

    def add(
        self,
        obs: ArrayLike,
        action: ArrayLike,
        reward: ArrayLike,
        terminated: ArrayLike,
        truncated: ArrayLike,
        next_obs: ArrayLike,
    ) -> None:
        """Add one step of every environment.

        Args:
            obs: Observations before the step, [N, *obs_shape].
            action: [N, *action_shape].
            reward: [N].
            terminated: bool [N].
            truncated: bool [N].
            next_obs: Observations after the step, [N, *obs_shape]. Where an episode ended, its last observation and
                not the first one of the next episode.
        """
        self._writer.add(obs, action, reward, terminated, truncated, next_obs)

    def sample(self, batch: int, rng: np.random.Generator, beta: float | None = None) -> Batch[np.ndarray]:
        """Draw transitions with replacement. For K updates at once, draw K batches in one call and split it.

        One number is drawn from `rng`. `beta` is the exponent of the importance weights; None for that of
        `Prioritised`.
        """
        return draw_intact(self._ring, batch, rng, lambda seed: self._gather(batch, seed, beta))

    def _gather(self, batch: int, seed: int, beta: float | None) -> Batch[np.ndarray]:
        ids, weight = self._sampler.draw(batch, seed, beta)
        action = np.empty((batch, words_of(self._action)), np.uint32)
        obs = np.empty((batch, words_of(self._obs)), np.uint32)
        next_obs = np.empty_like(obs)
        reward, discount = np.empty(batch, np.float32), np.empty(batch, np.float32)
        ring, out = self._ring, (action, obs, next_obs, reward, discount)
        gather(ring.words, ring.floats, ring.shape, ids, self._returns, out)
        return Batch(
            as_column(obs, self._obs),
            as_column(action, self._action),
            reward,
            as_column(next_obs, self._obs),
            discount,
            ids,
            weight,
        )
