"""The frame-folding kernels equal their reference, and a folded convolution equals the plain one."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hotloop.training.learn.kernels.frame_input import fold_frames, fold_rows_reference, fold_weights


@given(
    count=st.integers(1, 40),
    channels=st.integers(1, 5),
    blocks=st.integers(1, 6),
    fold=st.sampled_from([1, 2, 4]),
    max_shift=st.integers(0, 9),
    gaps=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=60, deadline=None)
def test_folding_equals_reference(
    count: int, channels: int, blocks: int, fold: int, max_shift: int, gaps: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    side = blocks * fold
    frames = rng.integers(0, 256, (count, channels + 2, side, side), dtype=np.uint8)
    frames = frames[:, 1:-1] if gaps else np.ascontiguousarray(frames[:, 1:-1])
    shift = rng.integers(-max_shift, max_shift + 1, (count, 2))
    ours = fold_frames(frames, fold, shift)
    assert ours.shape == (count, channels * fold * fold, blocks, blocks)
    assert ours.permute(0, 2, 3, 1).is_contiguous()
    assert (ours.permute(0, 2, 3, 1).numpy() == fold_rows_reference(frames, shift, fold)).all()


@given(
    count=st.integers(1, 40),
    channels=st.integers(1, 5),
    blocks=st.integers(1, 6),
    layout=st.sampled_from(["contiguous", "gaps", "unaligned", "reversed"]),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=60, deadline=None)
def test_folding_four_pixels_at_a_time_equals_reference(
    count: int, channels: int, blocks: int, layout: str, seed: int
) -> None:
    side = 4 * blocks
    whole = np.random.default_rng(seed).integers(0, 256, (count, channels + 2, side + 4, side + 8), dtype=np.uint8)
    frames = {
        "contiguous": np.ascontiguousarray(whole[:, 1:-1, :-4, :-8]),
        "gaps": whole[:, 1:-1, 2:-2, 4:-4],
        "unaligned": whole[:, 1:-1, 2:-2, 3:-5],  # begins inside a 32-bit word
        "reversed": whole[:, 1:-1, 2:-2, ::-1][..., 4:-4],
    }[layout]
    ours = fold_frames(frames, 4).permute(0, 2, 3, 1).numpy()
    assert (ours == fold_rows_reference(frames, np.zeros((1, 2), np.int64), 4)).all()


def test_frames_without_shift_are_divided_by_255() -> None:
    frames = np.arange(32, dtype=np.uint8).reshape(2, 1, 4, 4)
    plain = fold_frames(frames, 1).numpy()
    assert plain == pytest.approx(frames / 255, rel=1e-6)
    # Blocks of 2 × 2: the channels of the first position are the pixels 0, 1, 4 and 5.
    assert (fold_frames(frames, 2)[0, :, 0, 0].numpy() * 255).round().tolist() == [0, 1, 4, 5]


@given(
    fold=st.sampled_from([2, 3, 4]), times=st.integers(1, 3), extra=st.integers(0, 3), seed=st.integers(0, 2**32 - 1)
)
@settings(max_examples=40, deadline=None)
def test_folded_convolution_equals_plain_convolution(fold: int, times: int, extra: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    side = fold * (times + extra)
    frames = torch.randint(0, 256, (3, 2, side, side), generator=generator, dtype=torch.uint8)
    weight = torch.randn(5, 2, fold * times, fold * times, generator=generator)
    plain = torch.nn.functional.conv2d(frames.float() / 255, weight, stride=fold)
    ours = torch.nn.functional.conv2d(fold_frames(frames.numpy(), fold), fold_weights(weight, fold))
    assert torch.allclose(plain, ours, atol=1e-4)
