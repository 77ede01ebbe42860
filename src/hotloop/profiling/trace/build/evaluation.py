"""Separates evaluation from training: environment steps inside an evaluation have counters of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from hotloop.phases import Phase
from hotloop.profiling.trace.build.columns import Table
from hotloop.profiling.trace.reading.names import NodeName, Nodes

APART = 1 << 28
"""Added to the code of a counter where it was counted inside an evaluation."""


def mark(nodes: Mapping[int, NodeName]) -> dict[int, NodeName]:
    """Return the nodes of one thread, with those below a span of phase evaluate marked and given that phase."""
    found: dict[int, NodeName] = {}
    for number, node in sorted(nodes.items()):  # a node's parent has a smaller number
        found[number] = node
        if _evaluates(found.get(node.parent)):
            phase = Phase.EVALUATE if node.kind == "span" else node.phase
            found[number] = replace(node, evaluating=True, phase=phase)
    return found


def counted_apart(counters: Table, nodes: Nodes, steps: int) -> Table:
    """Return the counters with other codes where they were counted inside an evaluation.

    `steps` is the code of the counter of environment steps. If all of them are in evaluations, evaluation is what the
    program does, and the counters are returned unchanged.
    """
    places, row = np.unique(counters["thread"] << 31 | counters["node"], return_inverse=True)
    known = (nodes.get(place >> 31, {}).get(place & ((1 << 31) - 1)) for place in places.tolist())
    inside = np.array([_evaluates(node) for node in known], np.bool_)[row]
    if not (~inside & (counters["counter"] == steps)).any():
        return counters
    return {**counters, "counter": counters["counter"] + APART * inside.astype(np.int64)}


def _evaluates(node: NodeName | None) -> bool:
    return node is not None and (node.evaluating or (node.kind == "span" and node.phase is Phase.EVALUATE))
