"""Replay: where experience is kept between the environments that make it and the learner that uses it.

`VectorReplay` keeps flat observations, `FrameReplay` images, of which it stores each frame once. Both sample uniformly
or by priority, make n-step returns when sampled, and live in memory, in shared memory or in a mapped file.
"""

from __future__ import annotations

from hotloop.training.replay.batch import Batch
from hotloop.training.replay.frames import FrameReplay, FrameWriter
from hotloop.training.replay.ring import Handle, ReplayError
from hotloop.training.replay.samplers import Prioritised
from hotloop.training.replay.vector import VectorReplay, VectorWriter
from hotloop.training.shared_memory import StorageError

__all__ = [
    "Batch",
    "FrameReplay",
    "FrameWriter",
    "Handle",
    "Prioritised",
    "ReplayError",
    "StorageError",
    "VectorReplay",
    "VectorWriter",
]
