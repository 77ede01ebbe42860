"""Blocks of named arrays in private memory, in shared memory, or in a mapped file.

All arrays of a replay are in one block, so another process needs only one path to map them. A mapping lives as long as
any array refers to it. Shared memory has no name in any directory: other processes open it through its creator's
`/proc/PID/fd`, and the kernel frees it when the last process that maps it ends, even if killed.
"""

from __future__ import annotations

import math
import mmap
import os
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import psutil

from hotloop.errors import HotloopError

Where = Literal["memory", "shared"] | Path
SHARED = "hotloop"
"""Name of shared memory in /proc."""
ALIGN = 1 << 21
"""Alignment of large arrays, a huge page: with huge pages, random reads cause far fewer TLB misses."""
SMALL = 64
"""Alignment of arrays smaller than a huge page: a cache line."""


class StorageError(HotloopError):
    """Memory for a replay cannot be allocated or attached."""


@dataclass(frozen=True, slots=True)
class Field:
    """One array of a block."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]

    @property
    def nbytes(self) -> int:
        """Size of the array."""
        return math.prod(self.shape) * self.dtype.itemsize


class Block:
    """Named arrays in one mapping, initially zero.

    Attributes:
        arrays: The arrays by name.
        path: File that another process maps to share it; None for private memory.
        nbytes: Total size.
    """

    def __init__(
        self, memory: mmap.mmap, fields: tuple[Field, ...], path: Path | None = None, descriptor: int | None = None
    ) -> None:
        self.arrays = carve(memory, fields)
        self.path = path
        self.nbytes = len(memory)
        self._finalizer = None if descriptor is None else weakref.finalize(self, os.close, descriptor)
        """Closes the descriptor when the block is closed or garbage collected, or at exit."""

    def close(self) -> None:
        """Let no further process attach. Arrays in use stay valid; a second call does nothing."""
        if self._finalizer is not None:
            self._finalizer()


def allocate(fields: tuple[Field, ...], where: Where = "memory") -> Block:
    """Allocate a block: in "memory", "shared", or at the path of a new file on disk."""
    size = block_size(fields)
    if where == "memory":
        return Block(anonymous(size), fields)
    if where == "shared":
        descriptor = _make_shared(size)
        path = Path(f"/proc/{os.getpid()}/fd/{descriptor}")
        return Block(_map_file(path, size), fields, path, descriptor)
    if not isinstance(where, Path):
        raise StorageError(f'storage {where!r} is unknown: say "memory", "shared", or Path("file") for a file on disk')
    _make_file(where, size)
    return Block(_map_file(where, size), fields, where)


def attach(path: Path, fields: tuple[Field, ...]) -> Block:
    """Map the block of another process. Closing it here does not affect that process."""
    size = block_size(fields)
    try:
        found = path.stat().st_size
        # After the file was closed, its descriptor number may belong to another file.
        closed = path.is_relative_to("/proc") and not os.readlink(path).startswith(f"/memfd:{SHARED}")
    except FileNotFoundError:
        closed, found = True, 0
    if closed:
        raise StorageError(f"the replay at {path} is gone: its maker has ended or closed it")
    if found < size:
        raise StorageError(f"{path} has {found:,} bytes where this replay has {size:,}: attach with its own handle")
    return Block(_map_file(path, size), fields, path)


def block_size(fields: tuple[Field, ...]) -> int:
    """Return the size of a block with these fields."""
    end = 0
    for each in fields:
        end = _aligned(end, each) + each.nbytes
    return max(mmap.PAGESIZE, -(-end // mmap.PAGESIZE) * mmap.PAGESIZE)


def carve(memory: mmap.mmap, fields: tuple[Field, ...]) -> dict[str, np.ndarray]:
    """Return the arrays of a mapping, laid out one after the other."""
    arrays, end = {}, 0
    for each in fields:
        begin = _aligned(end, each)
        end = begin + each.nbytes
        # np.frombuffer needs at least one byte; no array of a ring is empty.
        flat = np.frombuffer(memory, np.uint8, each.nbytes, begin)
        arrays[each.name] = flat.view(each.dtype).reshape(each.shape)
    return arrays


def _aligned(end: int, each: Field) -> int:
    align = ALIGN if each.nbytes >= ALIGN else SMALL
    return -(-end // align) * align


def anonymous(size: int) -> mmap.mmap:
    """Return private memory, page-aligned and initially zero."""
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
    total = psutil.virtual_memory().total
    if size > total:
        raise _no_room("shared memory", size, total)
    descriptor = os.memfd_create(SHARED)
    os.ftruncate(descriptor, size)
    return descriptor


def _make_file(path: Path, size: int) -> None:
    try:
        with path.open("xb") as file:
            # Without reserved space, writing to the mapping of a full disk kills the process with SIGBUS.
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
            pass  # not supported by this kernel: slower, but correct


def _no_room(place: str, size: int, free: int) -> StorageError:
    return StorageError(
        f"a replay of {size:,} bytes does not fit into {place} ({free:,} bytes): "
        'lower the capacity, or keep it on disk with storage=Path("file")'
    )
