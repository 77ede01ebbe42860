"""Folds a thread's raw events into its call tree: calls, total time and self time of each call path.

A segment is the time between two folds. Spans that are still open at its end are cut there and continue in the
next segment, so the self times of a segment add up exactly to its length. Calls are counted when they end, and only
whole calls enter the minimum, the maximum and the histogram. The work itself is done in C (`_fold.c`) or in numpy
(`fold_reference`).
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from hotloop.profiling.recorder.call_tree import fold_reference
from hotloop.profiling.recorder.call_tree.fold_reference import Folded, Ints
from hotloop.profiling.recorder.call_tree.tree import Codes, NodeKey, OpenSpan, Tree
from hotloop.spans.registry import COUNTER_BASE

__all__ = ["Folded", "Ints", "first_step", "fold"]


def fold(
    events: Ints,
    opened: tuple[OpenSpan, ...],
    ends: tuple[int, int],
    codes: Codes,
    tree: Tree,
    dark: bool = False,
) -> Folded:
    """Fold the events of one segment of one thread.

    Args:
        events: `[n, 2]` pairs (code, ns) or (counter code, amount), in the order of the thread.
        opened: Spans that are open at the segment's beginning, outermost first. The first one is the root.
        ends: Beginning and end of the segment in ns.
        codes: Properties of the span codes.
        tree: The thread's call tree. New paths are added to it.
        dark: Whether some spans were not timed, so that the siblings of a gap are unknown.
    """
    work = _fold_in_c if tree.places is not None else fold_reference.fold
    done = work(events, opened, ends, codes, tree, dark)
    if done is None:
        done = work(_mend(events, [each.code for each in opened]), opened, ends, codes, tree, dark)
    assert done is not None, "mended events are balanced"
    return done


def _fold_in_c(
    events: Ints, opened: tuple[OpenSpan, ...], ends: tuple[int, int], codes: Codes, tree: Tree, dark: bool
) -> Folded | None:
    """Fold, or return None if an end has no begin."""
    before = tuple((each.node, each.start_ns, each.last_child, each.code) for each in opened)
    assert tree.places is not None
    made = tree.places.fold(np.ascontiguousarray(events), before, *ends, codes.flags, dark, COUNTER_BASE)
    new_nodes = made if isinstance(made, list) else made[-1]
    tree.keys.extend(NodeKey(*each) for each in new_nodes)
    if isinstance(made, list):
        return None
    nodes, done, counters, at_ns, inner, still_open, _ = made
    node, total_ns, self_ns = _rows(nodes)
    done_node, done_start, done_end = _rows(done)
    counter_node, counter_code, counter_amount = _rows(counters)
    return Folded(
        node=node,
        total_ns=total_ns,
        self_ns=self_ns,
        done_node=done_node,
        done_start=done_start,
        done_end=done_end,
        counter_node=counter_node,
        counter_code=counter_code,
        counter_amount=counter_amount,
        at_ns=np.frombuffer(at_ns, np.int64),
        inner=np.frombuffer(inner, np.int64),
        still_open=tuple(OpenSpan(*each) for each in still_open),
        done_packed=done,
    )


def _rows(packed: bytes) -> Ints:
    return np.frombuffer(packed, np.int64).reshape(-1, 3).T


def time_before(events: Ints, end: int) -> int:
    """Return the time of the last span event before index `end`, 0 if there is none. Counter events have no time."""
    timed = events[:end][events[:end, 0] < COUNTER_BASE, 1]
    return int(timed[-1]) if len(timed) else 0


def first_step(events: Ints, counter: int, codes: Codes) -> int | None:
    """Return the index of the event that begins the first counted environment step, or None if none was counted.

    This is the beginning of the outermost environment span that is open at the count, or of the last one before it.
    """
    code = events[:, 0]
    counted = np.flatnonzero(code == counter)
    if not len(counted):
        return None
    begins = (code > 0) & (code < COUNTER_BASE)
    env = begins & codes.env[np.where(begins, code, 0)]
    level = np.cumsum(np.where(code < COUNTER_BASE, np.sign(code), 0))
    before = np.flatnonzero(env[: counted[0]])
    for until in (counted[0], before[-1] + 1 if len(before) else 0):
        lowest = np.minimum.accumulate(level[:until][::-1])[::-1]
        still_open = np.flatnonzero(env[:until] & (lowest >= level[:until]))
        if len(still_open):
            return int(still_open[0])
    return int(counted[0])


def _mend(events: Ints, open_codes: list[int]) -> Ints:
    """Make begins and ends match. They usually do, but spans of a suspended generator may overlap others.

    An end without a begin belongs to a span whose begin was not recorded. It is dropped, and so is everything inside
    that span, because its place in the tree is unknown. A span that is still open when an outer one ends, ends there.
    """
    stack = list(open_codes)
    mended: list[tuple[int, int]] = []
    # The number of spans from `open_codes` that are still open, and the index in `mended` at which the last one ended.
    still, since = len(stack), 0
    forced: Counter[int] = Counter()
    for code, value in events.tolist():
        if code >= COUNTER_BASE:
            mended.append((code, value))
        elif code > 0:
            stack.append(code)
            mended.append((code, value))
        elif -code in stack[1:]:
            while stack[-1] != -code:
                forced[stack[-1]] += 1
                mended.append((-stack.pop(), value))
            stack.pop()
            mended.append((code, value))
            if len(stack) < still:
                still, since = len(stack), len(mended)
        elif forced[-code]:
            # The late end of a span that was ended together with an outer one, such as a suspended generator's.
            forced[-code] -= 1
        elif len(stack) == still:
            mended[since:] = [each for each in mended[since:] if each[0] >= COUNTER_BASE]
            since = len(mended)
    return np.array(mended, np.int64).reshape(-1, 2)
