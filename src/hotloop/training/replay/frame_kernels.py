"""Compiled loops for frames: writing a step, finding the frames of sampled stacks, gathering them as floats."""

from __future__ import annotations

import numpy as np
from numba import njit

from hotloop.training.replay.kernels import ACTION, FINAL, FLAGS, START, U64, Shape, copy_words, n_step_returns


@njit(cache=True, nogil=True)
def push_frames(arrays, shape: Shape, first: int, step, ended, written) -> None:
    """Write one step a lane, and after it the last frame of an episode that ended. The caller publishes them.

    Args:
        arrays: Of the ring: frames uint8 [slots + 1, P], records uint32 [slots, W], heads int64 [stripes].
        shape: Geometry of the ring.
        first: The lane of the first environment.
        step: Of E environments: records uint32 [E, W], frames and next frames uint8 [E, P].
        ended: bool [E].
        written: How many slots were written, int64 [E]: 1, or 2 where an episode ended.
    """
    frames, words, heads = arrays
    staged, now, then = step
    for e in range(staged.shape[0]):
        stripe = first + e
        base, head = stripe * shape.length, heads[stripe]
        slot = base + head % shape.length
        words[slot] = staged[e]
        for p in range(now.shape[1]):
            frames[U64(slot), U64(p)] = now[U64(e), U64(p)]
        written[e] = 1
        if ended[e]:
            slot = base + (head + 1) % shape.length
            words[slot] = 0
            words[slot, FLAGS] = FINAL
            for p in range(then.shape[1]):
                frames[U64(slot), U64(p)] = then[U64(e), U64(p)]
            written[e] = 2


@njit(cache=True, nogil=True)
def trace_stack(words, shape: Shape, slot: int, zero: int, places) -> None:
    """Write into `places` [stack] the slots of the frames that are seen at a slot, oldest first.

    Before an episode's first frame comes that frame again, or slot `zero` if it is not negative.
    """
    base = slot - slot % shape.length
    for k in range(places.shape[0] - 1, -1, -1):
        places[k] = slot
        if words[slot, FLAGS] & START:
            for j in range(k):
                places[j] = slot if zero < 0 else zero
            return
        slot = slot - 1 if slot > base else base + shape.length - 1


@njit(cache=True, nogil=True)
def locate(words, rewards, shape: Shape, ids, options: tuple[int, float, int, int], out) -> None:
    """Find out all of a batch but the frames themselves, and where those lie.

    Args:
        words: Records, uint32 [slots, W].
        rewards: The same memory as float32.
        shape: Geometry of the ring.
        ids: Steps, all complete, [B].
        options: n and γ of the returns, the stack, and the slot of a frame of zeros or -1.
        out: action words [B, A], reward and discount float32 [B], and places int64 [B, stack + 1] if n is 1, of which
            observation and next observation are overlapping parts; else [B, 2 stack], one after the other.
    """
    action, reward, discount, places = out
    n, gamma, stack, zero = options
    firsts, lasts = np.empty_like(ids), np.empty_like(ids)
    n_step_returns(words, rewards, shape, ids, (n, gamma), (reward, discount, firsts, lasts))
    copy_words(words, firsts, ACTION, action)
    for i in range(ids.shape[0]):
        base = lasts[i] - lasts[i] % shape.length
        then = base + (lasts[i] - base + 1) % shape.length
        trace_stack(words, shape, firsts[i], zero, places[i, :stack])
        if n == 1:
            places[i, stack] = then
        else:
            trace_stack(words, shape, then, zero, places[i, stack:])


@njit(cache=True, nogil=True)
def gather_scaled(frames, places, scale, rows: tuple[int, int], out) -> None:
    """Copy frames as floats times a scale: `out` [R, P] float32 from `places` [R], the rows [begin, end) of them."""
    for i in range(rows[0], rows[1]):
        source, into = U64(places[i]), U64(i)
        for p in range(frames.shape[1]):
            out[into, U64(p)] = np.float32(frames[source, U64(p)]) * scale
