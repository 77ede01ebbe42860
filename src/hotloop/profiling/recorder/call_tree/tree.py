"""A thread's call tree: its nodes by number, and what the fold has to know about spans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from hotloop.phases import Phase
from hotloop.spans import hot_path
from hotloop.spans.registry import MAX_NAMES

if hot_path.ACCELERATED:
    from hotloop.profiling.recorder.call_tree._fold import Places, add_calls, begun  # pyright: ignore[reportMissingImports]
else:
    Places = add_calls = None
    begun: Callable[[NDArray[np.int64], int], tuple[dict[int, int], int]] | None = None

if TYPE_CHECKING:
    from hotloop.profiling.recorder.feed import NamedSpan

MAX_NODES = 5000
"""Most nodes of a call tree. No sensible program has more paths; further ones are folded into the root."""
DECISIVE = frozenset({Phase.ENV, Phase.SAMPLE, Phase.BACKWARD, Phase.OPTIMISE})
"""Phases that show the purpose of the network calls before them: acting if ENV comes first, else learning."""
ROOT = 0
EDGE = 0
"""In place of a sibling: the beginning or end of the container, for a gap with a sibling on one side only."""
MAX_CODES = MAX_NAMES + 2
"""Largest number of span codes: one per name, one shared by further names, and the root."""
DARK = -1
"""In place of siblings that were not timed, because spans were switched off."""


@dataclass(frozen=True, slots=True)
class NodeKey:
    """Identifies a node of the tree: a span below a parent, or the gap between two siblings.

    A variant is 2 * code, plus 1 for a network call that was found to be acting.
    """

    parent: int
    kind: Literal["root", "span", "gap"]
    variant: int
    before: int = EDGE
    """For a gap: the variant of the sibling before it."""


@dataclass(frozen=True, slots=True)
class OpenSpan:
    """A span that was open at the end of a segment."""

    node: int
    start_ns: int
    last_child: int = EDGE
    """Variant of the child that ended last; the next gap follows it."""
    code: int = 0
    """Code of the span, 0 for the root. Kept here because in a full tree the node does not determine it."""


Triples = bytes
"""Rows of three int64."""


class PlacesInC(Protocol):
    """The nodes of a tree as `_fold.c` stores them. It folds events into them."""

    def fold(
        self, events: NDArray[np.int64], opened: tuple[tuple[int, int, int, int], ...], *rest: int | bytes
    ) -> list[tuple] | tuple[Triples, Triples, Triples, bytes, bytes, list[tuple], list[tuple]]:
        """Fold events; return only the new nodes if an end has no begin."""
        ...


@dataclass(slots=True)
class Tree:
    """A thread's call tree: numbered paths. Nodes are never removed."""

    keys: list[NodeKey] = field(default_factory=lambda: [NodeKey(-1, "root", 0)])
    ids: dict[NodeKey, int] = field(default_factory=dict)
    gap_after: dict[tuple[int, int], int] = field(default_factory=dict)
    """The last gap after each sibling, to guess a gap whose end is not known yet."""
    acting: dict[int, bool] = field(default_factory=dict)
    """Whether the last call of each network was acting, to guess a call for which the next span is not known yet."""
    places: PlacesInC | None = field(default_factory=lambda: Places and Places(MAX_NODES, MAX_CODES))
    """If the fold is done in C: stores all of the above except `keys`."""

    def pairs(self) -> set[tuple[int, int]]:
        """Return the pairs (outer, inner) of span codes such that inner occurred directly inside outer."""
        spans = [key for key in self.keys if key.kind == "span" and key.parent > ROOT]
        return {(self.keys[key.parent].variant >> 1, key.variant >> 1) for key in spans}

    def intern(self, key: NodeKey) -> int:
        """Return the number of a path, new or known."""
        found = self.ids.get(key)
        if found is None:
            if len(self.keys) >= MAX_NODES:
                return ROOT
            found = self.ids[key] = len(self.keys)
            self.keys.append(key)
        return found


@dataclass(frozen=True, slots=True)
class Codes:
    """Properties of each span code that the fold has to know. Code 0 is the root, a container."""

    container: NDArray[np.bool_]
    """Spans without a phase of their own: the gaps between their children get their own nodes."""
    network: NDArray[np.bool_]
    decisive: NDArray[np.bool_]
    env: NDArray[np.bool_]
    flags: bytes
    """The four properties above as bits 1, 2, 4, 8, one byte per code."""


def codes_of(spans: Sequence[NamedSpan]) -> Codes:
    """Return the properties of the spans that the fold has to know."""
    phases = [None, *(each.phase for each in spans)]
    hooks = [False, *(each.hook for each in spans)]
    container = np.array([p is None or p is Phase.OTHER for p in phases])
    network = np.array([h and p is Phase.FORWARD for p, h in zip(phases, hooks, strict=True)])
    decisive = np.array([p in DECISIVE for p in phases])
    env = np.array([p is Phase.ENV for p in phases])
    flags = (container + 2 * network + 4 * decisive + 8 * env).astype(np.uint8).tobytes()
    return Codes(container, network, decisive, env, flags)
