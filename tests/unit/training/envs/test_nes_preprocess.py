"""Preprocessing of frames: the kernel equals its reference exactly, and both equal values computed by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotloop.errors import HotloopError
from hotloop.training.envs.nes.preprocess import Shrinker, overlaps, shrink_reference

SHAPE = (224, 240)
WHITE, RED, BLACK = 0xFFFF, 0xF800, 0


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), size=st.sampled_from([84, 128]), colours=st.sampled_from([2, 60, 65536]))
def test_kernel_matches_reference(seed: int, size: int, colours: int) -> None:
    rng = np.random.default_rng(seed)
    palette = rng.integers(0, 65536, colours)
    frame, earlier = palette[rng.integers(0, colours, (2, *SHAPE))].astype(np.uint16)
    assert np.array_equal(Shrinker(SHAPE, size)(frame, earlier), shrink_reference(frame, earlier, size))


@pytest.mark.parametrize("size", [84, 128])
def test_plain_colours_and_maximum_of_two_frames(size: int) -> None:
    shrink = Shrinker(SHAPE, size)
    frames = {colour: np.full(SHAPE, colour, np.uint16) for colour in (WHITE, RED, BLACK)}
    assert np.unique(shrink(frames[WHITE], frames[WHITE])).tolist() == [255]
    assert np.unique(shrink(frames[RED], frames[RED])).tolist() == [76]  # 0.299 × 255
    assert np.unique(shrink(frames[BLACK], frames[RED])).tolist() == [76]
    assert np.unique(shrink(frames[RED], frames[BLACK])).tolist() == [76]


def test_a_pixel_is_the_mean_of_its_area() -> None:
    """The first of 84 pixels covers 224/84 rows and 240/84 columns; a white pixel adds its share of 255."""
    frame = np.zeros(SHAPE, np.uint16)
    frame[0, 0] = WHITE
    picture = Shrinker(SHAPE, 84)(frame, frame)
    assert picture[0, 0] == round(255 / (224 / 84 * 240 / 84)) == 33
    assert np.count_nonzero(picture) == 1
    frame[0, 0], frame[0, 2] = BLACK, WHITE
    picture = Shrinker(SHAPE, 84)(frame, frame)  # of its width, 240/84 − 2 lie in the first pixel
    assert picture[0, :2].tolist() == [
        round(255 * (240 / 84 - 2) * 84 / 240 * 84 / 224),
        round(255 * (3 - 240 / 84) * 84 / 240 * 84 / 224),
    ]


def test_overlaps_cover_every_pixel_once() -> None:
    first, weights = overlaps(84, 240)
    assert weights.sum(1).tolist() == [240] * 84
    assert first[:3].tolist() == [0, 2, 5]
    assert weights[0].tolist() == [84, 84, 72, 0]
    assert weights[1].tolist() == [12, 84, 84, 60]


def test_too_small_size_is_rejected() -> None:
    with pytest.raises(HotloopError, match=r"cannot be shrunk to 40: give a size from 80 on"):
        Shrinker(SHAPE, 40)
