"""The rules: each is `find(loop) -> list[Cause]` in a file of its own. They know nothing of each other."""

from __future__ import annotations

from collections.abc import Callable

from hotloop.explain.finding import Cause
from hotloop.explain.loop import Loop
from hotloop.explain.rules import (
    float32_frames,
    frame_stack_churn,
    host_sync,
    impossible_timing,
    item_push,
    list_batch,
    many_updates,
    oversubscription,
    python_loop,
    queue_contention,
    recomputed_property,
    render_bound,
)

RULES: tuple[Callable[[Loop], list[Cause]], ...] = (
    list_batch.find,
    float32_frames.find,
    item_push.find,
    many_updates.find,
    python_loop.find,
    render_bound.find,
    frame_stack_churn.find,
    recomputed_property.find,
    queue_contention.find,
    oversubscription.find,
    host_sync.find,
    impossible_timing.find,
)
