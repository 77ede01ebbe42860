"""A thread's call tree: its places by number, and what the fold must know about spans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from hotloop.phases import Phase
from hotloop.spans import hot_path
from hotloop.spans.registry import MAX_NAMES, Span

if hot_path.ACCELERATED:
    from hotloop.profiling.recorder.call_tree._fold import Places, add_calls, begun  # pyright: ignore[reportMissingImports]
else:
    Places = add_calls = None
    begun: Callable[[NDArray[np.int64], int], tuple[dict[int, int], int]] | None = None

MAX_NODES = 5000
"""A call tree with more paths than this is a mistake; what is beyond it is folded into the root."""
DECISIVE = frozenset({Phase.ENV, Phase.SAMPLE, Phase.BACKWARD, Phase.OPTIMISE})
"""Phases that tell what the network calls before them were for: acting if the environment is stepped next."""
ROOT = 0
EDGE = 0
"""Stands for the beginning or the end of a container, where a gap has a sibling on one side only."""
MAX_CODES = MAX_NAMES + 2
"""Codes of spans that can be: the names, one for those beyond, and the root."""
DARK = -1
"""Stands for siblings that were not timed: the time between spans while they were switched off."""


@dataclass(frozen=True, slots=True)
class NodeKey:
    """What a node of the tree is: a span below a parent, or the gap between two siblings.

    A variant is 2 * code, plus 1 where a network's call was found to be acting.
    """

    parent: int
    kind: Literal["root", "span", "gap"]
    variant: int
    before: int = EDGE
    """Of a gap: the variant of the sibling before it."""


@dataclass(frozen=True, slots=True)
class OpenSpan:
    """A span that had begun and not ended when a segment was cut."""

    node: int
    start_ns: int
    last_child: int = EDGE
    """Variant of the child that ended last: what the next gap comes after."""
    code: int = 0
    """Of the span; 0 for the root. A full tree has no node that would tell it."""


Triples = bytes
"""Rows of three int64."""


class PlacesInC(Protocol):
    """The places of a tree in `_fold.c`, which folds events into them."""

    def fold(
        self, events: NDArray[np.int64], opened: tuple[tuple[int, int, int, int], ...], *rest: int | bytes
    ) -> list[tuple] | tuple[Triples, Triples, Triples, bytes, bytes, list[tuple], list[tuple]]:
        """Fold events; return only the new nodes if an end has no begin."""
        ...


@dataclass(slots=True)
class Tree:
    """A thread's call tree: paths by number. It only ever grows."""

    keys: list[NodeKey] = field(default_factory=lambda: [NodeKey(-1, "root", 0)])
    ids: dict[NodeKey, int] = field(default_factory=dict)
    gap_after: dict[tuple[int, int], int] = field(default_factory=dict)
    """The gap last seen after a sibling, for a gap whose end is not known yet."""
    acting: dict[int, bool] = field(default_factory=dict)
    """Whether a network's last call was acting, for one whose sequel is not known yet."""
    places: PlacesInC | None = field(default_factory=lambda: Places and Places(MAX_NODES, MAX_CODES))
    """Keeps all of the above but `keys`, where the fold is done in C."""

    def pairs(self) -> set[tuple[int, int]]:
        """Which span code was seen directly inside which."""
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
    """What the fold must know about each span code. Code 0 is the root, a container."""

    container: NDArray[np.bool_]
    """Spans without a phase of their own: the time between their children is kept apart as gaps."""
    network: NDArray[np.bool_]
    decisive: NDArray[np.bool_]
    env: NDArray[np.bool_]
    flags: bytes
    """All of them, one byte a code: 1, 2, 4, 8."""


def codes_of(spans: list[Span]) -> Codes:
    """Tabulate what the fold must know about the spans."""
    phases = [None, *(each.phase for each in spans)]
    hooks = [False, *(each.hook for each in spans)]
    container = np.array([p is None or p is Phase.OTHER for p in phases])
    network = np.array([h and p is Phase.FORWARD for p, h in zip(phases, hooks, strict=True)])
    decisive = np.array([p in DECISIVE for p in phases])
    env = np.array([p is Phase.ENV for p in phases])
    flags = (container + 2 * network + 4 * decisive + 8 * env).astype(np.uint8).tobytes()
    return Codes(container, network, decisive, env, flags)
