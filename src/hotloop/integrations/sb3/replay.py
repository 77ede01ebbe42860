"""SB3's replay buffer for stacked images, kept in a `FrameReplay`: each frame is stored once instead of eight times.

SB3 hands over whole stacks, of which all but one frame came before. Only the newest frame is stored; the stacks are put
together again when a batch is sampled, equal to what SB3's own buffer would give. That they really are stacks of
consecutive frames is checked with every step, for otherwise another observation would come out than went in.
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
    `optimize_memory_usage` changes nothing. What is drawn follows from SB3's seed.

    Args:
        buffer_size: As SB3 has it, and so are the next six.
        observation_space: Of the observations as SB3 sees them, channels first.
        action_space: Of the actions.
        device: Where batches go.
        n_envs: Environments.
        optimize_memory_usage: Ignored.
        handle_timeout_termination: Whether a truncated episode is bootstrapped from its last observation.
        stack: Frames in an observation; 1 if they are not stacked.
        padding: What stands before an episode's first frame: "zero" with SB3's `VecFrameStack`, "repeat" with
            Gymnasium's `FrameStackObservation`.
        n_steps: Steps whose rewards are added up before bootstrapping.
        gamma: Discount, used if `n_steps` is above 1.
    """

    def __init__(  # noqa: PLR0913  the signature of SB3, and what a stack is
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
        # Not SB3's constructor: it would allocate what is to be saved here.
        BaseBuffer.__init__(self, buffer_size, observation_space, action_space, device, n_envs=n_envs)
        self.buffer_size = max(buffer_size // n_envs, 1)
        self.optimize_memory_usage = False
        self.handle_timeout_termination = handle_timeout_termination
        self.stack = stack
        self.padding: Literal["zero", "repeat"] = padding
        self.n_steps, self.gamma = n_steps, gamma
        self._action_dtype = np.dtype(self._maybe_cast_dtype(action_space.dtype))
        self._frame_shape = _frame_shape(observation_space, stack)
        # SB3 has seeded NumPy's generator by now.
        self._rng = np.random.default_rng(np.random.randint(2**31))
        self.replay = self._make()
        self._after: np.ndarray | None = None
        """The stacks that the last step ended with, [n_envs, stack, *frame_shape]; None before the first."""

    def _make(self) -> FrameReplay:
        return FrameReplay(
            self.buffer_size * self.n_envs, self.n_envs, self._frame_shape, self.stack,
            padding=self.padding, action_shape=(self.action_dim,), action_dtype=self._action_dtype,
            # One step needs no discount of the replay's: SB3 multiplies with its own.
            n_step=self.n_steps, gamma=self.gamma if self.n_steps > 1 else 1.0,
        )  # fmt: skip

    @property
    def nbytes(self) -> int:
        """Memory it takes when it is full."""
        return self.replay.nbytes

    def reset(self) -> None:
        """Forget everything."""
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
        # What follows a termination is never looked at.
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
        """Find out which environments begin an episode with this step, and tell the replay."""
        fresh, before = self.replay.fresh, self._after
        if before is not None and not fresh.any() and np.array_equal(seen, before):
            return  # the usual case: everybody goes on
        for i in range(self.n_envs):
            goes_on = before is not None and not fresh[i] and np.array_equal(seen[i], before[i])
            if goes_on:
                continue
            # A wrapper that ends an episode with each life, outside of the stacking, lets the frames run on.
            runs_on = before is not None and fresh[i] and np.array_equal(seen[i, :-1], before[i, 1:])
            if not runs_on and not self._padded(seen[i]):
                raise ReplayError(self._wrong_padding(seen[i]))
            fresh[i] = not runs_on

    def _padded(self, stack: np.ndarray) -> bool:
        if self.padding == "zero":
            return not stack[:-1].any()
        return bool((stack[:-1] == stack[-1]).all())

    def _wrong_padding(self, stack: np.ndarray) -> str:
        other = "repeat" if self.padding == "zero" else "zero"
        fits = bool((stack[:-1] == stack[-1]).all()) if other == "repeat" else not stack[:-1].any()
        what = {"zero": "frames of zeros", "repeat": "its first frame again"}
        if fits:
            return (
                f"an episode begins with {what[other]}, not with {what[self.padding]}: "
                f'give replay_buffer_kwargs={{"padding": "{other}"}}'
            )
        return (
            f"an episode begins with {self.stack} different frames: "
            'give the number of stacked frames with replay_buffer_kwargs={"stack": ...}, 1 if there are none'
        )

    def sample(self, batch_size: int, env: VecNormalize | None = None) -> ReplayBufferSamples:
        """Draw transitions, with replacement."""
        held = max(len(self.replay), 1)
        if batch_size <= held:
            return self._to_samples(self.replay.sample(batch_size, self._rng), env)
        # SB3 may begin to learn with fewer transitions than a batch has.
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
        # The replay uses a batch's memory again only when nobody holds it: no copy is needed.
        return ReplayBufferSamples(*(torch.as_tensor(column, device=self.device) for column in columns))

    def _get_samples(self, batch_inds: np.ndarray, env: VecNormalize | None = None) -> ReplayBufferSamples:
        raise NotImplementedError("FrameReplayBuffer draws by itself: call sample()")

    def __getstate__(self) -> dict[str, Any]:
        """Return what `save_replay_buffer` keeps."""
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
