"""What happens inside an evaluation is evaluation: its environment steps train nobody, and are counted apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hotloop.phases import Phase
from hotloop.trace.columns import Table

APART = 1 << 28
"""Added to the code of a counter where it was counted inside an evaluation."""
PREFIX = "evaluation_"


def mark(nodes: Mapping[int, dict[str, Any]]) -> None:
    """Mark the nodes of one thread that lie below a span of phase evaluate, and give them that phase."""
    for _, node in sorted(nodes.items()):  # a node's parent has a smaller number
        if _evaluates(nodes.get(node["parent"])):
            node["evaluating"] = True
            if node["kind"] == "span":
                node["phase"] = Phase.EVALUATE


def counted_apart(counters: Table, nodes: Mapping[int, Mapping[int, dict[str, Any]]], steps: int) -> Table:
    """Return the counters with other codes where they were counted inside an evaluation.

    Args:
        counters: The table of all threads.
        nodes: By thread, the nodes that `mark` has seen.
        steps: Code of the counter of environment steps. Where all of them are an evaluation's, it is what the program
            does, and nothing is counted apart.
    """
    places = zip(counters["thread"].tolist(), counters["node"].tolist(), strict=True)
    inside = np.array([_evaluates(nodes.get(thread, {}).get(node)) for thread, node in places], np.bool_)
    if not (~inside & (counters["counter"] == steps)).any():
        return counters
    return {**counters, "counter": counters["counter"] + APART * inside.astype(np.int64)}


def _evaluates(node: dict[str, Any] | None) -> bool:
    if node is None:
        return False
    return "evaluating" in node or (node["kind"] == "span" and node["phase"] == Phase.EVALUATE)
