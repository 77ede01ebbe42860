"""VectorReplay: transitions of flat observations, added by the whole vector step and gathered by one kernel.

A record holds everything of a transition, both observations included, in one stretch of memory: a sampled transition
costs one or two cache misses, and the last observation of an episode needs no place of its own. n-step returns are
made when sampled, so that an episode's end, a truncation and the ring's head need no bookkeeping when added.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hotloop.training.replay.batch import Batch
from hotloop.training.replay.kernels import Shape, gather, push
from hotloop.training.replay.ring import (
    Handle,
    Lanes,
    Ring,
    Writer,
    check_returns,
    guard_of,
    lane_length,
    record_dtype,
    typed,
    words_of,
)
from hotloop.training.replay.samplers import Prioritised, draw_intact, make_sampler
from hotloop.training.replay.state import restore_state, take_state
from hotloop.training.shared_memory import Where


class VectorWriter:
    """Adds the steps of some of a replay's environments, from the process that runs them."""

    def __init__(self, ring: Ring, first: int, count: int) -> None:
        self.lanes = Writer(ring, first, count)

    @classmethod
    def attach(cls, handle: Handle) -> VectorWriter:
        """Write into the replay of another process; see `VectorReplay.handle`."""
        return cls(Ring.attach(handle), handle.first, handle.count)

    def add(self, obs: Any, action: Any, reward: Any, terminated: Any, truncated: Any, next_obs: Any) -> None:
        """Add one step of each environment; see `VectorReplay.add`."""
        lanes = self.lanes
        ended = lanes.stage(action, reward, terminated, truncated)
        lanes.put("obs", obs)
        lanes.put("next_obs", next_obs)
        push(lanes.ring.words, lanes.staged_words, lanes.ring.heads, lanes.first, lanes.ring.shape)
        lanes.publish(1, ended)

    def cut(self) -> None:
        """Say that the next step begins a new episode though the last did not end, as after a restart."""
        self.lanes.cut()


class VectorReplay:
    """A ring of transitions with flat observations, one lane for each of N environments.

    Args:
        capacity: Transitions to keep. Each environment gets capacity // num_envs of them.
        num_envs: N.
        obs_shape: Of one observation.
        obs_dtype: Of observations; float32 for features, uint8 for grids.
        action_shape: Of one action; () for a discrete one.
        action_dtype: Of actions.
        n_step: Steps whose rewards are added up before bootstrapping.
        gamma: Discount a step.
        prioritised: How to sample by priority; None for uniformly.
        storage: "memory", "shared" (several writing processes), or a Path (a new file, larger than memory if need be).
        guard: Oldest steps of an environment that are not sampled while other processes write; chosen if None.
    """

    def __init__(  # noqa: PLR0913  the options of a replay, all with defaults
        self,
        capacity: int,
        num_envs: int,
        obs_shape: tuple[int, ...],
        obs_dtype: Any = np.float32,
        *,
        action_shape: tuple[int, ...] = (),
        action_dtype: Any = np.int64,
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
        self._ring = Ring.make(Lanes(record, Shape(num_envs, length, guard, 0, n_step - 1)), storage)
        self._writer = VectorWriter(self._ring, 0, num_envs)
        self._sampler = make_sampler(self._ring, prioritised)
        self._returns = (n_step, float(gamma))
        columns = record.fields or {}
        self._action, self._obs = columns["action"][0], columns["obs"][0]

    def __len__(self) -> int:
        """Return how many transitions may be sampled now."""
        return len(self._sampler)

    @property
    def capacity(self) -> int:
        """Transitions that are kept when it is full."""
        return self._ring.shape.stripes * self._ring.shape.length

    @property
    def nbytes(self) -> int:
        """Memory it takes when it is full, priorities included."""
        return self._ring.block.nbytes + self._sampler.nbytes

    def add(self, obs: Any, action: Any, reward: Any, terminated: Any, truncated: Any, next_obs: Any) -> None:
        """Add one step of every environment.

        Args:
            obs: What was seen, [N, *obs_shape].
            action: What was done, [N, *action_shape].
            reward: [N].
            terminated: bool [N].
            truncated: bool [N].
            next_obs: What was seen next, [N, *obs_shape]: where an episode ended, its last observation, and not the
                first of the episode after it.
        """
        self._writer.add(obs, action, reward, terminated, truncated, next_obs)

    def sample(self, batch: int, rng: np.random.Generator, beta: float | None = None) -> Batch:
        """Draw transitions with replacement. For K updates at once, draw K times as many and take them in turn.

        Args:
            batch: How many.
            rng: Where chance comes from. One number of it is used.
            beta: Power of the importance weights, if not that of `Prioritised`.
        """
        return draw_intact(self._ring, batch, rng, lambda seed: self._gather(batch, seed, beta))

    def _gather(self, batch: int, seed: int, beta: float | None) -> Batch:
        ids, weight = self._sampler.draw(batch, seed, beta)
        action = np.empty((batch, words_of(self._action)), np.uint32)
        obs = np.empty((batch, words_of(self._obs)), np.uint32)
        next_obs = np.empty_like(obs)
        reward, discount = np.empty(batch, np.float32), np.empty(batch, np.float32)
        ring, out = self._ring, (action, obs, next_obs, reward, discount)
        gather(ring.words, ring.floats, ring.shape, ids, self._returns, out)
        return Batch(
            typed(obs, self._obs),
            typed(action, self._action),
            reward,
            typed(next_obs, self._obs),
            discount,
            ids,
            weight,
        )

    def update_priorities(self, index: np.ndarray, td_abs: np.ndarray) -> None:
        """Set the priorities of sampled transitions. Those that were overwritten meanwhile are left out.

        Args:
            index: `Batch.index`, [B].
            td_abs: Absolute TD errors, [B].
        """
        self._sampler.update(index, td_abs)

    def cut(self) -> None:
        """Say that the next steps begin new episodes though the last did not end, as after a restart."""
        self._writer.cut()

    def handle(self, first: int = 0, count: int | None = None) -> Handle:
        """Return what another process needs to write `count` environments from `first` on with a `VectorWriter`."""
        return self._ring.handle(first, self._ring.shape.stripes - first if count is None else count)

    def state(self, copy: bool = True) -> dict[str, np.ndarray]:
        """Return everything it holds, to be given to `restore`. Without copy the arrays change with the next add."""
        return take_state(self._ring, self._writer.lanes, self._sampler, copy)

    def restore(self, state: Mapping[str, np.ndarray], actions: int | None = None) -> None:
        """Take up a state that a replay of the same shape had: what follows is as if it had never stopped.

        Args:
            state: What `state` returned.
            actions: How many discrete actions there are; those in the state are checked to be below it.

        Raises:
            HotloopError: The state is of another shape, or cannot be. The replay is unchanged then.
        """
        restore_state(self._ring, self._writer.lanes, self._sampler, state, actions)

    def close(self) -> None:
        """Give back shared memory. It is also given back when the replay is dropped, or at exit."""
        self._ring.block.close()
