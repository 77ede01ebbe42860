"""FrameReplay: transitions of stacked images, each frame stored once.

A stack of four frames and its successor share all but one frame, and so do the stacks of neighbouring steps: stored
as they come, with the next ones beside them, they take eight times the memory. Here a slot holds one frame, and the
stacks of a batch are put together when it is sampled: one window of stack + 1 frames a transition, of which
observation and next observation are views. The last frame of an episode has a slot of its own, which is no transition.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from hotloop.training.replay.batch import Batch
from hotloop.training.replay.frame_kernels import locate, push_frames
from hotloop.training.replay.kernels import Shape
from hotloop.training.replay.ring import (
    Handle,
    Lanes,
    ReplayError,
    Ring,
    Writer,
    check_returns,
    guard_of,
    lane_length,
    mismatch,
    record_dtype,
    typed,
    words_of,
)
from hotloop.training.replay.samplers import Prioritised, draw_intact, make_sampler
from hotloop.training.replay.state import restore_state, take_state
from hotloop.training.shared_memory import Field, Where

FRAMES = "frames"
BYTE = np.dtype(np.uint8)


class FrameWriter:
    """Adds the steps of some of a replay's environments, from the process that runs them. Needs no torch."""

    def __init__(self, ring: Ring, first: int, count: int) -> None:
        self.lanes = Writer(ring, first, count)
        self._frames = ring.block.arrays[FRAMES]
        self._frame_shape = ring.lanes.item_shape
        self._written = np.empty(count, np.int64)

    @classmethod
    def attach(cls, handle: Handle) -> FrameWriter:
        """Write into the replay of another process; see `FrameReplay.handle`."""
        return cls(Ring.attach(handle), handle.first, handle.count)

    def add(self, frame: Any, action: Any, reward: Any, terminated: Any, truncated: Any, next_frame: Any) -> None:
        """Add one step of each environment; see `FrameReplay.add`."""
        lanes, ring = self.lanes, self.lanes.ring
        ended = lanes.stage(action, reward, terminated, truncated)
        step = (lanes.staged_words, self._flat("frame", frame), self._flat("next_frame", next_frame))
        push_frames((self._frames, ring.words, ring.heads), ring.shape, lanes.first, step, ended, self._written)
        lanes.publish(self._written, ended)

    def cut(self) -> None:
        """Say that the next step begins a new episode though the last did not end, as after a restart."""
        self.lanes.cut()

    def _flat(self, name: str, frames: Any) -> np.ndarray:
        frames = np.asarray(frames)
        shape = (self.lanes.count, *self._frame_shape)
        if frames.shape != shape or frames.dtype != BYTE:
            raise mismatch(name, frames, BYTE, shape)
        return np.ascontiguousarray(frames).reshape(self.lanes.count, -1)


