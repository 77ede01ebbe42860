"""Converts stored frames to a network's input in one pass: shift (augmentation), scale, and fold.

Folding turns the pixels of each k × k block into channels. A convolution of stride k becomes one of stride 1 over fewer
positions and more channels: the same sums, in a shape that CPUs compute faster.
"""

from __future__ import annotations

import sys

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from hotloop.training.replay.gather import run_split

U64 = np.uint64
SCALE = np.float32(1 / 255)
NO_SHIFT = np.zeros((1, 2), np.int64)
WORD = 4
"""The fold with a faster kernel: four pixels are read as one 32-bit word."""


# The explicit signature compiles it for arrays of any layout: batches are views of a replay buffer.
@njit("void(uint8[:,:,:,:], int64[:,:], int64, UniTuple(int64, 2), float32[:,:,:,::1])", cache=True, nogil=True)
def fold_rows(frames, shift, fold: int, rows: tuple[int, int], out) -> None:
    """Shift, scale and fold the frames of some rows.

    Args:
        frames: uint8 [B, C, S, S].
        shift: Pixels by which frames are shifted up and left, int64 [B, 2], or [1, 2] for all. Edges are repeated.
        fold: k, which divides S.
        rows: First of the B rows, and the one after the last.
        out: float32 [B, S / k, S / k, C · k · k]: `out[b, y, x, (c, i, j)] = frames[b, c, y·k + i, x·k + j] / 255`.
    """
    channels, side = frames.shape[1], frames.shape[2]
    column = np.empty(side, np.int64)
    for b in range(rows[0], rows[1]):
        down, right = shift[b % shift.shape[0], 0], shift[b % shift.shape[0], 1]
        for x in range(side):
            column[x] = min(max(x + right, 0), side - 1)
        for y in range(side):
            source, i = min(max(y + down, 0), side - 1), y % fold
            for c in range(channels):
                base = (c * fold + i) * fold
                for block in range(side // fold):
                    for j in range(fold):
                        out[U64(b), U64(y // fold), U64(block), U64(base + j)] = (
                            np.float32(frames[U64(b), U64(c), U64(source), U64(column[U64(block * fold + j)])]) * SCALE
                        )


@njit("void(uint32[:,:,:,:], UniTuple(int64, 2), float32[:,:,:,::1])", cache=True, nogil=True)
def fold_words(words, rows: tuple[int, int], out) -> None:
    """Do what `fold_rows` does for k = 4 without shift, four pixels at a time.

    Args:
        words: Frames with each four pixels of a line as one word, uint32 [B, C, S, S / 4].
        rows: First of the B rows, and the one after the last.
        out: float32 [B, S / 4, S / 4, 16 C].
    """
    channels, side, blocks = words.shape[1], words.shape[2], words.shape[3]
    byte = np.uint32(255)
    for b in range(rows[0], rows[1]):
        for y in range(side):
            row, line = U64(y // 4), U64(y)
            for c in range(channels):
                base = U64((c * 4 + y % 4) * 4)
                for block in range(blocks):
                    at, word = U64(block), words[U64(b), U64(c), line, U64(block)]
                    for j in range(4):
                        # CPUs convert int32 to float32 eight at a time.
                        pixel = np.int32((word >> np.uint32(8 * j)) & byte)
                        out[U64(b), row, at, base + U64(j)] = np.float32(pixel) * SCALE


def fold_rows_reference(frames: NDArray[np.uint8], shift: NDArray[np.int64], fold: int) -> NDArray[np.float32]:
    """Reference implementation of `fold_rows`, with NumPy operations on whole arrays."""
    count, channels, side, _ = frames.shape
    shifted = np.empty(frames.shape, np.float32)
    for b in range(count):
        down, right = shift[b % len(shift)]
        y, x = (np.clip(np.arange(side) + by, 0, side - 1) for by in (down, right))
        shifted[b] = frames[b][:, y][:, :, x].astype(np.float32) * SCALE
    blocks = shifted.reshape(count, channels, side // fold, fold, side // fold, fold)
    return blocks.transpose(0, 2, 4, 1, 3, 5).reshape(count, side // fold, side // fold, -1)


def fold_frames(frames: NDArray[np.uint8], fold: int, shift: NDArray[np.int64] | None = None) -> Tensor:
    """Convert frames [B, C, S, S] to float32 [B, C · k · k, S / k, S / k], channels last in memory.

    Args:
        frames: uint8; may be a non-contiguous view, such as a part of a replay buffer.
        fold: k, which divides S.
        shift: Pixels by which frames are shifted up and left, int64 [B, 2].
    """
    count, channels, side, _ = frames.shape
    out = np.empty((count, side // fold, side // fold, channels * fold * fold), np.float32)
    parts = max(1, min(torch.get_num_threads(), count // 16))
    words = frames.view(np.uint32) if shift is None and fold == WORD and frames.strides[3] == 1 else None
    if words is not None and words.flags.aligned and sys.byteorder == "little":
        run_split(count, parts, lambda span: fold_words(words, span, out))
    else:
        moved = NO_SHIFT if shift is None else shift
        run_split(count, parts, lambda span: fold_rows(frames, moved, fold, span, out))
    return torch.from_numpy(out).permute(0, 3, 1, 2)


def fold_of(kernel: int, stride: int, side: int) -> int:
    """Return by how much to fold frames of a side for a convolution; 1 if it cannot be folded."""
    return stride if kernel % stride == 0 and side % stride == 0 else 1


def fold_weights(weight: Tensor, fold: int) -> Tensor:
    """Convert weights [O, C, n · k, n · k] of a stride-k convolution to [O, C · k · k, n, n] for stride 1."""
    outputs, channels, side, _ = weight.shape
    blocks = weight.view(outputs, channels, side // fold, fold, side // fold, fold)
    return blocks.permute(0, 1, 3, 5, 2, 4).reshape(outputs, channels * fold * fold, side // fold, side // fold)
