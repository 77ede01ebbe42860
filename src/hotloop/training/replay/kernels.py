"""Compiled loops over rings of transitions: which may be sampled, drawing them, writing and gathering them.

Kernels see a record as a row of 32-bit words, whatever observations it holds, so that one compilation serves every
shape and type: word 0 is the flags, word 1 the reward, then the action, then what the replay puts there. Each kernel
has a plain-Python twin in `twin.py`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

FLAGS, REWARD, ACTION = 0, 1, 2
"""The words of a record that every replay has."""
TERMINATED, TRUNCATED, START, FINAL = 1, 2, 4, 8
"""Flags. START: first step of an episode. FINAL: no transition, only the last frame of an episode."""
ENDED = TERMINATED | TRUNCATED
U64 = np.uint64
"""Numba checks a signed index for being negative at every access, which takes longer than the access."""
MOST_DRAWS = 1000
"""How often one place of a batch is drawn anew before it is given up: only a ring of nothing but holes gets there."""


class Shape(NamedTuple):
    """The geometry of a ring: `stripes` lanes of `length` slots, each lane written by one environment.

    A step has a number `seq` in its lane, counted from 0 for ever, and lies in slot `seq % length`. Its id,
    `seq * stripes + stripe`, is never used again, so an id whose step was overwritten is known as such.
    """

    stripes: int
    length: int
    guard: int
    """Oldest slots that are not sampled, because a writer may be about to overwrite them."""
    back: int
    """Steps before a sampled one that must still be there: those of its stack."""
    ahead: int
    """Slots after a sampled one that must already be there: those of its n-step return and next observation."""


@njit(cache=True, nogil=True, inline="always")
def window(head: int, shape: Shape) -> tuple[int, int]:
    """Return the numbers [low, high) of the steps of a lane that may be sampled, when `head` were written."""
    low = head - shape.length + shape.guard
    if low > 0:
        low += shape.back
    else:
        low = 0
    return low, max(low, head - shape.ahead)


@njit(cache=True, nogil=True)
def random_unit(seed: int, counter: int) -> float:
    """Return the counter-th number in [0, 1) of the stream of a seed (SplitMix64, Steele et al. 2014)."""
    z = U64(seed) + U64(counter + 1) * U64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> U64(30))) * U64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> U64(27))) * U64(0x94D049BB133111EB)
    z = z ^ (z >> U64(31))
    return float(z >> U64(11)) * (1.0 / 9007199254740992.0)


@njit(cache=True, nogil=True)
def count_steps(heads, shape: Shape, ends) -> int:
    """Write into `ends` [stripes] how many steps may be sampled up to and with each lane; return how many in all."""
    total = 0
    for stripe in range(shape.stripes):
        low, high = window(heads[stripe], shape)
        total += high - low
        ends[stripe] = total
    return total


@njit(cache=True, nogil=True)
def complete(words, shape: Shape, stripe: int, seq: int) -> bool:
    """Say whether a step can be sampled: it is a transition, and no writer left off before all that it needs."""
    if shape.ahead == 0:
        return True  # it needs nothing but itself, and where that is so every slot is a transition
    base = stripe * shape.length
    flags = words[base + seq % shape.length, FLAGS]
    if flags & FINAL:
        return False
    for k in range(1, shape.ahead + 1):
        if flags & ENDED:
            return True
        flags = words[base + (seq + k) % shape.length, FLAGS]
        if flags & START:
            return False
    return True


@njit(cache=True, nogil=True, inline="always")
def step_of_rank(heads, shape: Shape, ends, rank: int) -> tuple[int, int]:
    """Return the lane and the number of the rank-th step that may be sampled; `ends` is from `count_steps`."""
    # Lanes of one length, the usual case, are found at once; of different ones, after a few steps.
    stripe = rank * shape.stripes // ends[shape.stripes - 1]
    while ends[stripe] <= rank:
        stripe += 1
    while stripe > 0 and ends[stripe - 1] > rank:
        stripe -= 1
    return stripe, window(heads[stripe], shape)[1] - (ends[stripe] - rank)


@njit(cache=True, nogil=True)
def draw(heads, words, shape: Shape, seed: int, ids) -> tuple[int, int]:
    """Draw steps uniformly, with replacement, into `ids` [B].

    Incomplete ones are drawn anew, which leaves the others equally likely. `heads` must not change meanwhile. All are
    drawn before any record is looked at: the processor then waits for many records at once.

    Returns:
        How many steps there are to draw from, and how many were drawn: fewer than asked for if hardly one is complete.
    """
    ends = np.empty(shape.stripes, np.int64)
    total, batch = count_steps(heads, shape, ends), ids.shape[0]
    if total < batch:
        return total, 0
    for i in range(batch):
        stripe, seq = step_of_rank(heads, shape, ends, int(random_unit(seed, i) * total))
        ids[i] = seq * shape.stripes + stripe
    counter = batch
    for i in range(batch):
        seq = ids[i] // shape.stripes
        stripe = ids[i] - seq * shape.stripes
        for _ in range(MOST_DRAWS):
            if complete(words, shape, stripe, seq):
                ids[i] = seq * shape.stripes + stripe
                break
            stripe, seq = step_of_rank(heads, shape, ends, int(random_unit(seed, counter) * total))
            counter += 1
        else:
            return total, i
    return total, batch


@njit(cache=True, nogil=True)
def push(words, staged, heads, first: int, shape: Shape) -> None:
    """Write one step a lane: `staged` [E, W] into the lanes from `first` on. The caller publishes it."""
    for e in range(staged.shape[0]):
        stripe = first + e
        slot = stripe * shape.length + heads[stripe] % shape.length
        for w in range(staged.shape[1]):
            words[slot, w] = staged[e, w]


@njit(cache=True, nogil=True)
def n_step_returns(words, rewards, shape: Shape, ids, returns: tuple[int, float], out) -> None:
    """Add up the rewards of n steps from each complete step on, no further than its episode.

    R = r_0 + γ r_1 + ... + γ^(m-1) r_(m-1), to be bootstrapped by γ^m V(next), or by 0 after a termination.

    Args:
        words: Records, uint32 [slots, W].
        rewards: The same memory as float32.
        shape: Geometry of the ring.
        ids: Steps, all complete, [B].
        returns: n and γ.
        out: R and its discount, float32 [B], and the slots of the first and the last step of the sum, int64 [B].
    """
    reward, discount, firsts, lasts = out
    most, gamma = returns
    for i in range(ids.shape[0]):
        seq = ids[i] // shape.stripes
        base = (ids[i] - seq * shape.stripes) * shape.length
        at = seq % shape.length
        firsts[i] = base + at
        total, factor = 0.0, 1.0
        for _ in range(most):
            slot = base + at
            lasts[i] = slot
            total += factor * rewards[slot, REWARD]
            factor *= gamma
            flags = words[slot, FLAGS]
            if flags & ENDED:
                if flags & TERMINATED:
                    factor = 0.0
                break
            at = at + 1 if at + 1 < shape.length else 0
        reward[i], discount[i] = total, factor


@njit(cache=True, nogil=True)
def copy_words(words, slots, begin: int, out) -> None:
    """Copy a column of records: out [B, F] from word `begin` on of each of the slots [B]."""
    for i in range(slots.shape[0]):
        row, into = U64(slots[i]), U64(i)
        for w in range(out.shape[1]):
            out[into, U64(w)] = words[row, U64(begin) + U64(w)]


@njit(cache=True, nogil=True)
def gather(words, rewards, shape: Shape, ids, returns: tuple[int, float], out) -> None:
    """Collect the transitions of `ids` [B] from records that hold both observations.

    One short loop a column, and not one long loop over all: the processor then waits for many rows at once.

    Args:
        words: Records, uint32 [slots, W]: flags, reward, action, observation, next observation.
        rewards: The same memory as float32.
        shape: Geometry of the ring.
        ids: Steps, all complete.
        returns: The n of n-step returns and the discount γ.
        out: Where to: action [B, A], observation [B, F] and next observation [B, F] as words, reward and discount [B].
    """
    action, obs, next_obs, reward, discount = out
    firsts, lasts = np.empty_like(ids), np.empty_like(ids)
    n_step_returns(words, rewards, shape, ids, returns, (reward, discount, firsts, lasts))
    at_obs = ACTION + action.shape[1]
    copy_words(words, firsts, ACTION, action)
    copy_words(words, firsts, at_obs, obs)
    copy_words(words, lasts, at_obs + obs.shape[1], next_obs)
