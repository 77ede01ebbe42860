"""Names and meanings of all counters. Hooks add to them; summaries and rules read them.

A recording keeps each count with the place in the call tree where it was made. Programs may add counters of their own
with `hotloop.count`; `tests/unit/test_counters.py` checks that hotloop itself uses only the names listed here.
"""

from __future__ import annotations

from collections.abc import Mapping

LOOP: Mapping[str, str] = {
    "env_steps": "transitions, summed over all environments",
    "frames": "frames by which the games advanced; more than env_steps if actions are repeated",
    "updates": "optimiser steps of the main optimiser",
    "episodes": "episodes that ended",
}
"""What a training loop does. Pipelines, recordings and reports never mix the four."""

HOOKS: Mapping[str, str] = {
    "vector_steps": "calls of an outermost step(), of one environment or of a vector of them",
    "replay_adds_bytes": "bytes of the arrays given to a replay buffer's method that stores",
    "replay_bytes": "bytes of the batches sampled from a replay buffer",
    "transfer_bytes": "bytes copied between devices",
    "host_syncs.item": "tensor values fetched into Python by item(), float(), int() or bool()",
    "host_syncs.cpu": "calls of Tensor.cpu()",
    "host_syncs.numpy": "calls of Tensor.numpy()",
    "host_syncs.tolist": "calls of Tensor.tolist()",
    "flops": "floating-point operations of layers, forward and backward",
    "optimiser_tensors": "tensors that an optimiser step goes through",
    "optimiser_elements": "elements of these tensors",
    "graphs_used": "forward passes whose graph a backward pass used; one forward pass in 16 is observed",
    "graphs_unused": "observed forward passes whose graph was freed without being used",
    "graph_nodes_unused": "nodes of these unused graphs",
    "gradients_taken_elements": "gradient elements that optimiser steps used, estimated from one step in 17",
    "gradients_dropped_elements": "gradient elements zeroed before any optimiser used them, estimated likewise",
    "training_mode.dropout": "forward passes through dropout in training mode",
    "training_mode.batchnorm": "forward passes through batch normalisation in training mode",
    "non_finite_losses": "backward passes that started from a loss that is NaN or infinite",
    "compilations": "compilations by torch.compile",
    "recompilations": "compilations of code that torch.compile had compiled before",
}
"""What hooks count in the libraries that a training script uses."""

SAMPLED = (
    frozenset(HOOKS)
    - {"vector_steps", "transfer_bytes", "compilations", "recompilations"}
    - {name for name in HOOKS if name.startswith("host_syncs.")}
)
"""What hooks count only in the calls that they look at more closely. It is scaled up to all calls when read."""

PROCESS: Mapping[str, str] = {
    "cpu_ns": "CPU time of the process",
    "starved_ns": "time in which the main thread was ready to run but had no core",
    "gc_pauses": "runs of Python's garbage collector",
    "gc_pause_ns": "time in these runs",
    "page_faults_minor": "page faults served without reading from disk",
    "page_faults_major": "page faults that had to read from disk",
}
"""What the recorder reads from the system for each window. These belong to no place in the call tree."""

COUNTERS = tuple(LOOP)
EVALUATION = "evaluation_"
"""Prefix of counts made inside an evaluation: its environment steps are not training."""


def steps_per_episode(env_steps: int, episodes: int) -> float | None:
    """Return the environment steps per finished episode, or None before the first has ended.

    Steps of unfinished episodes are included, so that `episodes × steps_per_episode = env_steps`.
    """
    return env_steps / episodes if episodes else None
