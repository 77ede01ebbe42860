"""Stripes of a replay of frames: who writes one, and what came into all of them, seen from the one who learns.

A stripe is a lane of the ring, with one writer: it copies a fragment of steps straight into the slots behind its head
and then moves the head, one aligned 64-bit number that nobody else writes. That is all of the transport: no queue, no
lock, nothing pickled. What a writer had begun when it was killed lies behind the head, where nobody looks, and the next
writer of the lane writes over it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hotloop.training.replay.frames import FRAMES
from hotloop.training.replay.kernels import FINAL, START, TERMINATED, TRUNCATED
from hotloop.training.replay.ring import ReplayError, Ring, mismatch

BYTE = np.dtype(np.uint8)
FRAGMENTS = 8
"""Fragments for which frames move on through memory before the newest are copied back to its beginning."""


class Stripe:
    """The one who writes a lane of a ring of frames. The last frames stay here, as the stack that the policy sees.

    A frame is copied here once, for the stack, and once into replay, with the fragment it belongs to.

    Args:
        ring: Of a `FrameReplay`, made here or attached.
        lane: Which.
        repeat: Whether the first frame of an episode stands before it, else zeros.
    """

    def __init__(self, ring: Ring, lane: int, repeat: bool = True) -> None:
        if FRAMES not in ring.block.arrays:
            raise ReplayError("this replay keeps no frames: collectors write into a FrameReplay")
        shape, self._shape = ring.shape, ring.lanes.item_shape
        mine = slice(lane * shape.length, (lane + 1) * shape.length)
        self._frames = ring.block.arrays[FRAMES][mine].reshape(shape.length, *self._shape)
        self._words, self._heads = ring.words[mine], ring.heads
        self._lane, self._length, self._stack, self._repeat = lane, shape.length, shape.back + 1, repeat
        self.fragment = max(1, ring.in_flight - 1)
        """Steps that are published together, at most: with the last frame of an episode, as many slots as may be."""
        # Of each step that is not published: flags, reward, action.
        staged = np.zeros(self.fragment + 1, ring.lanes.record)
        self._staged = staged.view(np.uint32).reshape(len(staged), -1)
        self._flags, self._rewards, self._actions = staged["flags"], staged["reward"], staged["action"]
        self._memory = np.zeros((self._stack + FRAGMENTS * (self.fragment + 1), *self._shape), BYTE)
        self._newest, self._waiting, self._fresh = self._stack - 1, 0, START

    @property
    def seen(self) -> np.ndarray:
        """The stack, uint8 [stack, *frame_shape], newest last; until the next step."""
        return self._memory[self._newest - self._stack + 1 : self._newest + 1]

    @property
    def waiting(self) -> int:
        """Steps that are not published."""
        return self._waiting

    def begin(self, frame: np.ndarray) -> None:
        """Begin an episode with its first frame, whether the one before has ended or not."""
        self._check(frame)
        self.flush()
        self._newest, self._fresh = self._stack - 1, START
        self._memory[: self._newest] = frame if self._repeat else 0
        self._memory[self._newest] = frame

    def step(self, action: Any, reward: float, terminated: bool, truncated: bool, frame: np.ndarray) -> None:
        """Add one step from what is seen, to the frame that is seen next. After the end of an episode comes `begin`."""
        self._check(frame)
        at = self._waiting
        self._actions[at] = action
        self._rewards[at] = reward
        self._flags[at] = self._fresh | TERMINATED * terminated | TRUNCATED * truncated
        self._fresh = 0
        self._newest += 1
        self._memory[self._newest] = frame
        self._waiting = at + 1
        if terminated or truncated:
            self._staged[at + 1] = 0
            self._flags[at + 1] = FINAL
            self._waiting = at + 2
            self._publish(self._newest + 1)
        elif self._waiting == self.fragment:
            self.flush()

    def flush(self) -> None:
        """Publish the steps that are not."""
        if self._waiting:
            self._publish(self._newest)
        if self._newest + self.fragment + 1 >= len(self._memory):
            self._memory[: self._stack] = self.seen
            self._newest = self._stack - 1

    def _publish(self, end: int) -> None:
        """Copy what is staged, whose frames lie before `end`, into the ring, and then move the head."""
        count, head = self._waiting, int(self._heads[self._lane])
        slot, first = head % self._length, end - self._waiting
        here = min(count, self._length - slot)
        self._frames[slot : slot + here] = self._memory[first : first + here]
        self._words[slot : slot + here] = self._staged[:here]
        if here < count:
            self._frames[: count - here] = self._memory[first + here : end]
            self._words[: count - here] = self._staged[here:count]
        # After all other stores. x86 and other strongly ordered machines keep that order; nothing here enforces it.
        self._heads[self._lane] = head + count
        self._waiting = 0

    def _check(self, frame: np.ndarray) -> None:
        if frame.shape != self._shape or frame.dtype != BYTE:
            raise mismatch("frame", frame, BYTE, self._shape)


class Arrived(NamedTuple):
    """What came since the last look."""

    steps: np.ndarray
    """int64 [lanes]"""
    overwritten: int
    """Steps that went before they were ever sampled."""


class Watch:
    """Counts what comes into the lanes of a ring, from their heads and records alone, whoever writes them.

    Args:
        ring: Of the replay that is sampled in this process.
    """

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._flags = ring.records["flags"]
        self._seen = np.zeros(ring.shape.stripes, np.int64)
        # The number, from 1, of the step that was last sampled in a slot; the end of an episode counts as sampled.
        self._sampled = np.zeros((ring.shape.stripes, ring.shape.length), np.int64)
        self.begin()

    @property
    def nbytes(self) -> int:
        """Memory it takes."""
        return self._seen.nbytes + self._sampled.nbytes

    @property
    def heads(self) -> list[int]:
        """How far each lane was seen."""
        return self._seen.tolist()

    def begin(self, heads: list[int] | None = None) -> None:
        """Count from here on: what is in the ring now was there before, or what came until lanes had these heads."""
        # What has left the ring by now was counted by whoever began before: only what is in it is looked at.
        self._seen[:] = np.maximum(0, self._ring.heads - self._ring.shape.length)
        self._sampled[:] = 0
        self.look()
        if heads is not None:
            np.minimum(self._seen, heads, out=self._seen)

    def sampled(self, index: np.ndarray) -> None:
        """Take note of what was sampled: `Batch.index`, int64 [B]."""
        shape = self._ring.shape
        seq, stripe = np.divmod(index, shape.stripes)
        self._sampled[stripe, seq % shape.length] = seq + 1

    def look(self) -> Arrived:
        """Count what came since the last time.

        Between two looks a lane should not go round once: the ends of episodes in what was missed are taken for steps.
        """
        heads, length = self._ring.heads.copy(), self._ring.shape.length
        steps, overwritten = heads - self._seen, 0
        for lane in np.flatnonzero(steps):
            seen, head = int(self._seen[lane]), int(heads[lane])
            gone = np.arange(max(0, seen - length), max(0, head - length))
            overwritten += int(np.count_nonzero(self._sampled[lane, gone % length] != gone + 1))
            came = np.arange(max(seen, head - length), head)
            ends = came[(self._flags[lane, came % length] & FINAL) != 0]
            self._sampled[lane, ends % length] = ends + 1
            steps[lane] -= len(ends)
        self._seen[:] = heads
        return Arrived(steps, overwritten)
