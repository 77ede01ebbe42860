"""Publishing weights to workers: a versioned block of shared memory with one writer and any number of readers.

The writer alternates between two copies, so a reader can copy the newest one while the next is written. The writer
stores the version it starts to write before, and the newest complete version after. A reader whose copy was being
overwritten in the meantime reads again. Nobody waits, and partly written weights are never used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hotloop.training.collect.interface import CollectError
from hotloop.training.shared_memory import Block, Field, allocate, attach

STARTED, NEWEST = 0, 1
"""The versions stored in a block, counted from 1: the one last started, and the newest complete one."""
COPIES = 2
ALIGN = 64
MAX_TRIES = 1000
"""Attempts to read. One fails only if two versions are published during a single copy."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The published arrays and their positions in a copy. Picklable."""

    fields: tuple[Field, ...]

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray]) -> Layout:
        """Return the layout of these arrays."""
        if not arrays:
            raise CollectError("there are no weights to publish: give at least one array")
        return cls(tuple(Field(name, each.shape, each.dtype) for name, each in arrays.items()))

    @property
    def nbytes(self) -> int:
        """Size of one copy."""
        return max(ALIGN, sum(-(-each.nbytes // ALIGN) * ALIGN for each in self.fields))

    @property
    def block_fields(self) -> tuple[Field, ...]:
        """The arrays of the block."""
        versions = Field("versions", (COPIES,), np.dtype(np.int64))
        return (versions, Field("copies", (COPIES, self.nbytes), np.dtype(np.uint8)))

    def views(self, memory: np.ndarray) -> dict[str, np.ndarray]:
        """Return the arrays in a copy, uint8 [nbytes], as views."""
        views, begin = {}, 0
        for each in self.fields:
            views[each.name] = memory[begin : begin + each.nbytes].view(each.dtype).reshape(each.shape)
            begin += -(-each.nbytes // ALIGN) * ALIGN
        return views

    def check(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Reject arrays with other names, shapes or dtypes."""
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
    """Lets another process read the weights. Picklable."""

    path: Path
    layout: Layout


class Publisher:
    """Writes the weights. Those given to the constructor are version 1."""

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self._layout = Layout.of(arrays)
        self._block: Block = allocate(self._layout.block_fields, "shared")
        self._versions = self._block.arrays["versions"]
        self._copies = [self._layout.views(copy) for copy in self._block.arrays["copies"]]
        self.publish(arrays)

    @property
    def version(self) -> int:
        """The newest version."""
        return int(self._versions[NEWEST])

    def publish(self, arrays: Mapping[str, np.ndarray]) -> int:
        """Write a new version; return its number."""
        self._layout.check(arrays)
        version = self.version + 1
        # Readers rely on the order of these stores. x86 and other strongly ordered machines keep it.
        self._versions[STARTED] = version
        for name, array in self._copies[version % COPIES].items():
            array[...] = arrays[name]
        self._versions[NEWEST] = version
        return version

    def handle(self) -> WeightsHandle:
        """Return the handle with which readers attach."""
        assert self._block.path is not None
        return WeightsHandle(self._block.path, self._layout)

    def close(self) -> None:
        """Let no further process attach."""
        self._block.close()


class Subscriber:
    """Reads the weights into arrays of its own, which the next read overwrites."""

    def __init__(self, handle: WeightsHandle) -> None:
        block = attach(handle.path, handle.layout.block_fields)
        self._versions, self._copies = block.arrays["versions"], block.arrays["copies"]
        self._copy = np.empty(handle.layout.nbytes, np.uint8)
        self._views = handle.layout.views(self._copy)
        self.version = 0
        """The version read last, 0 if none."""

    def read(self) -> dict[str, np.ndarray] | None:
        """Return the newest weights, or None if they were read before."""
        for _ in range(MAX_TRIES):
            version = int(self._versions[NEWEST])
            if version == self.version:
                return None
            np.copyto(self._copy, self._copies[version % COPIES])
            if int(self._versions[STARTED]) < version + COPIES:
                self.version = version
                return self._views
        raise CollectError(f"weights were published twice while they were read, {MAX_TRIES} times: publish less often")
