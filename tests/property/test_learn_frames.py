"""The kernel that folds frames equals its twin, and a folded convolution equals the plain one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hotloop.training.learn.kernels.frame_input import fold_rows_twin, fold_weights, folded


@given(
    count=st.integers(1, 40), channels=st.integers(1, 5), blocks=st.integers(1, 6), fold=st.sampled_from([1, 2, 4]),
    most=st.integers(0, 9), gaps=st.booleans(), seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_folding_equals_its_twin(
    count: int, channels: int, blocks: int, fold: int, most: int, gaps: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    side = blocks * fold
    frames = rng.integers(0, 256, (count, channels + 2, side, side), dtype=np.uint8)
    frames = frames[:, 1:-1] if gaps else np.ascontiguousarray(frames[:, 1:-1])
    shift = rng.integers(-most, most + 1, (count, 2))
    ours = folded(frames, fold, shift)
    assert ours.shape == (count, channels * fold * fold, blocks, blocks)
    assert ours.permute(0, 2, 3, 1).is_contiguous()
    assert (ours.permute(0, 2, 3, 1).numpy() == fold_rows_twin(frames, shift, fold)).all()


@given(
    count=st.integers(1, 40), channels=st.integers(1, 5), blocks=st.integers(1, 6), way=st.sampled_from("cgvo"),
    seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_folding_four_pixels_at_a_time_equals_the_twin(
    count: int, channels: int, blocks: int, way: str, seed: int
) -> None:
    side = 4 * blocks
    whole = np.random.default_rng(seed).integers(0, 256, (count, channels + 2, side + 4, side + 8), dtype=np.uint8)
    frames = {
        "c": np.ascontiguousarray(whole[:, 1:-1, :-4, :-8]),
        "g": whole[:, 1:-1, 2:-2, 4:-4],
        "v": whole[:, 1:-1, 2:-2, 3:-5],  # begins within a word
        "o": whole[:, 1:-1, 2:-2, ::-1][..., 4:-4],  # runs backwards
    }[way]
    ours = folded(frames, 4).permute(0, 2, 3, 1).numpy()
    assert (ours == fold_rows_twin(frames, np.zeros((1, 2), np.int64), 4)).all()


def test_frames_that_stay_are_divided_by_255() -> None:
    frames = np.arange(32, dtype=np.uint8).reshape(2, 1, 4, 4)
    plain = folded(frames, 1).numpy()
    assert plain == pytest.approx(frames / 255, rel=1e-6)
    # Blocks of 2 × 2: the channels of the first place are the pixels 0, 1, 4 and 5.
    assert (folded(frames, 2)[0, :, 0, 0].numpy() * 255).round().tolist() == [0, 1, 4, 5]


@given(
    fold=st.sampled_from([2, 3, 4]), times=st.integers(1, 3), extra=st.integers(0, 3), seed=st.integers(0, 2**32 - 1)
)
@settings(max_examples=40, deadline=None)
def test_a_folded_convolution_equals_the_plain_one(fold: int, times: int, extra: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    side = fold * (times + extra)
    frames = torch.randint(0, 256, (3, 2, side, side), generator=generator, dtype=torch.uint8)
    weight = torch.randn(5, 2, fold * times, fold * times, generator=generator)
    plain = torch.nn.functional.conv2d(frames.float() / 255, weight, stride=fold)
    ours = torch.nn.functional.conv2d(folded(frames.numpy(), fold), fold_weights(weight, fold))
    assert torch.allclose(plain, ours, atol=1e-4)
