"""Everything that writes into a ring: how a record's flags are set, and when a step is published.

`VectorWriter` and `FrameWriter` write one step of several lanes per call. `LaneWriter` writes a single lane for a
collector, several steps at a time. All of them first fill the slots behind a lane's head and then advance the head,
which only they write; that is the whole transport between processes. A slot that was not yet published when its writer
was killed is never read, and the lane's next writer overwrites it.

Readers rely on the order of these stores. x86 and other strongly ordered machines keep it; nothing enforces it on ARM.
"""

from __future__ import annotations

from typing import Self, SupportsFloat

import numpy as np
from numpy.typing import ArrayLike

from hotloop.training.replay.frame_kernels import push_frames
from hotloop.training.replay.kernels import push
from hotloop.training.replay.record_layout import FINAL, START, TERMINATED, TRUNCATED
from hotloop.training.replay.ring_layout import FRAMES, Handle, ReplayError, Ring, check_lanes, mismatch

BYTE = np.dtype(np.uint8)
STACK_FRAGMENTS = 8
"""How many fragments of frames a `LaneWriter` has room for before it moves the newest back to the beginning."""


class StepWriter:
    """Writes the `count` lanes starting at `first`: one step of each is staged, then all are published at once."""

    def __init__(self, ring: Ring, first: int, count: int) -> None:
        check_lanes(ring.shape, first, count)
        self.ring = ring
        self.first, self.count = first, count
        self.fresh = np.ones(count, np.bool_)
        """bool [E]: whether the next step is the first of an episode."""
        staged = np.zeros(count, ring.layout.record)
        self.staged_words = staged.view(np.uint32).reshape(count, -1)
        """uint32 [E, W]: the records of the staged step."""
        self._columns = {name: staged[name] for name in staged.dtype.names or ()}
        self.heads = ring.heads[first : first + count]

    @classmethod
    def attach(cls, handle: Handle) -> Self:
        """Write into the replay of another process; see `Replay.handle`."""
        return cls(Ring.attach(handle), handle.first, handle.count)

    def stage(self, action: ArrayLike, reward: ArrayLike, terminated: ArrayLike, truncated: ArrayLike) -> np.ndarray:
        """Check and stage the columns that every replay has; return which episodes ended, bool [E]."""
        self.put("action", action)
        reward = np.asarray(reward)
        if reward.shape != (self.count,) or reward.dtype.kind not in "fiu":
            raise mismatch("reward", reward, np.dtype(np.float32), (self.count,))
        self._columns["reward"][...] = reward
        terminated, truncated = np.asarray(terminated), np.asarray(truncated)
        for name, flag in (("terminated", terminated), ("truncated", truncated)):
            if flag.shape != (self.count,) or flag.dtype != np.bool_:
                raise mismatch(name, flag, np.dtype(np.bool_), (self.count,))
        flags = self._columns["flags"]
        np.multiply(self.fresh, np.uint32(START), out=flags)
        flags += terminated * np.uint32(TERMINATED)
        flags += truncated * np.uint32(TRUNCATED)
        return terminated | truncated

    def put(self, name: str, value: ArrayLike) -> None:
        """Stage one column, [E, ...], of exactly the replay's shape and dtype."""
        value = np.asarray(value)
        column = self._columns[name]
        if value.shape != column.shape or value.dtype != column.dtype:
            raise mismatch(name, value, column.dtype, column.shape)
        column[...] = value

    def publish(self, slots: int | np.ndarray, ended: np.ndarray) -> None:
        """Publish the `slots` that were written in each lane."""
        self.heads += slots
        self.fresh[:] = ended

    def cut(self) -> None:
        """Start a new episode with the next step although the last one did not end, as after a restart."""
        self.fresh[:] = True


class VectorWriter(StepWriter):
    """Adds steps of some environments to a `VectorReplay`, from the process that runs them."""

    def add(
        self,
        obs: ArrayLike,
        action: ArrayLike,
        reward: ArrayLike,
        terminated: ArrayLike,
        truncated: ArrayLike,
        next_obs: ArrayLike,
    ) -> None:
        """Add one step of each environment; see `VectorReplay.add`."""
        ring = self.ring
        ended = self.stage(action, reward, terminated, truncated)
        self.put("obs", obs)
        self.put("next_obs", next_obs)
        push(ring.words, self.staged_words, ring.heads, self.first, ring.shape)
        self.publish(1, ended)


