"""Weights on their way to those who play: a versioned block of shared memory, one writer, any number of readers.

Two copies lie side by side and are written in turn, so a reader has a whole publication's time to copy the newest one
out. The writer says which version it has begun before it writes, and which is the newest after: a reader that finds
the copy it took begun anew takes the newest again. Nobody ever waits, and nothing torn is ever used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hotloop.training.collect.interface import CollectError
from hotloop.training.shared_memory import Block, Field, allocate, attach

BEGUN, NEWEST = 0, 1
"""The marks of a block: versions, counted from 1."""
COPIES = 2
ALIGN = 64
MOST_TRIES = 1000
"""How often a reader may be overtaken, twice within the time of one copy, before something must be wrong."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Which arrays are published, and where each lies in a copy. Picklable."""

    fields: tuple[Field, ...]

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray]) -> Layout:
        """Lay out arrays like these."""
        if not arrays:
            raise CollectError("there are no weights to publish: give at least one array")
        return cls(tuple(Field(name, each.shape, each.dtype) for name, each in arrays.items()))

    @property
    def nbytes(self) -> int:
        """Size of a copy."""
        return max(ALIGN, sum(-(-each.nbytes // ALIGN) * ALIGN for each in self.fields))

    @property
    def block_fields(self) -> tuple[Field, ...]:
        """The arrays of the block."""
        marks = Field("marks", (COPIES,), np.dtype(np.int64))
        return (marks, Field("copies", (COPIES, self.nbytes), np.dtype(np.uint8)))

    def views(self, memory: np.ndarray) -> dict[str, np.ndarray]:
        """Return the arrays that lie in a copy, uint8 [nbytes]."""
        found, begin = {}, 0
        for each in self.fields:
            found[each.name] = memory[begin : begin + each.nbytes].view(each.dtype).reshape(each.shape)
            begin += -(-each.nbytes // ALIGN) * ALIGN
        return found

    def check(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Refuse arrays of other names, shapes or types."""
        if arrays.keys() != {each.name for each in self.fields}:
            raise CollectError(
                f"weights {', '.join(arrays)} were published where {', '.join(each.name for each in self.fields)} "
                "were at first: publish the same arrays every time"
            )
        for each in self.fields:
            found = arrays[each.name]
            if found.shape != each.shape or found.dtype != each.dtype:
                raise CollectError(
                    f"weights {each.name!r} are {found.dtype} {list(found.shape)} where they were {each.dtype} "
                    f"{list(each.shape)} at first: publish the same shapes and types every time"
                )


@dataclass(frozen=True, slots=True)
class WeightsHandle:
    """What a reading process needs. Picklable."""

    path: Path
    layout: Layout


class Publisher:
    """The one who writes.

    Args:
        arrays: The first version.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self._layout = Layout.of(arrays)
        self._block: Block = allocate(self._layout.block_fields, "shared")
        self._marks = self._block.arrays["marks"]
        self._copies = [self._layout.views(copy) for copy in self._block.arrays["copies"]]
        self.publish(arrays)

    @property
    def version(self) -> int:
        """The newest."""
        return int(self._marks[NEWEST])

    def publish(self, arrays: Mapping[str, np.ndarray]) -> int:
        """Write a version; return its number."""
        self._layout.check(arrays)
        version = self.version + 1
        # Readers rely on the order of these stores. x86 and other strongly ordered machines keep it.
        self._marks[BEGUN] = version
        for name, place in self._copies[version % COPIES].items():
            place[...] = arrays[name]
        self._marks[NEWEST] = version
        return version

    def handle(self) -> WeightsHandle:
        """Return what readers need."""
        assert self._block.path is not None
        return WeightsHandle(self._block.path, self._layout)

    def close(self) -> None:
        """Let nobody attach from here on."""
        self._block.close()


class Subscriber:
    """One who reads. The arrays it returns are its own, and are overwritten by the next read."""

    def __init__(self, handle: WeightsHandle) -> None:
        block = attach(handle.path, handle.layout.block_fields)
        self._marks, self._copies = block.arrays["marks"], block.arrays["copies"]
        self._mine = np.empty(handle.layout.nbytes, np.uint8)
        self._views = handle.layout.views(self._mine)
        self.version = 0
        """Of what was read last."""

    def read(self) -> dict[str, np.ndarray] | None:
        """Return the newest weights, or None if they were read already."""
        for _ in range(MOST_TRIES):
            version = int(self._marks[NEWEST])
            if version == self.version:
                return None
            np.copyto(self._mine, self._copies[version % COPIES])
            if int(self._marks[BEGUN]) < version + COPIES:
                self.version = version
                return self._views
        raise CollectError(f"weights were published twice while they were read, {MOST_TRIES} times: publish less often")
