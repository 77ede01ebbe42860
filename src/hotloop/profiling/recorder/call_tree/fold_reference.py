"""The fold in numpy. It is used if `_fold.c` was not built, and is the reference for its tests.

Everything is vectorised over the events of one segment, because it runs in a background thread that shares the
interpreter with the training loop.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hotloop.profiling.recorder.call_tree.tree import DARK, EDGE, ROOT, Codes, NodeKey, OpenSpan, Tree
from hotloop.spans.registry import COUNTER_BASE

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Folded:
    """The result of folding a segment."""

    node: Ints
    total_ns: Ints
    self_ns: Ints
    """One entry per node that occurred (`node`): its total time and self time within the segment."""
    done_node: Ints
    done_start: Ints
    done_end: Ints
    """One entry per whole call that ended in the segment."""
    counter_node: Ints
    counter_code: Ints
    counter_amount: Ints
    at_ns: Ints
    inner: Ints
    """The innermost node after each event: at time t it is `inner[searchsorted(at_ns, t, 'right') - 1]`."""
    still_open: tuple[OpenSpan, ...]
    done_packed: bytes = b""
    """`done_*` as rows, if C made them."""


def fold(
    events: Ints, opened: tuple[OpenSpan, ...], ends: tuple[int, int], codes: Codes, tree: Tree, dark: bool
) -> Folded | None:
    """Fold, or return None if an end has no begin. The arguments are those of `fold.fold`."""
    segment = _Segment(events, [each.code for each in opened], ends)
    return _Shape.of(segment, opened, codes, tree, dark).folded() if segment.balanced() else None


class _Segment:
    """The events of a segment, matched into spans.

    Begins of the spans that were open before are prepended, and ends of those still open are appended. Spans are
    numbered by level, then time, so the spans of one level are a contiguous range.
    """

    def __init__(self, events: Ints, open_codes: list[int], ends: tuple[int, int]) -> None:
        begin_ns, end_ns = ends
        is_counter = events[:, 0] >= COUNTER_BASE
        plain = events[~is_counter]
        before = len(open_codes)
        sign = np.sign(plain[:, 0])
        after = int(max(before + sign.sum(), 0))
        self.before, self.after = before, after
        self.sign = np.concatenate([np.ones(before, np.int64), sign, -np.ones(after, np.int64)])
        self.code = np.concatenate([np.array(open_codes, np.int64), np.abs(plain[:, 0]), np.full(after, -1, np.int64)])
        self.at = np.concatenate(
            [np.full(before, begin_ns), np.clip(plain[:, 1], begin_ns, end_ns), np.full(after, end_ns)]
        )
        # A counter event has no time: it belongs to the innermost span after the event before it.
        self.counters = events[is_counter]
        self.counter_at = before + np.cumsum(~is_counter)[is_counter] - 1
        level = np.cumsum(self.sign)
        level[self.sign < 0] += 1
        self.level = level
        order = np.argsort(level, kind="stable")
        even = len(order) - len(order) % 2
        self.begin, self.end = order[0:even:2], order[1:even:2]

    def balanced(self) -> bool:
        """Return whether each begin has its own end. This may not hold when spans were switched off and on."""
        if len(self.sign) % 2 or (self.level < 1).any():
            return False
        ends = self.code[self.end]
        matched = (ends == self.code[self.begin]) | (self.end >= len(self.sign) - self.after)
        return bool(matched.all() and (self.sign[self.begin] > 0).all() and (self.sign[self.end] < 0).all())


@dataclass(slots=True)
class _Shape:
    """The spans of a segment with their nodes, levels and gaps."""

    segment: _Segment
    opened: tuple[OpenSpan, ...]
    codes: Codes
    tree: Tree
    dark: bool
    node: Ints
    parent: Ints
    variant: Ints
    duration: Ints
    inside: Ints
    """Time in children, per span."""
    inner: Ints
    gap_node: list[Ints]
    gap_ns: list[Ints]

    @classmethod
    def of(cls, segment: _Segment, opened: tuple[OpenSpan, ...], codes: Codes, tree: Tree, dark: bool) -> _Shape:
        n = len(segment.begin)
        zeros = np.zeros(n, np.int64)
        duration = segment.at[segment.end] - segment.at[segment.begin]
        node, parent, variant, inside = (zeros.copy() for _ in range(4))
        inner = np.zeros(len(segment.at), np.int64)
        shape = cls(segment, opened, codes, tree, dark, node, parent, variant, duration, inside, inner, [], [])
        shape.variant[:] = shape._variants()
        level = segment.level[segment.begin]
        starts = np.searchsorted(level, np.arange(1, int(level[-1]) + 2))
        shape._name(slice(0, 1), np.array([-1]))
        for depth in range(1, len(starts) - 1):
            above, here = slice(starts[depth - 1], starts[depth]), slice(starts[depth], starts[depth + 1])
            shape._descend(above, here)
        shape._childless_gaps()
        return shape

    def _variants(self) -> Ints:
        """Distinguish network calls for acting from those for learning, by the span that follows them."""
        segment, codes, tree = self.segment, self.codes, self.tree
        code = segment.code[segment.begin]
        variant = 2 * code
        networks = np.flatnonzero(codes.network[code])
        if len(networks):
            begins = np.sort(segment.begin)
            decisive = begins[codes.decisive[segment.code[begins]]]
            following = np.searchsorted(decisive, segment.begin[networks], side="right")
            known = following < len(decisive)
            acts = np.zeros(len(networks), np.bool_)
            acts[known] = codes.env[segment.code[decisive[following[known]]]]
            acts[~known] = [tree.acting.get(int(c), False) for c in code[networks[~known]]]
            variant[networks] += acts
            for each in np.unique(code[networks]):
                tree.acting[int(each)] = bool(acts[code[networks] == each][-1])
        return variant

    def _name(self, here: slice, parent_node: Ints) -> None:
        """Find the nodes of the spans of a level. The node of a level's first span may be known from `opened`."""
        keys = (parent_node << 32) | self.variant[here]
        unique, inverse = np.unique(keys, return_inverse=True)
        ids = np.array(
            [self.tree.intern(NodeKey(int(k) >> 32, "span", int(k) & 0xFFFFFFFF)) if k >= 0 else ROOT for k in unique]
        )
        self.node[here] = ids[inverse]
        depth = int(self.segment.level[self.segment.begin[here.start]]) - 1
        if depth < len(self.opened):
            self.node[here.start] = self.opened[depth].node
            self.variant[here.start] = self.tree.keys[self.opened[depth].node].variant
        self.inner[self.segment.begin[here]] = self.node[here]

    def _descend(self, above: slice, here: slice) -> None:
        """Find the parents of the spans of a level in the level above, and the nodes of the gaps between them."""
        begin, end, at = self.segment.begin, self.segment.end, self.segment.at
        parent = above.start + np.searchsorted(begin[above], begin[here], side="right") - 1
        self.parent[here] = parent
        self._name(here, self.node[parent])
        self.inner[end[here]] = self.node[parent]
        self.inside += np.bincount(parent, self.duration[here], len(self.inside)).astype(np.int64)
        variant = self.variant[here]
        first = np.append(True, parent[1:] != parent[:-1])
        last = np.append(first[1:], True)
        carried = np.array([EDGE])
        if (depth := int(self.segment.level[begin[here.start]]) - 2) < len(self.opened):
            carried = np.array([self.opened[depth].last_child])
        # The previous sibling; if there is none in this segment, the container's last child in the segment before.
        before = np.concatenate([carried, variant[:-1]])
        before[first] = np.where(parent[first] == above.start, carried, EDGE)
        since = np.concatenate([end[here][:1], end[here][:-1]])
        since[first] = begin[parent[first]]
        gap = at[begin[here]] - at[since]
        wanted = self.codes.container[self.segment.code[begin[parent]]]
        self._gaps(wanted, (self.node[parent], before, variant), since, gap)
        cut = end[parent] >= len(at) - self.segment.after
        rest = at[end[parent]] - at[end[here]]
        self._gaps(wanted & last & ~cut, (self.node[parent], variant, np.full_like(variant, EDGE)), end[here], rest)
        for i in np.flatnonzero(wanted & last & cut):
            self._unfinished_gap(int(self.node[parent[i]]), int(variant[i]), int(end[here][i]), int(rest[i]))

    def _gaps(self, wanted: NDArray[np.bool_], key: tuple[Ints, Ints, Ints], since: Ints, gap: Ints) -> None:
        """Add gaps. `since` is the index of the event at which each gap began."""
        wanted = wanted & (gap > 0)
        if not wanted.any():
            return
        parent, before, variant = (each[wanted] for each in key)
        if self.dark:
            before, variant = np.full_like(before, DARK), np.full_like(variant, EDGE)
        # One sortable integer per gap: parent below 2^13, variants below 2^24; `before` + 1, because DARK is -1.
        unique, inverse = np.unique((parent << 48) | ((before + 1) << 24) | variant, return_inverse=True)
        ids = np.empty(len(unique), np.int64)
        for i, key_of in enumerate(unique.tolist()):
            p, b, v = key_of >> 48, ((key_of >> 24) & 0xFFFFFF) - 1, key_of & 0xFFFFFF
            ids[i] = self.tree.intern(NodeKey(p, "gap", v, b))
            self.tree.gap_after[p, b] = int(ids[i])
        node = ids[inverse]
        # If the tree is full, a gap has no node, and its time remains self time of the container.
        placed = node != ROOT
        self.gap_node.append(node[placed])
        self.gap_ns.append(gap[wanted][placed])
        self.inner[since[wanted][placed]] = node[placed]

    def _unfinished_gap(self, parent: int, before: int, since: int, gap: int) -> None:
        """Add a gap that the end of the segment cuts: assume the gap that followed this sibling last time."""
        if gap <= 0:
            return
        before = DARK if self.dark else before
        node = self.tree.gap_after.get((parent, before))
        if node is None:
            node = self.tree.intern(NodeKey(parent, "gap", EDGE, before))
        if node == ROOT:
            return
        self.gap_node.append(np.array([node]))
        self.gap_ns.append(np.array([gap]))
        self.inner[since] = node

    def _childless_gaps(self) -> None:
        """Add the gaps of containers in which nothing began: each is still in the gap of the segment before."""
        has_child = np.bincount(self.parent[1:], minlength=len(self.node)) > 0
        if self.dark:
            # The spans inside this container were not timed, so its time is not self time.
            begin = self.segment.begin
            empty = np.flatnonzero(~has_child & self.codes.container[self.segment.code[begin]])
            nothing = np.full(len(empty), EDGE)
            everywhere = np.ones(len(empty), np.bool_)
            self._gaps(everywhere, (self.node[empty], nothing, nothing), begin[empty], self.duration[empty])
            return
        for depth, each in enumerate(self.opened):
            span = self._first_of_level(depth + 1)
            code = self.segment.code[self.segment.begin[span]]
            if not has_child[span] and self.codes.container[code] and each.last_child:
                self._unfinished_gap(
                    each.node, each.last_child, int(self.segment.begin[span]), int(self.duration[span])
                )

    def _first_of_level(self, level: int) -> int:
        return int(np.searchsorted(self.segment.level[self.segment.begin], level))

    def folded(self) -> Folded:
        """Sum the times by node."""
        segment = self.segment
        gap_node = np.concatenate([*self.gap_node, np.empty(0, np.int64)])
        gap_ns = np.concatenate([*self.gap_ns, np.empty(0, np.int64)])
        size = len(self.tree.keys)
        span_total = np.bincount(self.node, self.duration, size)
        span_self = np.bincount(self.node, self.duration - self.inside, size)
        # If the tree is full, further spans are the root's self time. They must not add to its total a second time.
        span_total[ROOT] = self.duration[0]
        in_gaps = np.bincount(gap_node, gap_ns, size)
        if len(gap_node):
            parents = np.array([key.parent for key in self.tree.keys])
            span_self -= np.bincount(np.maximum(parents, 0), in_gaps * (parents >= 0), size)
        total = (span_total + in_gaps).astype(np.int64)
        self_ns = (span_self + in_gaps).astype(np.int64)
        seen = np.flatnonzero(total)
        whole = np.flatnonzero((segment.end < len(segment.at) - segment.after) & (self.node != ROOT))
        start = segment.at[segment.begin]
        for depth, each in enumerate(self.opened):
            start[self._first_of_level(depth + 1)] = each.start_ns
        return Folded(
            node=seen,
            total_ns=total[seen],
            self_ns=self_ns[seen],
            done_node=self.node[whole],
            done_start=start[whole],
            done_end=segment.at[segment.end[whole]],
            counter_node=self.inner[segment.counter_at],
            counter_code=segment.counters[:, 0],
            counter_amount=segment.counters[:, 1],
            at_ns=segment.at,
            inner=self.inner,
            still_open=self._still_open(start),
        )

    def _still_open(self, start: Ints) -> tuple[OpenSpan, ...]:
        segment = self.segment
        cut = np.flatnonzero(segment.end >= len(segment.at) - segment.after)
        found = []
        for depth, span in enumerate(cut.tolist()):
            children = np.flatnonzero(self.parent[1:] == span) + 1
            ended = children[segment.end[children] < len(segment.at) - segment.after]
            if len(ended):
                last_child = int(self.variant[ended[-1]])
            elif (
                depth < len(self.opened)
                and self.opened[depth].node == self.node[span]
                and span == self._first_of_level(depth + 1)
            ):
                last_child = self.opened[depth].last_child
            else:
                last_child = EDGE
            code = int(segment.code[segment.begin[span]])
            found.append(OpenSpan(int(self.node[span]), int(start[span]), last_child, code))
        return tuple(found)
