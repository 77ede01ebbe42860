"""Stripes hold what a plain replay holds, whenever they are flushed, cut or killed; the watch counts every step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotloop.training.replay import FrameReplay, Prioritised, ReplayError, VectorReplay
from hotloop.training.replay.lane_writer import Stripe, Watch
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
    """A stripe, and a replay that gets the same steps one by one as soon as the stripe has published them."""

    def __init__(self, length: int, guard: int, storage: str) -> None:
        self.striped, self.plain = make(length, guard=guard, storage=storage), make(length, guard=guard)
        self._number, self._pending = 0, []
        self.stripe = Stripe(self.striped.ring, 0)
        self._cut = True
        self.begin()

    def begin(self) -> None:
        self._frame = picture(self._number)
        self._number += 1
        self.stripe.begin(self._frame)

    def do(self, what: str) -> None:
        if what in ENDS:
            frame, ends = picture(self._number), ENDS[what]
            self._number += 1
            self._pending.append((self._frame, self._number, self._number / 2, *ends, frame, self._cut))
            self._cut = False
            self.stripe.step(self._number, self._number / 2, *ends, frame)
            self._frame = frame
            if any(ends):
                self._cut = True
                self.begin()
        elif what == "flush":
            self.stripe.flush()
        elif what == "cut":
            self._cut = True
            self.begin()
        else:  # another process takes the lane over; what was not published is lost
            self.follow()
            self._pending = []
            self.stripe = Stripe(self.striped.ring, 0)
            self._cut = True
            self.begin()
        self.follow()

    def follow(self) -> None:
        """Bring what was published into the plain replay."""
        while self.plain.ring.heads[0] < self.striped.ring.heads[0]:
            frame, action, reward, terminated, truncated, after, cut = self._pending.pop(0)
            if cut:
                self.plain.cut()
            one = [np.array([each]) for each in (action, np.float32(reward), terminated, truncated)]
            self.plain.add(frame[None], *one, after[None])


@settings(max_examples=150, deadline=None)
@given(OPERATIONS, st.sampled_from(KINDS))
def test_a_stripe_writes_what_a_replay_writes(operations: list[str], kind: tuple[int, int, str]) -> None:
    pair = Pair(*kind)
    for what in operations:
        pair.do(what)
        unpublished = len(pair._pending)
        assert unpublished < pair.stripe.fragment
        if what not in ("go", "die"):
            assert not unpublished
    striped, plain = pair.striped.state(), pair.plain.state()
    for name in ("heads", "words", "frames"):
        np.testing.assert_array_equal(striped[name], plain[name], err_msg=name)
    pair.striped.close()


def test_the_stack_is_what_replay_would_show() -> None:
    replay = make(100, padding="repeat")
    stripe = Stripe(replay.ring, 0)
    stripe.begin(picture(10))
    assert stripe.seen[:, 0, 0].tolist() == [10, 10, 10]
    for k in range(11, 60):
        stripe.step(0, 0.0, False, False, picture(k))
        assert stripe.seen[:, 0, 0].tolist() == [max(10, k - 2), max(10, k - 1), k]
    stripe.begin(picture(99))
    assert stripe.seen[:, 0, 0].tolist() == [99, 99, 99]
    zeros = Stripe(make(100, padding="zero").ring, 0, repeat=False)
    zeros.begin(picture(10))
    zeros.step(0, 0.0, False, False, picture(11))
    assert zeros.seen[:, 0, 0].tolist() == [0, 10, 11]


def test_slots_in_flight_stay_within_what_readers_keep_off() -> None:
    for guard, expected in ((64, 16), (24, 6), (2, 2), (0, 2)):
        ring = make(200, guard=guard, storage="shared").ring
        assert ring.in_flight == expected
        assert Stripe(ring, 0).fragment == expected - 1


class Overseen:
    """Watches what one sampled step does while a writer that is ahead of its head writes."""

    def __init__(self, guard: int) -> None:
        self.replay = make(100, guard=guard, storage="shared", n_step=1)
        self.stripe = Stripe(self.replay.ring, 0)
        self.stripe.begin(picture(0))
        for k in range(300):
            self.stripe.step(k, 0.0, False, False, picture(k + 1))
        self.stripe.flush()


def test_a_batch_that_a_fragment_in_flight_may_have_touched_is_overtaken() -> None:
    seen = Overseen(guard=40)
    ring = seen.replay.ring
    head = int(ring.heads[0])
    in_flight, back = ring.in_flight, ring.shape.back
    oldest = head - ring.shape.length + in_flight + back
    assert not ring.overtaken(np.array([oldest]))
    assert ring.overtaken(np.array([oldest - 1]))
    ring.heads[0] += 1
    assert ring.overtaken(np.array([oldest]))
    seen.replay.close()


def test_frames_of_another_kind_are_refused() -> None:
    stripe = Stripe(make(40).ring, 0)
    with pytest.raises(ReplayError, match=r"frame is float64 \[3, 5\] where this replay keeps uint8"):
        stripe.begin(np.zeros(SHAPE))
    stripe.begin(picture(0))
    with pytest.raises(ReplayError, match=r"frame is uint8 \[5\] where"):
        stripe.step(0, 0.0, False, False, np.zeros(5, np.uint8))
    with pytest.raises(ReplayError, match="keeps no frames"):
        Stripe(VectorReplay(40, 1, (1,))._ring, 0)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 11), st.lists(st.integers(0, 30), max_size=6)), max_size=25))
def test_the_watch_counts_steps_and_what_was_never_sampled(rounds: list[tuple[int, list[int]]]) -> None:
    replay = make(14, lanes=2, guard=0, storage="shared")
    stripes = [Stripe(replay.ring, lane) for lane in range(2)]
    for stripe in stripes:
        stripe.begin(picture(0))
    watch = Watch(replay.ring)
    slots: list[dict[int, bool]] = [{}, {}]  # of each lane, by number: whether it was sampled; ends count as such
    steps = [0, 0]
    for number, (count, sampled) in enumerate(rounds):
        lane, before = number % 2, sum(steps)
        for _ in range(count):
            steps[lane] += 1
            over = steps[lane] % 5 == 0
            slots[lane][len(slots[lane])] = False
            stripes[lane].step(0, 0.0, over, False, picture(1))
            if over:
                slots[lane][len(slots[lane])] = True
                stripes[lane].begin(picture(0))
        stripes[lane].flush()
        arrived = watch.look()
        assert int(arrived.steps.sum()) == sum(steps) - before
        gone = [seq for seq in slots[lane] if seq < len(slots[lane]) - 14 and slots[lane][seq] is not None]
        assert arrived.overwritten == sum(not slots[lane][seq] for seq in gone)
        for seq in gone:
            slots[lane][seq] = None  # type: ignore[assignment]
        ids = [seq * 2 + lane for seq in sampled if max(0, len(slots[lane]) - 14) <= seq < len(slots[lane])]
        watch.sampled(np.array(ids, np.int64))
        for each in ids:
            slots[lane][each // 2] = True
    replay.close()


def test_the_watch_begins_with_what_is_there() -> None:
    replay = make(20, guard=0)
    stripe = Stripe(replay.ring, 0)
    stripe.begin(picture(0))
    for _ in range(30):
        stripe.step(0, 0.0, False, False, picture(1))
    stripe.flush()
    watch = Watch(replay.ring)
    assert watch.look().steps.tolist() == [0]
    for _ in range(5):
        stripe.step(0, 0.0, False, False, picture(1))
    stripe.flush()
    arrived = watch.look()
    assert (arrived.steps.tolist(), arrived.overwritten) == ([5], 5)


def test_a_million_transitions_of_four_frames_take_at_most_7_2_gb() -> None:
    """What the sampler and the watch know of each is measured on a small one; memory is not touched for either."""
    small = FrameReplay(8192, 2, (84, 84), 4, prioritised=Prioritised())
    lanes = small.ring.lanes
    frames = Field("frames", (1_000_001, 84 * 84), np.dtype(np.uint8))
    large = replace(lanes, shape=lanes.shape._replace(length=500_000), extra=(frames,))
    known = (small.nbytes - small.ring.block.nbytes + Watch(small.ring).nbytes) / small.capacity
    assert 7.0e9 < block_size(large.fields) + 1_000_000 * known <= 7.2e9
