"""Gathering frames into a batch at the speed of memory, on all the cores that torch may use.

As they are stored, they are gathered by `torch.index_select`, which is a copy of whole rows on several threads; as
input of a network, by a kernel that converts and scales while it copies, in one pass. Fresh memory would cost more than
the gathering, so a batch's memory is used again as soon as nobody holds an array or tensor of it any more. It begins at
a page, as the ring does: NumPy's begins 16 bytes behind one, and every store of 64 bytes then touches two cache lines,
which makes the gathering a quarter longer.
"""

from __future__ import annotations

import sys
import threading
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from hotloop.training.replay.frame_kernels import gather_scaled
from hotloop.training.shared_memory import anonymous

ONLY_HERE = 2
"""References to an array that only its list and the call that counts them know."""
KEPT_FREE = 2
"""Batches' memory that is kept though nobody looks into it."""


class Buffers:
    """Memory of batches, used again when free."""

    def __init__(self) -> None:
        self._kept: list[np.ndarray] = []

    def take(self, nbytes: int) -> np.ndarray:
        """Return uint8 [nbytes] that nobody else looks into."""
        for i in range(len(self._kept)):
            if self._kept[i].nbytes == nbytes and sys.getrefcount(self._kept[i]) == ONLY_HERE:
                self._kept.append(self._kept.pop(i))
                return self._kept[-1]
        # Who asks for batches of two kinds in turn should get both quickly; what was not asked for since is let go.
        free = [each for each in self._kept if sys.getrefcount(each) == ONLY_HERE + 1]
        for old in range(len(free) - KEPT_FREE + 1):
            self._kept = [each for each in self._kept if each is not free[old]]
        self._kept.append(np.frombuffer(anonymous(nbytes), np.uint8))
        return self._kept[-1]


class FrameGatherer:
    """Copies frames of a ring, uint8 [slots, P], into batches."""

    def __init__(self, frames: np.ndarray) -> None:
        self._frames = frames
        self._wide = widest(frames.shape[1])
        self._rows = torch.from_numpy(frames.view(self._wide))
        self._buffers = Buffers()

    def gather(self, places: np.ndarray) -> np.ndarray:
        """Return the frames at `places` [R] as stored: uint8 [R, P]."""
        memory = self._buffers.take(len(places) * self._frames.shape[1])
        out = torch.from_numpy(memory.view(self._wide).reshape(len(places), -1))
        torch.index_select(self._rows, 0, torch.from_numpy(places), out=out)
        return memory.reshape(len(places), -1)

    def gather_scaled(self, places: np.ndarray, scale: float) -> np.ndarray:
        """Return the frames at `places` [R] times a scale: float32 [R, P]."""
        rows = len(places)
        memory = self._buffers.take(rows * self._frames.shape[1] * np.dtype(np.float32).itemsize)
        out = memory.view(np.float32).reshape(rows, -1)
        parts = min(torch.get_num_threads(), rows)
        edges = [rows * part // parts for part in range(parts + 1)]
        jobs = [(self._frames, places, np.float32(scale), span, out) for span in pairwise(edges)]
        helpers = [threading.Thread(target=gather_scaled, args=job) for job in jobs[1:]]
        for helper in helpers:
            helper.start()
        gather_scaled(*jobs[0])
        for helper in helpers:
            helper.join()
        return out


def widest(row_bytes: int) -> np.dtype[Any]:
    """Return the widest integer type of which a row is made: fewer elements are copied faster."""
    return np.dtype(
        next(kind for kind in (np.int64, np.int32, np.int16, np.uint8) if not row_bytes % np.dtype(kind).itemsize)
    )
