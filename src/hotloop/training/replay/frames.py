"""FrameReplay: transitions with stacked images, each frame stored once.

A stack of four frames shares three of them with its successor and with the stacks of neighbouring steps; storing both
observations of every transition would take eight times the memory. Here a slot holds one frame, and stacks are put
together when sampled: one window of stack + 1 frames per transition, of which observation and next observation are
views. The last frame of an episode has a slot of its own, which is not a transition.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from hotloop.training.replay.base import Replay
from hotloop.training.replay.batch import Batch
from hotloop.training.replay.frame_kernels import locate
from hotloop.training.replay.kernels import Shape
from hotloop.training.replay.record_layout import as_column, record_dtype, words_of
from hotloop.training.replay.ring_layout import FRAMES, Layout, ReplayError, Ring, check_returns, guard_of, lane_length
from hotloop.training.replay.samplers import Prioritised, draw_intact
from hotloop.training.replay.writers import BYTE, FrameWriter
from hotloop.training.shared_memory import Field, Where


class FrameReplay(Replay):
    """A ring of frames, one lane for each of N environments; stacks are put together when sampled.

    Args:
        capacity: Slots to keep. A transition takes one, the end of an episode one more. Each environment gets
            capacity // num_envs of them.
        num_envs: N.
        frame_shape: Shape of one frame, such as (96, 96). Frames are uint8.
        stack: Frames per observation.
        padding: What fills a stack before the first frame of an episode: "repeat", that frame, as Gymnasium's
            FrameStackObservation does; or "zero".

    The other options are those of `VectorReplay`.
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
        action_dtype: DTypeLike = np.int64,
        n_step: int = 1,
        gamma: float = 0.99,
        prioritised: Prioritised | None = None,
        storage: Where = "memory",
        guard: int | None = None,
    ) -> None:
        from hotloop.training.replay.gather import FrameGatherer  # imports torch, which writers do not need

        check_returns(n_step, gamma)
        if stack < 1:
            raise ReplayError(f"stack is {stack}: give 1 or more")
        if padding not in ("repeat", "zero"):
            raise ReplayError(f'padding is {padding!r}: give "repeat" or "zero"')
        guard = guard_of(storage, guard, capacity, num_envs)
        length = lane_length(capacity, num_envs, guard + stack + n_step)
        slots, record = num_envs * length, record_dtype(action=(action_dtype, action_shape))
        # The row after the last slot stays zero, for zero padding.
        field = Field(FRAMES, (slots + 1, math.prod(frame_shape)), BYTE)
        shape = Shape(num_envs, length, guard, stack - 1, n_step)
        ring = Ring.make(Layout(record, shape, (field,), tuple(frame_shape), padding == "zero"), storage)
        self._writer = FrameWriter(ring, 0, num_envs)
        super().__init__(ring, self._writer, prioritised)
        self._gatherer = FrameGatherer(ring.block.arrays[FRAMES])
        self._options = (n_step, float(gamma), stack, slots if padding == "zero" else -1)
        self._action = (record.fields or {})["action"][0]

    def add(
        self,
        frame: ArrayLike,
        action: ArrayLike,
        reward: ArrayLike,
        terminated: ArrayLike,
        truncated: ArrayLike,
        next_frame: ArrayLike,
    ) -> None:
        """Add one step of every environment.

        Args:
            frame: Newest frame before the step, uint8 [N, *frame_shape].
            action: [N, *action_shape].
            reward: [N].
            terminated: bool [N].
            truncated: bool [N].
            next_frame: Newest frame after the step, uint8 [N, *frame_shape]. It is stored only where an episode ended,
                as its last frame; elsewhere it must be the `frame` of the next call.
        """
        self._writer.add(frame, action, reward, terminated, truncated, next_frame)

    def sample(
        self, batch: int, rng: np.random.Generator, beta: float | None = None, scale: float | None = None
    ) -> Batch[np.ndarray]:
        """Draw transitions with replacement; observations are [B, stack, *frame_shape], views of one window.

        One number is drawn from `rng`. `beta` is the exponent of the importance weights; None for that of
        `Prioritised`. `scale` is None for uint8, as stored, or a factor such as 1 / 255 for float32.
        """
        return draw_intact(self._ring, batch, rng, lambda seed: self._gather(batch, seed, beta, scale))

    def _gather(self, batch: int, seed: int, beta: float | None, scale: float | None) -> Batch[np.ndarray]:
        ring, (n, _, stack, _) = self._ring, self._options
        ids, weight = self._sampler.draw(batch, seed, beta)
        action = np.empty((batch, words_of(self._action)), np.uint32)
        reward, discount = np.empty(batch, np.float32), np.empty(batch, np.float32)
        slots = np.empty((batch, stack + 1 if n == 1 else 2 * stack), np.int64)
        locate(ring.words, ring.floats, ring.shape, ids, self._options, (action, reward, discount, slots))
        flat = slots.reshape(-1)
        frames = self._gatherer.gather(flat) if scale is None else self._gatherer.gather_scaled(flat, scale)
        window = frames.reshape(*slots.shape, *ring.layout.item_shape)
        obs, next_obs = window[:, :stack], window[:, -stack:]
        return Batch(obs, as_column(action, self._action), reward, next_obs, discount, ids, weight)
