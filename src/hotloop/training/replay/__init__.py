"""Replay buffers, between the environments that produce transitions and the learner that samples them.

`VectorReplay` stores flat observations. `FrameReplay` stores images, each frame once. Both sample uniformly or by
priority, compute n-step returns when sampled, and live in private memory, shared memory or a mapped file.
"""

from __future__ import annotations

from hotloop.training.replay.batch import Batch
from hotloop.training.replay.frames import FrameReplay
from hotloop.training.replay.ring_layout import Handle, ReplayError
from hotloop.training.replay.samplers import Prioritised
from hotloop.training.replay.vector import VectorReplay
from hotloop.training.replay.writers import FrameWriter, VectorWriter
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
