"""FrameReplay: stacks computed by hand, contents, reuse of batch memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hotloop.training.replay import FrameReplay, Prioritised, ReplayError
from hotloop.training.replay.gather import Buffers


def frames(numbers: list[int]) -> np.ndarray:
    return np.array(numbers, np.uint8)[:, None, None] * np.ones((1, 2, 2), np.uint8)


def step(replay: FrameReplay, now: int, then: int, reward: float = 1.0, end: str = "") -> None:
    replay.add(
        frames([now]),
        np.array([now]),
        [reward],
        np.array([end == "terminated"]),
        np.array([end == "truncated"]),
        frames([then]),
    )


def sampled(replay: FrameReplay) -> dict[int, tuple[list[int], list[int], float, float]]:
    """Sample everything; return both stacks, reward and discount by newest frame."""
    rng, found = np.random.default_rng(0), {}
    for _ in range(40):
        batch = replay.sample(len(replay), rng)
        for i in range(len(replay)):
            obs, next_obs = batch.obs[i, :, 0, 0].tolist(), batch.next_obs[i, :, 0, 0].tolist()
            assert batch.action[i] == obs[-1]
            found[obs[-1]] = (obs, next_obs, float(batch.reward[i]), float(batch.discount[i]))
    return found


def two_episodes(**options: Any) -> FrameReplay:
    """Frames 10, 11, 12, truncated at 13; then 20, 21, terminated at 22; then 30, 31, 32."""
    replay = FrameReplay(40, 1, (2, 2), 3, gamma=0.5, **options)
    step(replay, 10, 11, 1)
    step(replay, 11, 12, 2)
    step(replay, 12, 13, 4, "truncated")
    step(replay, 20, 21, 8)
    step(replay, 21, 22, 16, "terminated")
    for now in (30, 31, 32):
        step(replay, now, now + 1, 32)
    return replay


def test_stacks_by_hand() -> None:
    assert sampled(two_episodes()) == {
        10: ([10, 10, 10], [10, 10, 11], 1, 0.5),
        11: ([10, 10, 11], [10, 11, 12], 2, 0.5),
        12: ([10, 11, 12], [11, 12, 13], 4, 0.5),
        20: ([20, 20, 20], [20, 20, 21], 8, 0.5),
        21: ([20, 20, 21], [20, 21, 22], 16, 0),
        30: ([30, 30, 30], [30, 30, 31], 32, 0.5),
        31: ([30, 30, 31], [30, 31, 32], 32, 0.5),
    }


def test_zeros_before_an_episode() -> None:
    found = sampled(two_episodes(padding="zero"))
    assert found[10][:2] == ([0, 0, 10], [0, 10, 11])
    assert found[21][:2] == ([0, 20, 21], [20, 21, 22])


def test_two_step_returns_by_hand() -> None:
    found = sampled(two_episodes(n_step=2))
    assert found == {
        10: ([10, 10, 10], [10, 11, 12], 1 + 0.5 * 2, 0.25),
        11: ([10, 10, 11], [11, 12, 13], 2 + 0.5 * 4, 0.25),
        12: ([10, 11, 12], [11, 12, 13], 4, 0.5),
        20: ([20, 20, 20], [20, 21, 22], 8 + 0.5 * 16, 0),
        21: ([20, 20, 21], [20, 21, 22], 16, 0),
        30: ([30, 30, 30], [30, 31, 32], 32 + 0.5 * 32, 0.25),
    }


def test_the_newest_step_waits_for_its_next_frame() -> None:
    replay = FrameReplay(20, 1, (2, 2), 2)
    step(replay, 1, 2)
    assert len(replay) == 0
    step(replay, 2, 3)
    assert sampled(replay).keys() == {1}
    step(replay, 3, 4, end="terminated")
    assert sampled(replay).keys() == {1, 2, 3}


def test_no_stack_contains_overwritten_frames_after_wrapping_around() -> None:
    replay = FrameReplay(10, 1, (2, 2), 3)
    for now in range(100, 124):
        step(replay, now, now + 1)
    # Slots hold 114 to 123; 114 and 115 are left only as parts of stacks, 123 waits for its next frame.
    found = sampled(replay)
    assert found.keys() == set(range(116, 123))
    assert found[116][:2] == ([114, 115, 116], [115, 116, 117])


def test_the_last_step_before_a_cut_is_not_sampled() -> None:
    replay = FrameReplay(20, 1, (2, 2), 2)
    step(replay, 1, 2)
    step(replay, 2, 3)
    replay.cut()
    step(replay, 50, 51)
    step(replay, 51, 52)
    found = sampled(replay)
    assert found.keys() == {1, 50}
    assert found[50][0] == [50, 50]


def test_unscaled_observations_are_views_of_one_window() -> None:
    replay = two_episodes()
    batch = replay.sample(4, np.random.default_rng(0))
    assert batch.obs.shape == batch.next_obs.shape == (4, 3, 2, 2)
    assert batch.obs.dtype == np.uint8
    assert np.shares_memory(batch.obs, batch.next_obs)
    tensors = batch.to_torch()
    tensors.obs[0, 1] = 99
    assert (batch.obs[0, 1] == 99).all() and (batch.next_obs[0, 0] == 99).all()


@pytest.mark.parametrize("shape", [(96, 96), (3, 7), (2, 3), (5,), (4, 4, 3)])
def test_scaled_observations(shape: tuple[int, ...]) -> None:
    replay = FrameReplay(100, 2, shape, 4)
    rng = np.random.default_rng(0)
    no = np.zeros(2, bool)
    for _ in range(20):
        replay.add(
            rng.integers(0, 256, (2, *shape), dtype=np.uint8),
            np.zeros(2, np.int64),
            np.zeros(2, np.float32),
            no,
            no,
            np.zeros((2, *shape), np.uint8),
        )
    stored = replay.sample(16, np.random.default_rng(1))
    scaled = replay.sample(16, np.random.default_rng(1), scale=1 / 255)
    assert scaled.obs.dtype == np.float32 and scaled.obs.shape == (16, 4, *shape)
    for one, other in ((stored.obs, scaled.obs), (stored.next_obs, scaled.next_obs)):
        np.testing.assert_array_equal(one.astype(np.float32) * np.float32(1 / 255), other)


def test_batch_memory_is_reused_only_when_nothing_refers_to_it() -> None:
    replay = two_episodes()
    rng = np.random.default_rng(0)
    first = replay.sample(4, rng)
    address, kept = first.obs.ctypes.data, first.obs.copy()
    tensor = first.to_torch().next_obs
    second = replay.sample(4, rng)
    assert second.obs.ctypes.data != address
    np.testing.assert_array_equal(first.obs, kept)
    del first
    assert replay.sample(4, rng).obs.ctypes.data != address  # the tensor still refers to it
    del tensor
    third = replay.sample(4, rng)
    assert third.obs.ctypes.data == address


def test_an_uncopied_state_survives_later_adds() -> None:
    replay = two_episodes(prioritised=Prioritised())
    before = sampled(replay)
    state = replay.state(copy=False)
    for now in range(33, 38):
        step(replay, now, now + 1)
    other = FrameReplay(40, 1, (2, 2), 3, gamma=0.5, prioritised=Prioritised())
    other.restore(state)
    assert sampled(other) == before != sampled(replay)


def test_a_transition_takes_little_more_memory_than_its_frame() -> None:
    replay = FrameReplay(100_000, 8, (96, 96), 4, action_shape=(3,), action_dtype=np.float32)
    assert replay.nbytes / replay.capacity < 9300


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        (np.zeros((1, 2, 3), np.uint8), r"frame is uint8 \[1, 2, 3\] where this replay keeps uint8 \[1, 2, 2\]"),
        (np.zeros((1, 2, 2), np.float32), r"frame is float32"),
    ],
)
def test_a_wrong_frame_is_rejected_without_side_effects(frame: np.ndarray, says: str) -> None:
    replay = two_episodes()
    before = sampled(replay)
    good = frames([1])
    for pair in ((frame, good), (good, frame)):
        with pytest.raises(ReplayError, match=says):
            replay.add(pair[0], np.zeros(1, np.int64), [0.0], np.array([False]), np.array([False]), pair[1])
    assert sampled(replay) == before


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"stack": 0}, "stack is 0"),
        ({"padding": "edge"}, "padding is 'edge'"),
        ({"capacity": 9, "stack": 4, "n_step": 6}, "gives 9 steps to each of 1 .* make it at least 10"),
    ],
)
def test_invalid_options_are_rejected(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ReplayError, match=says):
        FrameReplay(**({"capacity": 40, "num_envs": 1, "frame_shape": (2, 2)} | options))


def test_buffers_of_two_alternating_sizes_are_kept_and_older_ones_freed() -> None:
    buffers = Buffers()
    small, large = (buffers.take(size).ctypes.data for size in (5000, 9000))
    for _ in range(3):
        assert buffers.take(5000).ctypes.data == small
        assert buffers.take(9000).ctypes.data == large
    held = buffers.take(5000)
    for size in (100, 200, 300, 400):
        buffers.take(size)
    assert sorted(each.nbytes for each in buffers._kept) == [300, 400, 5000]
    assert buffers.take(5000).ctypes.data != held.ctypes.data


def test_batch_memory_is_aligned_to_cache_lines() -> None:
    """Otherwise each 64-byte store touches two lines, and gathering is a quarter slower."""
    buffers = Buffers()
    assert [buffers.take(size).ctypes.data % 64 for size in (100, 5000, 12_000_000)] == [0, 0, 0]
