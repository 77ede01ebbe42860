"""Gathering frames into a batch at the speed of memory, on as many threads as torch may use.

As they are stored, or converted and scaled while they are copied, in one pass. Fresh memory would cost more than the
gathering, so a batch's memory is used again as soon as nobody holds an array or tensor of it any more.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from hotloop.replay.gather_kernels import gather_rows, gather_scaled

ONLY_HERE = 2
"""References to an array that only its list and the call that counts them know."""
KEPT_FREE = 2
"""Batches' memory that is kept though nobody looks into it."""
WORTH_HELP = 500_000
"""Bytes of a batch from which on a second thread gains more than it takes to wake it."""
Job = tuple[Callable[..., None], tuple[Any, ...], "queue.SimpleQueue[None]"]


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
        self._kept.append(np.empty(nbytes, np.uint8))
        return self._kept[-1]


class Helpers:
    """Threads that stand ready to run the kernel that the caller runs, beside it. They end with it."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        weakref.finalize(self, _send_home, self._jobs, self._threads)

    def share(self, threads: int, kernel: Callable[..., None], *arguments: Any) -> None:
        """Run a kernel on so many threads, this one included; its last argument is the rows that are taken."""
        arguments = (*arguments, np.zeros(1, np.int64))
        done: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._have(threads - 1)
        for _ in range(threads - 1):
            self._jobs.put((kernel, arguments, done))
        try:
            kernel(*arguments)
        finally:
            for _ in range(threads - 1):
                done.get()

    def _have(self, count: int) -> None:
        if self._process != os.getpid():  # a fork has none of its parent's threads
            self.__init__()
        while len(self._threads) < count:
            self._threads.append(threading.Thread(target=_help, args=(self._jobs,), name="gather", daemon=True))
            self._threads[-1].start()


def _help(jobs: queue.SimpleQueue[Job | None]) -> None:
    while (job := jobs.get()) is not None:
        kernel, arguments, done = job
        try:
            kernel(*arguments)
        finally:
            done.put(None)
            del job, arguments


def _send_home(jobs: queue.SimpleQueue[Job | None], threads: list[threading.Thread]) -> None:
    for _ in threads:
        jobs.put(None)


class FrameGatherer:
    """Copies frames of a ring, uint8 [slots, P], into batches."""

    def __init__(self, frames: np.ndarray) -> None:
        self._frames = frames
        self._buffers, self._helpers = Buffers(), Helpers()

    def gather(self, places: np.ndarray) -> np.ndarray:
        """Return the frames at `places` [R] as stored: uint8 [R, P]."""
        memory = self._buffers.take(places.size * self._frames.shape[1])
        self._helpers.share(_threads(memory), gather_rows, self._frames, places, memory.ctypes.data)
        return memory.reshape(places.size, -1)

    def gather_scaled(self, places: np.ndarray, scale: float) -> np.ndarray:
        """Return the frames at `places` [R] times a scale: float32 [R, P]."""
        memory = self._buffers.take(places.size * self._frames.shape[1] * np.dtype(np.float32).itemsize)
        arguments = (self._frames, places, np.float32(scale), memory.ctypes.data)
        self._helpers.share(_threads(memory), gather_scaled, *arguments)
        return memory.view(np.float32).reshape(places.size, -1)


def _threads(memory: np.ndarray) -> int:
    return torch.get_num_threads() if memory.nbytes >= WORTH_HELP else 1