class FrameWriter(StepWriter):
    """Adds steps of some environments to a `FrameReplay`, from the process that runs them. Does not need torch."""

    def __init__(self, ring: Ring, first: int, count: int) -> None:
        super().__init__(ring, first, count)
        self._frames = ring.block.arrays[FRAMES]
        self._frame_shape = ring.layout.item_shape
        self._written = np.empty(count, np.int64)

    def add(
        self,
        frame: ArrayLike,
        action: ArrayLike,
        reward: ArrayLike,
        terminated: ArrayLike,
        truncated: ArrayLike,
        next_frame: ArrayLike,
    ) -> None:
        """Add one step of each environment; see `FrameReplay.add`."""
        ring = self.ring
        ended = self.stage(action, reward, terminated, truncated)
        step = (self.staged_words, self._flat("frame", frame), self._flat("next_frame", next_frame))
        push_frames((self._frames, ring.words, ring.heads), ring.shape, self.first, step, ended, self._written)
        self.publish(self._written, ended)

    def _flat(self, name: str, frames: ArrayLike) -> np.ndarray:
        frames = np.asarray(frames)
        shape = (self.count, *self._frame_shape)
        if frames.shape != shape or frames.dtype != BYTE:
            raise mismatch(name, frames, BYTE, shape)
        return np.ascontiguousarray(frames).reshape(self.count, -1)


class LaneWriter:
    """Writes one lane of a `FrameReplay` in fragments, and keeps the frame stack that the policy sees.

    Each frame is copied twice: into the stack when it arrives, and into the ring with its fragment.
    """

    def __init__(self, ring: Ring, lane: int) -> None:
        if FRAMES not in ring.block.arrays:
            raise ReplayError("this replay keeps no frames: collectors write into a FrameReplay")
        shape, self._frame_shape = ring.shape, ring.layout.item_shape
        slots = slice(lane * shape.length, (lane + 1) * shape.length)
        self._frames = ring.block.arrays[FRAMES][slots].reshape(shape.length, *self._frame_shape)
        self._words, self._heads = ring.words[slots], ring.heads
        self._lane, self._length, self._stack = lane, shape.length, shape.back + 1
        self._zero_padding = ring.layout.zero_padding
        self.fragment = max(1, ring.in_flight - 1)
        """The most steps published at once. The last frame of an episode may take one more slot."""
        staged = np.zeros(self.fragment + 1, ring.layout.record)
        self._staged = staged.view(np.uint32).reshape(len(staged), -1)
        self._flags, self._rewards, self._actions = staged["flags"], staged["reward"], staged["action"]
        self._recent = np.zeros((self._stack + STACK_FRAGMENTS * (self.fragment + 1), *self._frame_shape), BYTE)
        self._newest, self._start_flag = self._stack - 1, START
        self.unpublished = 0
        """Number of steps that are not published yet."""

    @property
    def stack(self) -> np.ndarray:
        """The newest frames, uint8 [stack, *frame_shape], newest last. Valid until the next step."""
        return self._recent[self._newest - self._stack + 1 : self._newest + 1]

    def begin(self, frame: np.ndarray) -> None:
        """Begin an episode with its first frame, whether or not the previous one ended."""
        self._check(frame)
        self.flush()
        self._newest, self._start_flag = self._stack - 1, START
        self._recent[: self._newest] = 0 if self._zero_padding else frame
        self._recent[self._newest] = frame

    def step(
        self, action: np.ndarray | int, reward: SupportsFloat, terminated: bool, truncated: bool, frame: np.ndarray
    ) -> None:
        """Add one step; `frame` is the frame after it. When the episode ended, call `begin` next."""
        self._check(frame)
        at = self.unpublished
        self._actions[at] = action
        self._rewards[at] = reward
        self._flags[at] = self._start_flag | TERMINATED * terminated | TRUNCATED * truncated
        self._start_flag = 0
        self._newest += 1
        self._recent[self._newest] = frame
        self.unpublished = at + 1
        if terminated or truncated:
            self._staged[at + 1] = 0
            self._flags[at + 1] = FINAL
            self.unpublished = at + 2
            self._publish(self._newest + 1)
        elif self.unpublished == self.fragment:
            self.flush()

    def flush(self) -> None:
        """Publish all staged steps."""
        if self.unpublished:
            self._publish(self._newest)
        if self._newest + self.fragment + 1 >= len(self._recent):
            self._recent[: self._stack] = self.stack
            self._newest = self._stack - 1

    def _publish(self, end: int) -> None:
        """Copy the staged records and their frames, which lie before `end`, into the ring; then advance the head."""
        count, head = self.unpublished, int(self._heads[self._lane])
        slot, first = head % self._length, end - self.unpublished
        before_wrap = min(count, self._length - slot)
        self._frames[slot : slot + before_wrap] = self._recent[first : first + before_wrap]
        self._words[slot : slot + before_wrap] = self._staged[:before_wrap]
        if before_wrap < count:
            self._frames[: count - before_wrap] = self._recent[first + before_wrap : end]
            self._words[: count - before_wrap] = self._staged[before_wrap:count]
        self._heads[self._lane] = head + count
        self.unpublished = 0

    def _check(self, frame: np.ndarray) -> None:
        if frame.shape != self._frame_shape or frame.dtype != BYTE:
            raise mismatch("frame", frame, BYTE, self._frame_shape)
