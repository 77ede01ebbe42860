"""Each replay kernel equals its plain-Python reference, on rings of any shape, fill and content."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numba")

from hotloop.training.replay import frame_kernels, kernels, prioritised, reference, sum_tree
from hotloop.training.replay.kernels import Shape
from hotloop.training.replay.record_layout import FINAL, FLAGS, START, TERMINATED, TRUNCATED
from hotloop.training.replay.sum_tree import FAN, SumTree, level_offsets

seeds = st.integers(0, 2**63 - 1)
# The first call of a kernel compiles it.
compiled = settings(max_examples=60, deadline=None)


@st.composite
def rings(draw: st.DrawFn, frames: bool = False) -> tuple[Shape, np.ndarray, np.ndarray]:
    """A shape, heads and records as writers leave them, with gaps where a writer was killed."""
    ahead = draw(st.integers(1 if frames else 0, 3))
    back = draw(st.integers(0, 3)) if frames else 0
    guard = draw(st.integers(0, 2))
    length = guard + back + ahead + draw(st.integers(1, 9))
    shape = Shape(draw(st.integers(1, 4)), length, guard, back, ahead)
    heads = np.array(draw(st.lists(st.integers(0, 30), min_size=shape.lanes, max_size=shape.lanes)), np.int64)
    rng = np.random.default_rng(draw(seeds))
    words = rng.integers(0, 2**32, (shape.lanes * length, 5 + 2), dtype=np.uint32)
    words.view(np.float32)[:, 1] = rng.normal(size=len(words))
    for lane in range(shape.lanes):
        before, flags = FINAL, 0
        for seq in range(int(heads[lane])):
            if frames and before & (TERMINATED | TRUNCATED):
                flags = FINAL
            else:
                start = START if before & (FINAL | TERMINATED | TRUNCATED) or rng.random() < 0.1 else 0
                flags = start | int(rng.choice([0, 0, 0, TERMINATED, TRUNCATED, TERMINATED | TRUNCATED]))
            words[lane * length + seq % length, FLAGS] = before = flags
    return shape, heads, words


def assert_same(arguments: tuple[Any, ...], kernel: Any, plain: Any) -> None:
    """Call both with copies of the same arguments; compare their results and the arrays they modify."""
    first, second = (tuple(_copy(each) for each in arguments) for _ in range(2))
    _equal(kernel(*first), plain(*second))
    for a, b in zip(first, second, strict=True):
        _equal(a, b)


def _copy(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.copy()
    return tuple(map(_copy, value)) if type(value) is tuple else value


def _equal(a: Any, b: Any) -> None:
    if isinstance(a, tuple):
        for one, other in zip(a, b, strict=True):
            _equal(one, other)
    else:
        np.testing.assert_array_equal(a, b)


def complete_ids(shape: Shape, heads: np.ndarray, words: np.ndarray) -> np.ndarray:
    held = reference.steps_held(heads, shape)
    return np.array([s * shape.lanes + lane for lane, s in held if reference.complete(words, shape, lane, s)], np.int64)


@compiled
@given(seeds, st.integers(0, 10**6))
def test_random_unit(seed: int, counter: int) -> None:
    assert kernels.random_unit(seed, counter) == reference.random_unit(seed, counter)
    assert 0 <= kernels.random_unit(seed, counter) < 1


@compiled
@given(rings(frames=True))
def test_count_steps_and_complete(ring: tuple[Shape, np.ndarray, np.ndarray]) -> None:
    shape, heads, words = ring
    assert_same((heads, shape, np.zeros(shape.lanes, np.int64)), kernels.count_steps, reference.count_steps)
    for lane, seq in reference.steps_held(heads, shape):
        assert kernels.complete(words, shape, lane, seq) == reference.complete(words, shape, lane, seq)


@compiled
@given(rings(frames=True) | rings(), seeds)
def test_draw(ring: tuple[Shape, np.ndarray, np.ndarray], seed: int) -> None:
    shape, heads, words = ring
    if len(complete_ids(shape, heads, words)):
        assert_same((heads, words, shape, seed, np.zeros(20, np.int64)), kernels.draw, reference.draw)


@compiled
@given(rings(), st.data())
def test_push(ring: tuple[Shape, np.ndarray, np.ndarray], data: st.DataObject) -> None:
    shape, heads, words = ring
    first = data.draw(st.integers(0, shape.lanes - 1))
    count = data.draw(st.integers(1, shape.lanes - first))
    staged = np.arange(count * words.shape[1], dtype=np.uint32).reshape(count, -1)
    assert_same((words, staged, heads, first, shape), kernels.push, reference.push)


@compiled
@given(rings(), st.floats(0, 1))
def test_gather(ring: tuple[Shape, np.ndarray, np.ndarray], gamma: float) -> None:
    shape, heads, words = ring
    ids = complete_ids(shape, heads, words)
    b = len(ids)
    out = (np.zeros((b, 1), np.uint32), np.zeros((b, 2), np.uint32), np.zeros((b, 2), np.uint32))
    out = (*out, np.zeros(b, np.float32), np.zeros(b, np.float32))
    returns = (shape.ahead + 1, gamma)
    assert_same((words, words.view(np.float32), shape, ids, returns, out), kernels.gather, reference.gather)
    assert_same((words, ids % len(words), 2, out[1]), kernels.copy_words, reference.copy_words)


@compiled
@given(rings(frames=True), st.floats(0, 1), st.booleans())
def test_locate(ring: tuple[Shape, np.ndarray, np.ndarray], gamma: float, zero: bool) -> None:
    shape, heads, words = ring
    ids, stack = complete_ids(shape, heads, words), shape.back + 1
    b = len(ids)
    slots = np.zeros((b, stack + 1 if shape.ahead == 1 else 2 * stack), np.int64)
    out = (np.zeros((b, 5), np.uint32), np.zeros(b, np.float32), np.zeros(b, np.float32), slots)
    options = (shape.ahead, gamma, stack, len(words) if zero else -1)
    assert_same((words, words.view(np.float32), shape, ids, options, out), frame_kernels.locate, reference.locate)
    for step in ids[:3].tolist():
        slot = reference.slot_of(shape, step % shape.lanes, step // shape.lanes)
        traced = (words, shape, slot, options[3], np.zeros(stack, np.int64))
        assert_same(traced, frame_kernels.trace_stack, reference.trace_stack)


@compiled
@given(rings(frames=True), st.data())
def test_push_frames(ring: tuple[Shape, np.ndarray, np.ndarray], data: st.DataObject) -> None:
    shape, heads, words = ring
    first = data.draw(st.integers(0, shape.lanes - 1))
    count = data.draw(st.integers(1, shape.lanes - first))
    ended = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)))
    rng = np.random.default_rng(1)
    frames = rng.integers(0, 256, (len(words) + 1, 6), dtype=np.uint8)
    frame, next_frame = rng.integers(0, 256, (2, count, 6), dtype=np.uint8)
    step = (rng.integers(0, 9, (count, words.shape[1]), dtype=np.uint32), frame, next_frame)
    arguments = ((frames, words, heads), shape, first, step, ended, np.zeros(count, np.int64))
    assert_same(arguments, frame_kernels.push_frames, reference.push_frames)


@compiled
@given(st.integers(1, 20), st.floats(0, 1, width=32), st.data())
def test_gather_scaled(rows: int, scale: float, data: st.DataObject) -> None:
    rng = np.random.default_rng(rows)
    frames = rng.integers(0, 256, (9, 7), dtype=np.uint8)
    begin = data.draw(st.integers(0, rows))
    span = (begin, data.draw(st.integers(begin, rows)))
    arguments = (frames, rng.integers(0, 9, rows), np.float32(scale), span, np.zeros((rows, 7), np.float32))
    assert_same(arguments, frame_kernels.gather_scaled, reference.gather_scaled)


priorities = st.sampled_from([0.0, 0.0, 1e-9, 0.1, 1.0, 3.0, 1e6])


@compiled
@given(st.lists(priorities, min_size=1, max_size=200), st.data())
def test_sum_tree(values: list[float], data: st.DataObject) -> None:
    tree, leaves = SumTree(len(values)), np.array(values)
    tree.leaves[:] = leaves
    tree.rebuild()
    changed = np.array(data.draw(st.lists(st.integers(0, len(values) - 1), max_size=9)), np.int64)
    tree.leaves[changed] = 0.7
    assert_same((tree.sums, tree.mins, tree.offsets, changed), sum_tree.refresh, reference.refresh)
    if leaves.any():
        arguments = (tree.sums, tree.offsets, data.draw(seeds), np.zeros(13, np.int64))
        assert_same(arguments, sum_tree.find_leaves, reference.find_leaves)


@compiled
@given(st.lists(st.tuples(st.integers(0, 299), priorities), min_size=1, max_size=60), seeds)
def test_the_root_is_the_sum_of_the_leaves_after_any_updates(history: list[tuple[int, float]], seed: int) -> None:
    tree, plain = SumTree(300), [0.0] * 300
    for k in range(0, len(history), 7):
        part = history[k : k + 7]
        leaves = np.array([leaf for leaf, _ in part])
        tree.leaves[leaves] = [value for _, value in part]
        tree.refresh(leaves)
        for leaf, value in part:
            plain[leaf] = value
    assert tree.leaves.tolist() == plain
    assert np.isclose(tree.total, sum(plain), rtol=1e-14, atol=0)
    assert tree.least == min((each for each in plain if each), default=np.inf)
    again = SumTree(300)
    again.leaves[:] = plain
    again.rebuild()
    assert again.sums.tobytes() == tree.sums.tobytes()
    assert again.mins.tobytes() == tree.mins.tobytes()
    if any(plain):
        assert all(plain[leaf] > 0 for leaf in tree.sample(50, seed))


@compiled
@given(st.integers(1, 5000))
def test_tree_levels_are_large_enough(leaves: int) -> None:
    offsets = level_offsets(leaves)
    assert offsets[1] >= leaves and offsets[-1] - offsets[-2] == 1
    for below, here, above in zip(offsets, offsets[1:], offsets[2:], strict=False):
        assert (here - below) % FAN == 0 and above - here >= (here - below) // FAN


@compiled
@given(rings(frames=True) | rings(), st.data())
def test_prioritised_kernels(ring: tuple[Shape, np.ndarray, np.ndarray], data: st.DataObject) -> None:
    shape, heads, words = ring
    slots = len(words)
    earlier = np.array([data.draw(st.integers(0, head)) for head in heads.tolist()], np.int64)
    windows, leaves = np.zeros((shape.lanes, 2), np.int64), np.zeros(slots)
    prioritised.follow(earlier, words, shape, windows, leaves, 1.0)
    assert_same((heads, words, shape, windows, leaves, 2.0), prioritised.follow, reference.follow)
    prioritised.follow(heads, words, shape, windows, leaves, 2.0)
    ids = complete_ids(shape, heads, words)
    assert sorted(np.flatnonzero(leaves)) == sorted(
        reference.slot_of(shape, i % shape.lanes, i // shape.lanes) for i in ids
    )
    if len(ids):
        chosen = np.array(data.draw(st.lists(st.sampled_from(np.flatnonzero(leaves).tolist()), min_size=1)), np.int64)
        out = (np.zeros(len(chosen), np.int64), np.zeros(len(chosen), np.float32))
        assert_same((chosen, leaves, shape, windows, (0.5, 0.4), out), prioritised.identify, reference.identify)
        stale = ids - shape.lanes * shape.length
        some = np.concatenate([ids, stale[stale >= 0]])
        errors = np.linspace(0, 3, len(some), dtype=np.float32)
        assert_same((some, errors, shape, windows, leaves, (1e-6, 0.6)), prioritised.revalue, reference.revalue)
        errors[-1] = np.nan
        assert_same((some, errors, shape, windows, leaves, (1e-6, 0.6)), prioritised.revalue, reference.revalue)
