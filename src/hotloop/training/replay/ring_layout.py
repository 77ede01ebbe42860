"""The memory of a replay: one lane of slots per environment, used as a ring.

Each lane has a single writer. It fills its next slots and then publishes them by advancing the lane's head, an aligned
64-bit counter that nobody else writes. There are no locks: a reader sees everything before the head, and avoids the
oldest slots, which the writer overwrites next. Steps of a writer that is killed half-way are never published.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hotloop.errors import HotloopError
from hotloop.training.replay.kernels import Shape
from hotloop.training.replay.record_layout import WORD_BYTES
from hotloop.training.shared_memory import Block, Field, Where, allocate, attach

SLOTS_PER_STEP = 2
"""The most slots one step takes: its own, and one for the last frame of its episode."""
DEFAULT_GUARD = 64
FRAMES = "frames"
"""Name of the array of frames in the block of a `FrameReplay`."""


class ReplayError(HotloopError):
    """A replay was created, filled or sampled with invalid arguments."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The arrays of a ring: all that another process needs to map them. Picklable."""

    record: np.dtype[np.void]
    shape: Shape
    extra: tuple[Field, ...] = ()
    """Further arrays beside the records, such as frames."""
    item_shape: tuple[int, ...] = ()
    """Shape of one row of the extra arrays."""
    zero_padding: bool = False
    """Whether stacks at the start of an episode are padded with zeros instead of its first frame."""

    @property
    def fields(self) -> tuple[Field, ...]:
        """The arrays of the block."""
        slots = self.shape.lanes * self.shape.length
        words = Field("words", (slots, self.record.itemsize // WORD_BYTES), np.dtype(np.uint32))
        heads = Field("heads", (self.shape.lanes,), np.dtype(np.int64))
        return (heads, words, *self.extra)


def lane_length(capacity: int, num_envs: int, minimum: int) -> int:
    """Divide the capacity among lanes; sampling needs at least `minimum` slots per lane."""
    if num_envs < 1:
        raise ReplayError(f"num_envs is {num_envs}: a replay needs at least one environment")
    if capacity // num_envs < minimum:
        raise ReplayError(
            f"capacity {capacity} gives {capacity // num_envs} steps to each of {num_envs} environments, "
            f"of which sampling needs {minimum}: make it at least {minimum * num_envs}"
        )
    return capacity // num_envs


def check_returns(n_step: int, gamma: float) -> None:
    """Reject invalid options of n-step returns."""
    if n_step < 1:
        raise ReplayError(f"n_step is {n_step}: give 1 or more")
    if not 0 <= gamma <= 1:
        raise ReplayError(f"gamma is {gamma}: give a number from 0 to 1")


def guard_of(storage: Where, guard: int | None, capacity: int, num_envs: int) -> int:
    """Return the number of oldest slots of a lane that are not sampled: `guard`, or a default for the storage.

    In private memory nothing is written while a batch is gathered, so no guard is needed.
    """
    if guard is not None:
        return guard
    return 0 if storage == "memory" else max(SLOTS_PER_STEP, min(DEFAULT_GUARD, capacity // max(1, num_envs) // 8))


@dataclass(frozen=True, slots=True)
class Handle:
    """Lets another process write some lanes: send it there and pass it to a writer's `attach`. Picklable."""

    path: Path
    layout: Layout
    first: int
    count: int


class Ring:
    """The arrays of a replay, mapped into this process."""

    def __init__(self, layout: Layout, block: Block) -> None:
        self.layout = layout
        self.shape = layout.shape
        self.block = block
        self.heads = block.arrays["heads"]
        """int64 [lanes]: slots published in each lane since the start."""
        self.words = block.arrays["words"]
        """uint32 [slots, W]: the records as the kernels see them."""
        self.floats = self.words.view(np.float32)
        """The same memory as float32, to read rewards."""

    @classmethod
    def make(cls, layout: Layout, where: Where) -> Ring:
        """Allocate a ring."""
        return cls(layout, allocate(layout.fields, where))

    @classmethod
    def attach(cls, handle: Handle) -> Ring:
        """Map the ring of another process."""
        return cls(handle.layout, attach(handle.path, handle.layout.fields))

    @property
    def records(self) -> np.ndarray:
        """The records as a structured array [lanes, length]."""
        return self.words.view(self.layout.record).reshape(self.shape.lanes, self.shape.length)

    def by_lane(self) -> dict[str, np.ndarray]:
        """Return the arrays with one row per slot, as [lanes, length, ...]."""
        lanes, length = self.shape.lanes, self.shape.length
        found = {}
        for name in ("words", *(each.name for each in self.layout.extra)):
            array = self.block.arrays[name][: lanes * length]
            found[name] = array.reshape(lanes, length, *array.shape[1:])
        return found

    def handle(self, first: int, count: int) -> Handle:
        """Return the handle with which another process writes `count` lanes starting at `first`."""
        if self.block.path is None:
            raise ReplayError(
                'storage "memory" is seen by one process only: make the replay with storage="shared", or a Path'
            )
        check_lanes(self.shape, first, count)
        return Handle(self.block.path, self.layout, first, count)

    @property
    def in_flight(self) -> int:
        """The most slots of a lane that a writer may have filled but not published: a quarter of the guard."""
        if self.block.path is None:
            return max(1, min(DEFAULT_GUARD // 4, self.shape.length // 4))
        return max(SLOTS_PER_STEP, self.shape.guard // 4)

    def overtaken(self, ids: np.ndarray) -> bool:
        """Return whether another process may have overwritten any of these steps while they were read."""
        if self.block.path is None:
            return False
        lane, seq = ids % self.shape.lanes, ids // self.shape.lanes
        oldest = self.heads[lane] + self.in_flight - self.shape.length
        return bool(np.any((oldest > 0) & (seq - self.shape.back < oldest)))


def check_lanes(shape: Shape, first: int, count: int) -> None:
    """Reject lanes that the ring does not have."""
    if first < 0 or count < 1 or first + count > shape.lanes:
        raise ReplayError(
            f"{count} environments from {first} on are not in this replay: it has those from 0 to {shape.lanes - 1}"
        )


def mismatch(name: str, value: np.ndarray, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> ReplayError:
    """Return the error for an array whose shape or dtype differs from the replay's."""
    return ReplayError(
        f"{name} is {value.dtype} {list(value.shape)} where this replay keeps {dtype} {list(shape)}: "
        "convert it, or make the replay for it"
    )
