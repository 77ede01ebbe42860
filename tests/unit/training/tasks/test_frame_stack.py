"""The stack of frames that a network sees."""

from __future__ import annotations

import numpy as np

from hotloop.training.tasks.game import FrameStacks


def test_a_new_stack_repeats_the_first_frame() -> None:
    stacks = FrameStacks(np.full((1, 2, 2), 7, np.uint8), 3)
    assert stacks.seen.shape == (1, 3, 2, 2) and (stacks.seen == 7).all()


def test_push_appends_the_newest_frame() -> None:
    stacks = FrameStacks(np.full((1, 2, 2), 7, np.uint8), 3)
    stacks.push(np.full((1, 2, 2), 9, np.uint8))
    assert stacks.seen[0, :, 0, 0].tolist() == [7, 7, 9]


def test_a_new_episode_fills_the_whole_stack() -> None:
    frames = np.arange(2, dtype=np.uint8).reshape(2, 1, 1)
    stacks = FrameStacks(frames, 3)
    stacks.push(frames + 10, np.array([False, True]))
    assert stacks.seen[:, :, 0, 0].tolist() == [[0, 0, 10], [11, 11, 11]]


def test_features_are_not_stacked() -> None:
    stacks = FrameStacks(np.zeros((2, 36), np.float32), 3)
    stacks.push(np.ones((2, 36), np.float32), np.array([True, False]))
    assert stacks.seen.shape == (2, 36) and (stacks.seen == 1).all()
