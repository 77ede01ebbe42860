"""Where replay keeps its arrays: in memory, in shared memory, or in a file that is mapped into memory.

All arrays of a replay lie in one block, so that one path is all that another process needs to see them. A block is a
mapping that lives as long as an array looks into it. Shared memory has no name in any directory: it is found through
its maker, and is gone with the last process that has it open, however that ends.
"""

from __future__ import annotations

import math
import mmap
import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import psutil

from hotloop.errors import HotloopError

Where = Literal["memory", "shared"] | Path
SHARED = "hotloop"
"""What the system shows as the name of shared memory."""
ALIGN = 1 << 21
"""Arrays begin at a huge page, so that the kernel may use such for them: random reads then miss the TLB far less."""
SMALL = 64
"""Arrays smaller than a huge page begin at a cache line."""


class StorageError(HotloopError):
    """There is no room for a replay, or not where it was said to be."""


@dataclass(frozen=True, slots=True)
class Field:
    """One array of a block."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Its size."""
        return math.prod(self.shape) * self.dtype.itemsize


class Block:
    """Named arrays in one piece of memory. Zero until written.

    Attributes:
        arrays: The arrays by name.
        path: What another process maps to see the same; None if no other can.
        nbytes: Size in all.
    """

    def __init__(self, memory: mmap.mmap, fields: tuple[Field, ...], path: Path | None = None) -> None:
        self.arrays = carve(memory, fields)
        self.path = path
        self.nbytes = len(memory)
        self._finalizer: Callable[[], object] | None = None

    def close_with(self, descriptor: int) -> Block:
        """Let the block's file be closed when it is closed, dropped, or at exit, whichever comes first."""
        self._finalizer = weakref.finalize(self, os.close, descriptor)
        return self

    def close(self) -> None:
        """Let no other process attach from here on. Arrays in use stay valid; a second call does nothing."""
        if self._finalizer is not None:
            self._finalizer()


def allocate(fields: tuple[Field, ...], where: Where = "memory") -> Block:
    """Make a block for fields.

    Args:
        fields: The arrays.
        where: "memory", "shared", or the path of a new file on disk.
    """
    size = block_size(fields)
    if where == "memory":
        return Block(anonymous(size), fields)
    if where == "shared":
        descriptor = _make_shared(size)
        path = Path(f"/proc/{os.getpid()}/fd/{descriptor}")
        return Block(_map_file(path, size), fields, path).close_with(descriptor)
    if not isinstance(where, Path):
        raise StorageError(f'storage {where!r} is unknown: say "memory", "shared", or Path("file") for a file on disk')
    _make_file(where, size)
    return Block(_map_file(where, size), fields, where)


def attach(path: Path, fields: tuple[Field, ...]) -> Block:
    """Map the block that another process made. Closing it here leaves it there."""
    size = block_size(fields)
    try:
        found = path.stat().st_size
        # The number of a file that was closed is used again for another.
        gone = path.is_relative_to("/proc") and not os.readlink(path).startswith(f"/memfd:{SHARED}")
    except FileNotFoundError:
        gone, found = True, 0
    if gone:
        raise StorageError(f"the replay at {path} is gone: its maker has ended or closed it")
    if found < size:
        raise StorageError(f"{path} has {found:,} bytes where this replay has {size:,}: attach with its own handle")
    return Block(_map_file(path, size), fields, path)


def block_size(fields: tuple[Field, ...]) -> int:
    """Return how many bytes the fields take in one block."""
    end = 0
    for each in fields:
        end = _begin(end, each) + each.nbytes
    return max(mmap.PAGESIZE, -(-end // mmap.PAGESIZE) * mmap.PAGESIZE)


def carve(memory: mmap.mmap, fields: tuple[Field, ...]) -> dict[str, np.ndarray]:
    """Lay the arrays out in a piece of memory, one after the other."""
    arrays, end = {}, 0
    for each in fields:
        begin = _begin(end, each)
        end = begin + each.nbytes
        # np.frombuffer wants at least one element, and a ring has at least one.
        flat = np.frombuffer(memory, np.uint8, each.nbytes, begin)
        arrays[each.name] = flat.view(each.dtype).reshape(each.shape)
    return arrays


def _begin(end: int, each: Field) -> int:
    align = ALIGN if each.nbytes >= ALIGN else SMALL
    return -(-end // align) * align


def anonymous(size: int) -> mmap.mmap:
    """Return memory of this process, zero until written, which begins at a page."""
    total = psutil.virtual_memory().total
    if size > total:
        raise _no_room("memory", size, total)
    try:
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise _no_room(f"memory ({error.strerror})", size, psutil.virtual_memory().available) from None
    _prefer_huge_pages(memory)
    return memory


def _make_shared(size: int) -> int:
    """Return the descriptor of a new file in memory."""
    total = psutil.virtual_memory().total
    if size > total:
        raise _no_room("shared memory", size, total)
    descriptor = os.memfd_create(SHARED)
    os.ftruncate(descriptor, size)
    return descriptor


def _make_file(path: Path, size: int) -> None:
    try:
        with path.open("xb") as file:
            # A hole in the file that the disk cannot fill later would kill the process with SIGBUS.
            os.posix_fallocate(file.fileno(), 0, size)
    except FileExistsError:
        raise StorageError(f"{path} is there already: remove it, or name a new file for the replay") from None
    except OSError as error:
        path.unlink(missing_ok=True)
        raise StorageError(f"cannot make a replay of {size:,} bytes at {path}: {error.strerror}") from None


def _map_file(path: Path, size: int) -> mmap.mmap:
    with path.open("r+b") as file:
        memory = mmap.mmap(file.fileno(), size)
    _prefer_huge_pages(memory)
    return memory


def _prefer_huge_pages(memory: mmap.mmap) -> None:
    if hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            memory.madvise(mmap.MADV_HUGEPAGE)
        except OSError:
            pass  # the kernel was built without them: slower, not wrong


def _no_room(place: str, size: int, free: int) -> StorageError:
    return StorageError(
        f"a replay of {size:,} bytes does not fit into {place} ({free:,} bytes): "
        'lower the capacity, or keep it on disk with storage=Path("file")'
    )
