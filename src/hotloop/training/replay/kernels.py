"""Compiled loops over a ring: find the steps that can be sampled, draw them, write records, gather transitions.

`records` defines the layout of a record. Each kernel has a plain-Python reference implementation in `reference`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from hotloop.training.replay.record_layout import ACTION, ENDED, FINAL, FLAGS, REWARD, START, TERMINATED

U64 = np.uint64
"""Type of indices. Numba checks a signed index for being negative, which takes longer than the access itself."""
MAX_DRAWS = 1000
"""Attempts to draw one transition of a batch. Reached only if hardly any transition is complete."""


class Shape(NamedTuple):
    """The geometry of a ring: one lane of `length` slots for each environment.

    Steps of a lane are numbered from 0 without end. Step `seq` is in slot `seq % length`, and its id is
    `seq * lanes + lane`. Ids are never reused, so the id of a step that was overwritten can be recognised.
    """

    lanes: int
    length: int
    guard: int
    """Oldest slots that are not sampled, because a writer may be about to overwrite them."""
    back: int
    """Slots before a sampled one that must not be overwritten: those of its frame stack."""
    ahead: int
    """Slots after a sampled one that must be written: those of its n-step return and next observation."""


@njit(cache=True, nogil=True, inline="always")
def window(head: int, shape: Shape) -> tuple[int, int]:
    """Return the range [low, high) of steps of a lane that can be sampled when its head is `head`."""
    low = head - shape.length + shape.guard
    if low > 0:
        low += shape.back
    else:
        low = 0
    return low, max(low, head - shape.ahead)


@njit(cache=True, nogil=True)
def random_unit(seed: int, counter: int) -> float:
    """Return the counter-th number in [0, 1) of the random stream of a seed (SplitMix64, Steele et al. 2014)."""
    z = U64(seed) + U64(counter + 1) * U64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> U64(30))) * U64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> U64(27))) * U64(0x94D049BB133111EB)
    z = z ^ (z >> U64(31))
    return float(z >> U64(11)) * (1.0 / 9007199254740992.0)


@njit(cache=True, nogil=True)
def count_steps(heads, shape: Shape, ends) -> int:
    """Write the cumulative number of steps per lane that can be sampled into `ends` [lanes]; return the total."""
    total = 0
    for lane in range(shape.lanes):
        low, high = window(heads[lane], shape)
        total += high - low
        ends[lane] = total
    return total


@njit(cache=True, nogil=True)
def complete(words, shape: Shape, lane: int, seq: int) -> bool:
    """Return whether a step is a transition and its episode was not cut off before its n-step return is complete."""
    if shape.ahead == 0:
        return True  # a one-step VectorReplay: every slot is a complete transition
    base = lane * shape.length
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
    """Return lane and number of the rank-th step that can be sampled; `ends` comes from `count_steps`."""
    # The first guess is right if all lanes hold equally many steps, which is the usual case.
    lane = rank * shape.lanes // ends[shape.lanes - 1]
    while ends[lane] <= rank:
        lane += 1
    while lane > 0 and ends[lane - 1] > rank:
        lane -= 1
    return lane, window(heads[lane], shape)[1] - (ends[lane] - rank)


@njit(cache=True, nogil=True)
def draw(heads, words, shape: Shape, seed: int, ids) -> tuple[int, int]:
    """Draw steps uniformly, with replacement, into `ids` [B].

    Incomplete steps are drawn again, which leaves the others equally likely. `heads` must not change during the call.
    All ids are drawn before any record is read, so that the cache misses of many records overlap.

    Returns:
        The number of steps to draw from, and the number drawn: less than B if hardly any step is complete.
    """
    ends = np.empty(shape.lanes, np.int64)
    total, batch = count_steps(heads, shape, ends), ids.shape[0]
    if total < batch:
        return total, 0
    for i in range(batch):
        lane, seq = step_of_rank(heads, shape, ends, int(random_unit(seed, i) * total))
        ids[i] = seq * shape.lanes + lane
    counter = batch
    for i in range(batch):
        seq = ids[i] // shape.lanes
        lane = ids[i] - seq * shape.lanes
        for _ in range(MAX_DRAWS):
            if complete(words, shape, lane, seq):
                ids[i] = seq * shape.lanes + lane
                break
            lane, seq = step_of_rank(heads, shape, ends, int(random_unit(seed, counter) * total))
            counter += 1
        else:
            return total, i
    return total, batch


@njit(cache=True, nogil=True)
def push(words, staged, heads, first: int, shape: Shape) -> None:
    """Write one record per lane, `staged` [E, W], into the lanes starting at `first`. The caller publishes them."""
    for e in range(staged.shape[0]):
        lane = first + e
        slot = lane * shape.length + heads[lane] % shape.length
        for w in range(staged.shape[1]):
            words[slot, w] = staged[e, w]


@njit(cache=True, nogil=True)
def n_step_returns(words, rewards, shape: Shape, ids, returns: tuple[int, float], out) -> None:
    """Compute the n-step return of each step, over m <= n steps up to the end of its episode.

    R = r_0 + γ r_1 + ... + γ^(m-1) r_(m-1), to be bootstrapped with γ^m V(next), or with 0 after a termination.

    Args:
        words: Records, uint32 [slots, W].
        rewards: The same memory as float32.
        shape: Geometry of the ring.
        ids: Complete steps, [B].
        returns: n and γ.
        out: R and its discount, float32 [B], and the slots of the first and last step of the sum, int64 [B].
    """
    reward, discount, firsts, lasts = out
    most, gamma = returns
    for i in range(ids.shape[0]):
        seq = ids[i] // shape.lanes
        base = (ids[i] - seq * shape.lanes) * shape.length
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
    """Copy a column: out [B, F] from the records of `slots` [B], starting at word `begin`."""
    for i in range(slots.shape[0]):
        row, into = U64(slots[i]), U64(i)
        for w in range(out.shape[1]):
            out[into, U64(w)] = words[row, U64(begin) + U64(w)]


@njit(cache=True, nogil=True)
def gather(words, rewards, shape: Shape, ids, returns: tuple[int, float], out) -> None:
    """Collect the transitions of `ids` [B] from records that hold both observations.

    One short loop per column instead of a long one over all columns, so that the cache misses of many rows overlap.

    Args:
        words: Records, uint32 [slots, W]: flags, reward, action, observation, next observation.
        rewards: The same memory as float32.
        shape: Geometry of the ring.
        ids: Complete steps, [B].
        returns: n and γ.
        out: action [B, A], observation [B, F] and next observation [B, F] as words, reward and discount [B].
    """
    action, obs, next_obs, reward, discount = out
    firsts, lasts = np.empty_like(ids), np.empty_like(ids)
    n_step_returns(words, rewards, shape, ids, returns, (reward, discount, firsts, lasts))
    at_obs = ACTION + action.shape[1]
    copy_words(words, firsts, ACTION, action)
    copy_words(words, firsts, at_obs, obs)
    copy_words(words, lasts, at_obs + obs.shape[1], next_obs)
