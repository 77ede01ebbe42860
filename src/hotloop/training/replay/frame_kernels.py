"""Compiled loops for frames: write a step, find the frames of sampled stacks, gather them as floats."""

from __future__ import annotations

import numpy as np
from numba import njit

from hotloop.training.replay.kernels import U64, Shape, copy_words, n_step_returns
from hotloop.training.replay.record_layout import ACTION, FINAL, FLAGS, START


@njit(cache=True, nogil=True)
def push_frames(arrays, shape: Shape, first: int, step, ended, written) -> None:
    """Write one step per lane, and the last frame of each episode that ended. The caller publishes them.

    Args:
        arrays: Arrays of the ring: frames uint8 [slots + 1, P], records uint32 [slots, W], heads int64 [lanes].
        shape: Geometry of the ring.
        first: Lane of the first environment.
        step: The step of E environments: records uint32 [E, W], frames and next frames uint8 [E, P].
        ended: Which episodes ended, bool [E].
        written: Output, the number of slots written, int64 [E]: 1, or 2 where an episode ended.
    """
    frames, words, heads = arrays
    staged, frame, next_frame = step
    for e in range(staged.shape[0]):
        lane = first + e
        base, head = lane * shape.length, heads[lane]
        slot = base + head % shape.length
        words[slot] = staged[e]
        for p in range(frame.shape[1]):
            frames[U64(slot), U64(p)] = frame[U64(e), U64(p)]
        written[e] = 1
        if ended[e]:
            slot = base + (head + 1) % shape.length
            words[slot] = 0
            words[slot, FLAGS] = FINAL
            for p in range(next_frame.shape[1]):
                frames[U64(slot), U64(p)] = next_frame[U64(e), U64(p)]
            written[e] = 2


@njit(cache=True, nogil=True)
def trace_stack(words, shape: Shape, slot: int, zero: int, slots) -> None:
    """Write the slots of the frame stack at `slot` into `slots` [stack], oldest first.

    Before the first frame of an episode the stack is padded with that frame, or with slot `zero` if that is >= 0.
    """
    base = slot - slot % shape.length
    for k in range(slots.shape[0] - 1, -1, -1):
        slots[k] = slot
        if words[slot, FLAGS] & START:
            for j in range(k):
                slots[j] = slot if zero < 0 else zero
            return
        slot = slot - 1 if slot > base else base + shape.length - 1


@njit(cache=True, nogil=True)
def locate(words, rewards, shape: Shape, ids, options: tuple[int, float, int, int], out) -> None:
    """Compute everything in a batch but the frames, and find the slots of those.

    Args:
        words: Records, uint32 [slots, W].
        rewards: The same memory as float32.
        shape: Geometry of the ring.
        ids: Complete steps, [B].
        options: n and γ of the returns, frames per stack, and the slot of the zero frame or -1.
        out: action words [B, A], reward and discount float32 [B], and slots int64: if n is 1 [B, stack + 1], in which
            observation and next observation overlap; else [B, 2 stack], one after the other.
    """
    action, reward, discount, slots = out
    n, gamma, stack, zero = options
    firsts, lasts = np.empty_like(ids), np.empty_like(ids)
    n_step_returns(words, rewards, shape, ids, (n, gamma), (reward, discount, firsts, lasts))
    copy_words(words, firsts, ACTION, action)
    for i in range(ids.shape[0]):
        base = lasts[i] - lasts[i] % shape.length
        next_slot = base + (lasts[i] - base + 1) % shape.length
        trace_stack(words, shape, firsts[i], zero, slots[i, :stack])
        if n == 1:
            slots[i, stack] = next_slot
        else:
            trace_stack(words, shape, next_slot, zero, slots[i, stack:])


@njit(cache=True, nogil=True)
def gather_scaled(frames, slots, scale, rows: tuple[int, int], out) -> None:
    """Copy the frames of `slots` [R] times `scale` into `out`, float32 [R, P]; only the rows [begin, end) of it."""
    for i in range(rows[0], rows[1]):
        source, row = U64(slots[i]), U64(i)
        for p in range(frames.shape[1]):
            out[row, U64(p)] = np.float32(frames[source, U64(p)]) * scale
