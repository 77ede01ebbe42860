"""An SB3 replay buffer for stacked images that uses a `FrameReplay`: each frame is stored once instead of eight times.

SB3 passes whole stacks, of which only the newest frame is new. Only that frame is stored; stacks are rebuilt when a
batch is sampled, equal to those of SB3's own buffer. Every step checks that the observations are stacks of consecutive
frames, because otherwise the rebuilt ones would differ.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.buffers import BaseBuffer, ReplayBuffer
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from stable_baselines3.common.vec_env import VecNormalize

from hotloop.training.replay import Batch, FrameReplay, ReplayError


class FrameReplayBuffer(ReplayBuffer):
    """A `replay_buffer_class` for image observations `[stack × channels, height, width]`, uint8, newest frame last.

        env = VecFrameStack(make_atari_env("ALE/Pong-v5", n_envs=8), n_stack=4)
        DQN("CnnPolicy", env, replay_buffer_class=FrameReplayBuffer)

    `buffer_size` counts frames: a transition takes one, and the end of an episode one more.
    `optimize_memory_usage` has no effect. Sampling is determined by SB3's seed.

    Args:
        buffer_size: Capacity in frames. This and the next six parameters are those of SB3's buffer.
        observation_space: Space of the observations as SB3 sees them, channels first.
        action_space: Space of the actions.
        device: Device of the batches.
        n_envs: Number of environments.
        optimize_memory_usage: Ignored.
        handle_timeout_termination: Whether a truncated episode is bootstrapped from its last observation.
        stack: Number of frames in an observation; 1 if they are not stacked.
        padding: What fills the stack before an episode's first frame: "zero" with SB3's `VecFrameStack`, "repeat" with
            Gymnasium's `FrameStackObservation`.
        n_steps: Number of rewards that are summed before bootstrapping.
        gamma: Discount, used if `n_steps` is above 1.
    """

    def __init__(  # noqa: PLR0913  the signature is SB3's, plus the stack
        self,
        buffer_size: int,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        device: torch.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        *,
        stack: int = 4,
        padding: Literal["zero", "repeat"] = "zero",
        n_steps: int = 1,
        gamma: float = 0.99,
    ) -> None:
        # ReplayBuffer's constructor would allocate the memory that is saved here.
        BaseBuffer.__init__(self, buffer_size, observation_space, action_space, device, n_envs=n_envs)
        self.buffer_size = max(buffer_size // n_envs, 1)
        self.optimize_memory_usage = False
        self.handle_timeout_termination = handle_timeout_termination
        self.stack = stack
        self.padding: Literal["zero", "repeat"] = padding
        self.n_steps, self.gamma = n_steps, gamma
        self._action_dtype = np.dtype(self._maybe_cast_dtype(action_space.dtype))
        self._frame_shape = _frame_shape(observation_space, stack)
        # SB3 has seeded NumPy's generator before.
        self._rng = np.random.default_rng(np.random.randint(2**31))
        self.replay = self._make()
        self._after: np.ndarray | None = None
        """The stacks after the last step, [n_envs, stack, *frame_shape]; None before the first."""

    def _make(self) -> FrameReplay:
        return FrameReplay(
            self.buffer_size * self.n_envs,
            self.n_envs,
            self._frame_shape,
            self.stack,
            padding=self.padding,
            action_shape=(self.action_dim,),
            action_dtype=self._action_dtype,
            n_step=self.n_steps,
            # With one step the discount is applied by SB3.
            gamma=self.gamma if self.n_steps > 1 else 1.0,
        )

    @property
    def nbytes(self) -> int:
        """Memory used when the buffer is full."""
        return self.replay.nbytes

    def reset(self) -> None:
        """Remove all transitions."""
        super().reset()
        self.replay, self._after = self._make(), None

    def add(
        self,
        obs: np.ndarray,
        next_obs: np.ndarray,
        action: np.ndarray,
        reward: np.ndarray,
        done: np.ndarray,
        infos: list[dict[str, Any]],
    ) -> None:
        """Add one step of every environment. Where an episode ended, `next_obs` is its last observation."""
        shape = (self.n_envs, self.stack, *self._frame_shape)
        seen, after = np.asarray(obs).reshape(shape), np.asarray(next_obs).reshape(shape)
        ended = np.asarray(done, np.bool_)
        timeouts = np.zeros(self.n_envs, np.bool_)
        if self.handle_timeout_termination:
            timeouts[:] = [bool(info.get("TimeLimit.truncated", False)) for info in infos]
        terminated = ended & ~timeouts
        self._begin(seen)
        # The observation after a termination is never used.
        if not _all_equal(after[:, :-1], seen[:, 1:], ~terminated):
            raise ReplayError(
                f"observations are not stacks of {self.stack} consecutive frames, newest last: "
                'give the right number with replay_buffer_kwargs={"stack": ...}'
            )
        action = np.asarray(action).reshape(self.n_envs, self.action_dim).astype(self._action_dtype, copy=False)
        self.replay.add(seen[:, -1], action, np.asarray(reward), terminated, ended & timeouts, after[:, -1])
        self._after = after.copy()
        self.pos += 1
        if self.pos == self.buffer_size:
            self.full, self.pos = True, 0

    def _begin(self, seen: np.ndarray) -> None:
        """Mark in the replay which environments begin an episode with this step."""
        fresh, before = self.replay.fresh, self._after
        if before is not None and not fresh.any() and np.array_equal(seen, before):
            return  # The usual case: all episodes continue.
        for i in range(self.n_envs):
            if before is not None and not fresh[i] and np.array_equal(seen[i], before[i]):
                continue
            # If a wrapper outside of the stacking ends an episode with each life, the stack is not cleared.
            runs_on = before is not None and fresh[i] and np.array_equal(seen[i, :-1], before[i, 1:])
            if not runs_on and not self._padded(seen[i], self.padding):
                raise ReplayError(self._wrong_padding(seen[i]))
            fresh[i] = not runs_on

    @staticmethod
    def _padded(stack: np.ndarray, padding: str) -> bool:
        if padding == "zero":
            return not stack[:-1].any()
        return bool((stack[:-1] == stack[-1]).all())

    def _wrong_padding(self, stack: np.ndarray) -> str:
        other = "repeat" if self.padding == "zero" else "zero"
        what = {"zero": "frames of zeros", "repeat": "its first frame again"}
        if self._padded(stack, other):
            return (
                f"an episode begins with {what[other]}, not with {what[self.padding]}: "
                f'give replay_buffer_kwargs={{"padding": "{other}"}}'
            )
        return (
            f"an episode begins with {self.stack} different frames: "
            'give the number of stacked frames with replay_buffer_kwargs={"stack": ...}, 1 if there are none'
        )

    def sample(self, batch_size: int, env: VecNormalize | None = None) -> ReplayBufferSamples:
        """Sample transitions with replacement."""
        held = max(len(self.replay), 1)
        if batch_size <= held:
            return self._to_samples(self.replay.sample(batch_size, self._rng), env)
        # SB3 may start learning with fewer transitions than a batch has.
        sizes = [held] * (batch_size // held) + [batch_size % held] * (batch_size % held > 0)
        parts = [self.replay.sample(size, self._rng) for size in sizes]
        return self._to_samples(Batch(*(np.concatenate(column) for column in zip(*parts, strict=True))), env)

    def _to_samples(self, batch: Batch, env: VecNormalize | None) -> ReplayBufferSamples:
        obs, next_obs = (each.reshape(-1, *self.obs_shape) for each in (batch.obs, batch.next_obs))
        done = (batch.discount == 0).astype(np.float32).reshape(-1, 1)
        columns = [
            self._normalize_obs(obs, env),
            batch.action,
            self._normalize_obs(next_obs, env),
            done,
            self._normalize_reward(batch.reward.reshape(-1, 1), env),
        ]
        if self.n_steps > 1:
            columns.append(batch.discount.reshape(-1, 1))
        # No copy: the replay reuses a batch's memory only when nothing refers to it any more.
        return ReplayBufferSamples(*(torch.as_tensor(column, device=self.device) for column in columns))

    def _get_samples(self, batch_inds: np.ndarray, env: VecNormalize | None = None) -> ReplayBufferSamples:
        raise NotImplementedError("FrameReplayBuffer chooses transitions itself: call sample()")

    def __getstate__(self) -> dict[str, Any]:
        """Return the state that `save_replay_buffer` stores."""
        state = {name: value for name, value in self.__dict__.items() if name != "replay"}
        return state | {"replay_state": self.replay.state()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        kept = state.pop("replay_state")
        for name, value in state.items():
            setattr(self, name, value)
        self.replay = self._make()
        self.replay.restore(kept)


def _frame_shape(space: spaces.Space, stack: int) -> tuple[int, ...]:
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8 or len(space.shape) != 3:
        raise ReplayError(
            f"FrameReplayBuffer keeps images, uint8 [channels, height, width], not {space}: "
            "use SB3's own buffer for other observations"
        )
    channels = space.shape[0]
    if stack < 1 or channels % stack:
        raise ReplayError(
            f"{channels} channels are not made of {stack} stacked frames: "
            'give their number with replay_buffer_kwargs={"stack": ...}, 1 if there are none'
        )
    return (channels // stack, *space.shape[1:])


def _all_equal(a: np.ndarray, b: np.ndarray, where: np.ndarray) -> bool:
    if where.all():
        return np.array_equal(a, b)
    return np.array_equal(a[where], b[where])
