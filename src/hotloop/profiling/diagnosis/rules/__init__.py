"""The rules: each is `find(loop) -> list[Cause]` in a file of its own. They know nothing of each other."""

from __future__ import annotations

from collections.abc import Callable

from hotloop.profiling.diagnosis.finding import Cause
from hotloop.profiling.diagnosis.rules.data import (
    float32_frames,
    frame_stack_churn,
    growing_array,
    growing_sample,
    host_sync,
    item_push,
    list_batch,
    queue_contention,
    two_pass_normalise,
)
from hotloop.profiling.diagnosis.rules.environment import (
    heavy_sync_env,
    object_churn,
    python_loop,
    recomputed_property,
    render_bound,
    vector_overhead,
)
from hotloop.profiling.diagnosis.rules.learning import (
    act_one_by_one,
    distribution_validation,
    dropped_gradients,
    many_updates,
    python_returns,
    recompilations,
    slow_optimiser,
    slow_polyak,
    small_device,
    wasted_gradients,
)
from hotloop.profiling.diagnosis.rules.machine import (
    checkpoint_stall,
    drift,
    gc_pauses,
    idle_cores,
    logging_stall,
    memory_growth,
    oversubscription,
)
from hotloop.profiling.diagnosis.rules.trust import (
    impossible_timing,
    non_finite_loss,
    parts_do_not_sum,
    training_mode_acting,
)
from hotloop.profiling.diagnosis.time_slices import Loop

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
    drift.find,
    act_one_by_one.find,
    distribution_validation.find,
    python_returns.find,
    slow_optimiser.find,
    slow_polyak.find,
    two_pass_normalise.find,
    wasted_gradients.find,
    dropped_gradients.find,
    checkpoint_stall.find,
    gc_pauses.find,
    growing_array.find,
    growing_sample.find,
    logging_stall.find,
    memory_growth.find,
    object_churn.find,
    heavy_sync_env.find,
    idle_cores.find,
    non_finite_loss.find,
    parts_do_not_sum.find,
    recompilations.find,
    small_device.find,
    training_mode_acting.find,
    vector_overhead.find,
)
