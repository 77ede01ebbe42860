"""A LaneWriter writes what FrameReplay.add writes, through flushes, cuts and kills; StepCounter counts every step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotloop.training.replay import FrameReplay, Prioritised, ReplayError, VectorReplay
from hotloop.training.replay.step_counter import StepCounter
from hotloop.training.replay.writers import LaneWriter
from hotloop.training.shared_memory import Field, block_size

SHAPE = (3, 5)
ENDS = {"go": (False, False), "terminate": (True, False), "truncate": (False, True), "both": (True, True)}
OPERATIONS = st.lists(st.sampled_from([*ENDS, "go", "go", "go", "cut", "flush", "die"]), max_size=120)

KINDS = [(12, 2, "shared"), (40, 24, "shared"), (90, 64, "shared"), (9, 0, "memory"), (70, 0, "memory")]
"""Length, guard and storage."""


def make(length: int, lanes: int = 1, **options: Any) -> FrameReplay:
    return FrameReplay(length * lanes, lanes, SHAPE, 3, **options)


def picture(number: int) -> np.ndarray:
    return np.full(SHAPE, number % 256, np.uint8)


class Pair:
    """A replay filled by a LaneWriter, and a plain one that gets each step with `add` once it was published."""

    def __init__(self, length: int, guard: int, storage: str) -> None:
        self.written, self.plain = make(length, guard=guard, storage=storage), make(length, guard=guard)
        self._number, self._pending = 0, []
        self.writer = LaneWriter(self.written.ring, 0)
        self._cut = True
        self.begin()

    def begin(self) -> None:
        self._frame = picture(self._number)
        self._number += 1
        self.writer.begin(self._frame)

    def do(self, operation: str) -> None:
        if operation in ENDS:
            frame, ends = picture(self._number), ENDS[operation]
            self._number += 1
            self._pending.append((self._frame, self._number, self._number / 2, *ends, frame, self._cut))
            self._cut = False
            self.writer.step(self._number, self._number / 2, *ends, frame)
            self._frame = frame
            if any(ends):
                self._cut = True
                self.begin()
        elif operation == "flush":
            self.writer.flush()
        elif operation == "cut":
            self._cut = True
            self.begin()
        else:  # another process takes over the lane; unpublished steps are lost
            self.copy_published()
            self._pending = []
            self.writer = LaneWriter(self.written.ring, 0)
            self._cut = True
            self.begin()
        self.copy_published()

    def copy_published(self) -> None:
        """Add the steps that were published to the plain replay."""
        while self.plain.ring.heads[0] < self.written.ring.heads[0]:
            frame, action, reward, terminated, truncated, after, cut = self._pending.pop(0)
            if cut:
                self.plain.cut()
            one = [np.array([each]) for each in (action, np.float32(reward), terminated, truncated)]
            self.plain.add(frame[None], *one, after[None])


@settings(max_examples=150, deadline=None)
@given(OPERATIONS, st.sampled_from(KINDS))
def test_a_lane_writer_writes_what_add_writes(operations: list[str], kind: tuple[int, int, str]) -> None:
    pair = Pair(*kind)
    for operation in operations:
        pair.do(operation)
        unpublished = len(pair._pending)
        assert unpublished < pair.writer.fragment
        if operation not in ("go", "die"):
            assert not unpublished
    written, plain = pair.written.state(), pair.plain.state()
    for name in ("heads", "words", "frames"):
        np.testing.assert_array_equal(written[name], plain[name], err_msg=name)
    pair.written.close()


def test_the_stack_is_the_one_that_replay_samples() -> None:
    replay = make(100, padding="repeat")
    writer = LaneWriter(replay.ring, 0)
    writer.begin(picture(10))
    assert writer.stack[:, 0, 0].tolist() == [10, 10, 10]
    for k in range(11, 60):
        writer.step(0, 0.0, False, False, picture(k))
        assert writer.stack[:, 0, 0].tolist() == [max(10, k - 2), max(10, k - 1), k]
    writer.begin(picture(99))
    assert writer.stack[:, 0, 0].tolist() == [99, 99, 99]
    zeros = LaneWriter(make(100, padding="zero").ring, 0)
    zeros.begin(picture(10))
    zeros.step(0, 0.0, False, False, picture(11))
    assert zeros.stack[:, 0, 0].tolist() == [0, 10, 11]


def test_slots_in_flight_are_a_quarter_of_the_guard() -> None:
    for guard, expected in ((64, 16), (24, 6), (2, 2), (0, 2)):
        ring = make(200, guard=guard, storage="shared").ring
        assert ring.in_flight == expected
        assert LaneWriter(ring, 0).fragment == expected - 1


def test_a_batch_that_unpublished_slots_may_have_overwritten_counts_as_overtaken() -> None:
    replay = make(100, guard=40, storage="shared", n_step=1)
    ring, writer = replay.ring, LaneWriter(replay.ring, 0)
    writer.begin(picture(0))
    for k in range(300):
        writer.step(k, 0.0, False, False, picture(k + 1))
    writer.flush()
    oldest = int(ring.heads[0]) - ring.shape.length + ring.in_flight + ring.shape.back
    assert not ring.overtaken(np.array([oldest]))
    assert ring.overtaken(np.array([oldest - 1]))
    ring.heads[0] += 1
    assert ring.overtaken(np.array([oldest]))
    replay.close()


def test_frames_of_another_shape_or_dtype_are_rejected() -> None:
    writer = LaneWriter(make(40).ring, 0)
    with pytest.raises(ReplayError, match=r"frame is float64 \[3, 5\] where this replay keeps uint8"):
        writer.begin(np.zeros(SHAPE))
    writer.begin(picture(0))
    with pytest.raises(ReplayError, match=r"frame is uint8 \[5\] where"):
        writer.step(0, 0.0, False, False, np.zeros(5, np.uint8))
    with pytest.raises(ReplayError, match="keeps no frames"):
        LaneWriter(VectorReplay(40, 1, (1,))._ring, 0)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 11), st.lists(st.integers(0, 30), max_size=6)), max_size=25))
def test_new_steps_and_steps_never_sampled_are_counted(rounds: list[tuple[int, list[int]]]) -> None:
    replay = make(14, lanes=2, guard=0, storage="shared")
    writers = [LaneWriter(replay.ring, lane) for lane in range(2)]
    for writer in writers:
        writer.begin(picture(0))
    counter = StepCounter(replay.ring)
    slots: list[dict[int, bool | None]] = [{}, {}]  # per lane, step number: whether it was sampled; None once evicted
    steps = [0, 0]
    for number, (count, sampled) in enumerate(rounds):
        lane, before = number % 2, sum(steps)
        for _ in range(count):
            steps[lane] += 1
            over = steps[lane] % 5 == 0
            slots[lane][len(slots[lane])] = False
            writers[lane].step(0, 0.0, over, False, picture(1))
            if over:
                slots[lane][len(slots[lane])] = True
                writers[lane].begin(picture(0))
        writers[lane].flush()
        new = counter.count()
        assert int(new.steps.sum()) == sum(steps) - before
        evicted = [seq for seq in slots[lane] if seq < len(slots[lane]) - 14 and slots[lane][seq] is not None]
        assert new.overwritten == sum(not slots[lane][seq] for seq in evicted)
        for seq in evicted:
            slots[lane][seq] = None
        ids = [seq * 2 + lane for seq in sampled if max(0, len(slots[lane]) - 14) <= seq < len(slots[lane])]
        counter.mark_sampled(np.array(ids, np.int64))
        for each in ids:
            slots[lane][each // 2] = True
    replay.close()


def test_steps_already_in_the_ring_are_not_counted() -> None:
    replay = make(20, guard=0)
    writer = LaneWriter(replay.ring, 0)
    writer.begin(picture(0))
    for _ in range(30):
        writer.step(0, 0.0, False, False, picture(1))
    writer.flush()
    counter = StepCounter(replay.ring)
    assert counter.count().steps.tolist() == [0]
    for _ in range(5):
        writer.step(0, 0.0, False, False, picture(1))
    writer.flush()
    new = counter.count()
    assert (new.steps.tolist(), new.overwritten) == ([5], 5)


def test_a_million_transitions_of_four_frames_take_at_most_7_2_gb() -> None:
    """Overhead per transition is measured on a small replay, so that no large one is allocated."""
    small = FrameReplay(8192, 2, (84, 84), 4, prioritised=Prioritised())
    layout = small.ring.layout
    frames = Field("frames", (1_000_001, 84 * 84), np.dtype(np.uint8))
    large = replace(layout, shape=layout.shape._replace(length=500_000), extra=(frames,))
    overhead = (small.nbytes - small.ring.block.nbytes + StepCounter(small.ring).nbytes) / small.capacity
    assert 7.0e9 < block_size(large.fields) + 1_000_000 * overhead <= 7.2e9