class FrameReplay:
    """A ring of frames, one lane for each of N environments; stacks are made when sampled.

    Args:
        capacity: Slots to keep: a transition takes one, and the end of an episode one more. Each environment gets
            capacity // num_envs of them.
        num_envs: N.
        frame_shape: Of one frame, such as (96, 96). Frames are uint8.
        stack: Frames in an observation.
        padding: What stands before the first frame of an episode: "repeat", that frame, as Gymnasium's
            FrameStackObservation has it; or "zero".
        action_shape: Of one action; () for a discrete one.
        action_dtype: Of actions.
        n_step: Steps whose rewards are added up before bootstrapping.
        gamma: Discount a step.
        prioritised: How to sample by priority; None for uniformly.
        storage: "memory", "shared" (several writing processes), or a Path (a new file, larger than memory if need be).
        guard: Oldest slots of an environment that are not sampled while other processes write; chosen if None.
    """

    def __init__(  # noqa: PLR0913  the options of a replay, all with defaults
        self,
        capacity: int,
        num_envs: int,
        frame_shape: tuple[int, ...],
        stack: int = 4,
        *,
        padding: Literal["repeat", "zero"] = "repeat",
        action_shape: tuple[int, ...] = (),
        action_dtype: Any = np.int64,
        n_step: int = 1,
        gamma: float = 0.99,
        prioritised: Prioritised | None = None,
        storage: Where = "memory",
        guard: int | None = None,
    ) -> None:
        from hotloop.training.replay.gather import FrameGatherer  # torch: only who samples needs it

        check_returns(n_step, gamma)
        if stack < 1:
            raise ReplayError(f"stack is {stack}: give 1 or more")
        if padding not in ("repeat", "zero"):
            raise ReplayError(f'padding is {padding!r}: give "repeat" or "zero"')
        guard = guard_of(storage, guard, capacity, num_envs)
        length = lane_length(capacity, num_envs, guard + stack + n_step)
        slots, record = num_envs * length, record_dtype(action=(action_dtype, action_shape))
        # One frame more than slots: the zeros before an episode.
        field = Field(FRAMES, (slots + 1, math.prod(frame_shape)), BYTE)
        shape = Shape(num_envs, length, guard, stack - 1, n_step)
        self._ring = Ring.make(Lanes(record, shape, (field,), tuple(frame_shape)), storage)
        self._writer = FrameWriter(self._ring, 0, num_envs)
        self._sampler = make_sampler(self._ring, prioritised)
        self._gatherer = FrameGatherer(self._ring.block.arrays[FRAMES])
        self._options = (n_step, float(gamma), stack, slots if padding == "zero" else -1)
        self._action = (record.fields or {})["action"][0]

    def __len__(self) -> int:
        """Return how many slots may be sampled now."""
        return len(self._sampler)

    @property
    def capacity(self) -> int:
        """Slots that are kept when it is full."""
        return self._ring.shape.stripes * self._ring.shape.length

    @property
    def nbytes(self) -> int:
        """Memory it takes when it is full, priorities included."""
        return self._ring.block.nbytes + self._sampler.nbytes

    @property
    def ring(self) -> Ring:
        """The memory itself, for collectors, which write steps straight into it."""
        return self._ring

    @property
    def fresh(self) -> np.ndarray:
        """Whether the next step of each environment begins an episode, bool [N]; set it if the replay cannot know."""
        return self._writer.lanes.fresh

    def add(self, frame: Any, action: Any, reward: Any, terminated: Any, truncated: Any, next_frame: Any) -> None:
        """Add one step of every environment.

        Args:
            frame: The newest frame of what was seen, uint8 [N, *frame_shape].
            action: What was done, [N, *action_shape].
            reward: [N].
            terminated: bool [N].
            truncated: bool [N].
            next_frame: The newest frame of what was seen next, uint8 [N, *frame_shape]. It is kept only where an
                episode ended, as its last frame; elsewhere it must be the frame of the next call.
        """
        self._writer.add(frame, action, reward, terminated, truncated, next_frame)

    def sample(
        self, batch: int, rng: np.random.Generator, beta: float | None = None, scale: float | None = None
    ) -> Batch:
        """Draw transitions with replacement; observations are [B, stack, *frame_shape], views of one window.

        Args:
            batch: How many.
            rng: Where chance comes from. One number of it is used.
            beta: Power of the importance weights, if not that of `Prioritised`.
            scale: None for uint8, as stored; or a factor such as 1 / 255 for float32 as a network wants it.
        """
        return draw_intact(self._ring, batch, rng, lambda seed: self._gather(batch, seed, beta, scale))

    def _gather(self, batch: int, seed: int, beta: float | None, scale: float | None) -> Batch:
        ring, (n, _, stack, _) = self._ring, self._options
        ids, weight = self._sampler.draw(batch, seed, beta)
        action = np.empty((batch, words_of(self._action)), np.uint32)
        reward, discount = np.empty(batch, np.float32), np.empty(batch, np.float32)
        places = np.empty((batch, stack + 1 if n == 1 else 2 * stack), np.int64)
        locate(ring.words, ring.floats, ring.shape, ids, self._options, (action, reward, discount, places))
        flat = places.reshape(-1)
        frames = self._gatherer.gather(flat) if scale is None else self._gatherer.gather_scaled(flat, scale)
        seen = frames.reshape(*places.shape, *ring.lanes.item_shape)
        obs, next_obs = seen[:, :stack], seen[:, -stack:]
        return Batch(obs, typed(action, self._action), reward, next_obs, discount, ids, weight)

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
        """Return what another process needs to write `count` environments from `first` on with a `FrameWriter`."""
        return self._ring.handle(first, self._ring.shape.stripes - first if count is None else count)

    def state(self, copy: bool = True) -> dict[str, np.ndarray]:
        """Return everything it holds, to be given to `restore`. Without copy the arrays change with the next add."""
        return take_state(self._ring, self._writer.lanes, self._sampler, copy)

    def restore(self, state: Mapping[str, np.ndarray], actions: int | None = None) -> None:
        """Take up a state that a replay of the same shape had; see `VectorReplay.restore`."""
        restore_state(self._ring, self._writer.lanes, self._sampler, state, actions)

    def close(self) -> None:
        """Give back shared memory. It is also given back when the replay is dropped, or at exit."""
        self._ring.block.close()
