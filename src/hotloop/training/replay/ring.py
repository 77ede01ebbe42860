"""A ring of transitions in lanes: one lane of slots for each environment, each with one writer.

A writer fills its next slots and then publishes them by moving its lane's head, one aligned 64-bit number that nobody
else writes. There is no lock: a reader that finds the head finds everything before it, and keeps off the slots that
the writer will overwrite next. A writer that is killed in the middle of a step has not published it, so nobody sees it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hotloop.errors import HotloopError
from hotloop.training.replay.kernels import START, TERMINATED, TRUNCATED, Shape
from hotloop.training.shared_memory import Block, Field, Where, allocate, attach

WORD = 4
MOST_IN_FLIGHT = 2
"""Slots that one step takes at most, with the last frame of its episode: a writer may always have begun so many."""
DEFAULT_GUARD = 64


class ReplayError(HotloopError):
    """A replay was made, filled or sampled in a way that cannot be."""


def record_dtype(**columns: tuple[Any, tuple[int, ...]]) -> np.dtype[Any]:
    """Return the structured type of a record: flags, reward, then columns of (type, shape), each in whole words."""
    everything = {"flags": (np.uint32, ()), "reward": (np.float32, ()), **columns}
    names, formats, offsets, end = [], [], [], 0
    for name, (dtype, shape) in everything.items():
        column = np.dtype((dtype, shape))
        names.append(name)
        formats.append(column)
        offsets.append(end)
        end += words_of(column) * WORD
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": end})


def words_of(column: np.dtype[Any]) -> int:
    """Return how many words a column of a record takes."""
    return -(-column.itemsize // WORD)


def typed(words: np.ndarray, column: np.dtype[Any]) -> np.ndarray:
    """Look at words [B, W] as the column they are, [B, *shape]: no copy, unless the column ends within a word."""
    kind = column.base
    rows = words.view(np.uint8)[:, : column.itemsize] if column.itemsize % WORD else words
    return np.ascontiguousarray(rows).view(kind).reshape(len(words), *column.shape)


@dataclass(frozen=True, slots=True)
class Lanes:
    """How a replay is laid out: enough for another process to find its way in it. Frozen and picklable."""

    record: np.dtype[Any]
    shape: Shape
    extra: tuple[Field, ...] = ()
    """Further arrays beside the records, such as frames."""
    item_shape: tuple[int, ...] = ()
    """Shape of what one row of them is."""

    @property
    def fields(self) -> tuple[Field, ...]:
        """The arrays of the block."""
        slots = self.shape.stripes * self.shape.length
        words = Field("words", (slots, self.record.itemsize // WORD), np.dtype(np.uint32))
        heads = Field("heads", (self.shape.stripes,), np.dtype(np.int64))
        return (heads, words, *self.extra)


def lane_length(capacity: int, num_envs: int, least: int) -> int:
    """Divide a capacity among lanes; `least` slots a lane are needed to sample anything at all."""
    if num_envs < 1:
        raise ReplayError(f"num_envs is {num_envs}: a replay needs at least one environment")
    if capacity // num_envs < least:
        raise ReplayError(
            f"capacity {capacity} gives {capacity // num_envs} steps to each of {num_envs} environments, "
            f"of which sampling needs {least}: make it at least {least * num_envs}"
        )
    return capacity // num_envs


def check_returns(n_step: int, gamma: float) -> None:
    """Refuse an n-step return that means nothing."""
    if n_step < 1:
        raise ReplayError(f"n_step is {n_step}: give 1 or more")
    if not 0 <= gamma <= 1:
        raise ReplayError(f"gamma is {gamma}: give a number from 0 to 1")


def guard_of(storage: Where, guard: int | None, capacity: int, num_envs: int) -> int:
    """Return how many of a lane's oldest slots are not sampled, unless told: none where nobody writes meanwhile."""
    if guard is not None:
        return guard
    return 0 if storage == "memory" else max(MOST_IN_FLIGHT, min(DEFAULT_GUARD, capacity // max(1, num_envs) // 8))


@dataclass(frozen=True, slots=True)
class Handle:
    """What a writing process needs: pass it to the process, and open a writer with it there. Picklable."""

    path: Path
    lanes: Lanes
    first: int
    count: int


class Ring:
    """The arrays of a replay, as this process sees them."""

    def __init__(self, lanes: Lanes, block: Block) -> None:
        self.lanes = lanes
        self.shape = lanes.shape
        self.block = block
        self.heads = block.arrays["heads"]
        """int64 [stripes]: steps published in each lane, ever."""
        self.words = block.arrays["words"]
        """uint32 [slots, W]: the records as the kernels see them."""
        self.floats = self.words.view(np.float32)
        """The same memory, for rewards."""

    @classmethod
    def make(cls, lanes: Lanes, where: Where) -> Ring:
        """Allocate a ring."""
        return cls(lanes, allocate(lanes.fields, where))

    @classmethod
    def attach(cls, handle: Handle) -> Ring:
        """See the ring of another process."""
        return cls(handle.lanes, attach(handle.path, handle.lanes.fields))

    @property
    def records(self) -> np.ndarray:
        """The records by name, [stripes, length]."""
        return self.words.view(self.lanes.record).reshape(self.shape.stripes, self.shape.length)

    def by_lane(self) -> dict[str, np.ndarray]:
        """Return the arrays that hold something a slot, as [stripes, length, ...]."""
        stripes, length = self.shape.stripes, self.shape.length
        found = {}
        for name in ("words", *(each.name for each in self.lanes.extra)):
            array = self.block.arrays[name][: stripes * length]
            found[name] = array.reshape(stripes, length, *array.shape[1:])
        return found

    def handle(self, first: int, count: int) -> Handle:
        """Return what another process needs to write the lanes from `first` on."""
        if self.block.path is None:
            raise ReplayError(
                'storage "memory" is seen by one process only: make the replay with storage="shared", or a Path'
            )
        check_lanes(self.shape, first, count)
        return Handle(self.block.path, self.lanes, first, count)

    @property
    def in_flight(self) -> int:
        """Slots of a lane that a writer may have begun and not published: in a quarter of the guard nobody reads."""
        if self.block.path is None:
            return max(1, min(DEFAULT_GUARD // 4, self.shape.length // 4))
        return max(MOST_IN_FLIGHT, self.shape.guard // 4)

    def overtaken(self, ids: np.ndarray) -> bool:
        """Say whether a writer of another process may have overwritten these steps while they were read."""
        if self.block.path is None:
            return False
        stripe, seq = ids % self.shape.stripes, ids // self.shape.stripes
        oldest = self.heads[stripe] + self.in_flight - self.shape.length
        return bool(np.any((oldest > 0) & (seq - self.shape.back < oldest)))


class Writer:
    """The one who writes the lanes from `first` on: a step of each, then all of them published at once."""

    def __init__(self, ring: Ring, first: int, count: int) -> None:
        check_lanes(ring.shape, first, count)
        self.ring = ring
        self.first, self.count = first, count
        self.fresh = np.ones(count, np.bool_)
        """bool [E]: whether the next step begins an episode."""
        staged = np.zeros(count, ring.lanes.record)
        self.staged_words = staged.view(np.uint32).reshape(count, -1)
        """uint32 [E, W]: a step, before it is written."""
        self._columns = {name: staged[name] for name in staged.dtype.names or ()}
        self.heads = ring.heads[first : first + count]

    def stage(self, action: Any, reward: Any, terminated: Any, truncated: Any) -> np.ndarray:
        """Check and stage what every replay keeps of a step; return where an episode ended, bool [E]."""
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

    def put(self, name: str, value: Any) -> None:
        """Stage one column, [E, ...], whose shape and type must be those of the replay."""
        value = np.asarray(value)
        place = self._columns[name]
        if value.shape != place.shape or value.dtype != place.dtype:
            raise mismatch(name, value, place.dtype, place.shape)
        place[...] = value

    def publish(self, steps: Any, ended: np.ndarray) -> None:
        """Let readers see the `steps` slots that were written in each lane."""
        # This store comes after those of the kernel that wrote the slots. x86 and other strongly ordered machines keep
        # the order of stores; nothing here enforces it elsewhere.
        self.heads += steps
        self.fresh[:] = ended

    def cut(self) -> None:
        """Say that the next step begins a new episode though the last did not end, as after a restart."""
        self.fresh[:] = True


def check_lanes(shape: Shape, first: int, count: int) -> None:
    """Refuse environments that a ring does not have."""
    if first < 0 or count < 1 or first + count > shape.stripes:
        raise ReplayError(
            f"{count} environments from {first} on are not in this replay: it has those from 0 to {shape.stripes - 1}"
        )


def mismatch(name: str, value: np.ndarray, dtype: np.dtype[Any], shape: tuple[int, ...]) -> ReplayError:
    """Say that an array is not what this replay was made for."""
    return ReplayError(
        f"{name} is {value.dtype} {list(value.shape)} where this replay keeps {dtype} {list(shape)}: "
        "convert it, or make the replay for it"
    )
