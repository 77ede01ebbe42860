"""Gathering frames into a batch at the speed of memory, on as many cores as torch uses.

Frames are gathered as uint8 by `torch.index_select`, which copies whole rows on several threads, or as float32 by a
kernel that converts and scales in the same pass. Allocating new memory would take longer than the copy, so the memory
of a batch is reused once no array or tensor refers to it. It is aligned to a page. NumPy's own allocations start 16
bytes after one, so that every 64-byte store touches two cache lines, which makes gathering a quarter slower.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import torch

from hotloop.training.replay.frame_kernels import gather_scaled
from hotloop.training.shared_memory import anonymous

UNUSED_REFCOUNT = 2
"""`sys.getrefcount` of a buffer that nothing uses: the list's reference, and the argument of the call."""
MAX_UNUSED = 2
"""Unused buffers to keep, so that alternating between two batch sizes allocates nothing."""


class Buffers:
    """A pool of batch memory: a buffer is reused when no array refers to it."""

    def __init__(self) -> None:
        self._kept: list[np.ndarray] = []

    def take(self, nbytes: int) -> np.ndarray:
        """Return uint8 [nbytes] that nothing else uses."""
        for i in range(len(self._kept)):
            if self._kept[i].nbytes == nbytes and sys.getrefcount(self._kept[i]) == UNUSED_REFCOUNT:
                self._kept.append(self._kept.pop(i))
                return self._kept[-1]
        # The least recently used come first. `each` is one more reference.
        unused = [each for each in self._kept if sys.getrefcount(each) == UNUSED_REFCOUNT + 1]
        for oldest in range(len(unused) - MAX_UNUSED + 1):
            self._kept = [each for each in self._kept if each is not unused[oldest]]
        self._kept.append(np.frombuffer(anonymous(nbytes), np.uint8))
        return self._kept[-1]


class FrameGatherer:
    """Copies frames of a ring, uint8 [slots, P], into batches."""

    def __init__(self, frames: np.ndarray) -> None:
        self._frames = frames
        self._word = widest(frames.shape[1])
        self._rows = torch.from_numpy(frames.view(self._word))
        self._buffers = Buffers()

    def gather(self, slots: np.ndarray) -> np.ndarray:
        """Return the frames at `slots` [R] as stored: uint8 [R, P]."""
        memory = self._buffers.take(len(slots) * self._frames.shape[1])
        out = torch.from_numpy(memory.view(self._word).reshape(len(slots), -1))
        torch.index_select(self._rows, 0, torch.from_numpy(slots), out=out)
        return memory.reshape(len(slots), -1)

    def gather_scaled(self, slots: np.ndarray, scale: float) -> np.ndarray:
        """Return the frames at `slots` [R] times a scale: float32 [R, P]."""
        rows = len(slots)
        memory = self._buffers.take(rows * self._frames.shape[1] * np.dtype(np.float32).itemsize)
        out = memory.view(np.float32).reshape(rows, -1)
        parts = min(torch.get_num_threads(), rows)
        run_split(rows, parts, lambda span: gather_scaled(self._frames, slots, np.float32(scale), span, out))
        return out


def run_split(rows: int, parts: int, work: Callable[[tuple[int, int]], object]) -> None:
    """Call `work` with each of `parts` equal ranges of rows: the first in this thread, the others in new ones."""
    first, *others = pairwise([rows * part // parts for part in range(parts + 1)])
    threads = [threading.Thread(target=work, args=(span,)) for span in others]
    for thread in threads:
        thread.start()
    work(first)
    for thread in threads:
        thread.join()


def widest(row_bytes: int) -> np.dtype[np.generic]:
    """Return the widest integer type that divides a row: the fewer elements, the faster the copy."""
    return np.dtype(
        next(kind for kind in (np.int64, np.int32, np.int16, np.uint8) if not row_bytes % np.dtype(kind).itemsize)
    )
