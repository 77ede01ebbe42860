"""Reference implementations of the kernels in plain Python: same arguments, same results, same changes to the arrays.

They document the kernels, and tests compare the kernels with them. Training does not use them.
"""

from __future__ import annotations

import math
from itertools import accumulate, chain, count

import numpy as np

from hotloop.training.replay.kernels import MAX_DRAWS, Shape
from hotloop.training.replay.record_layout import ENDED, FINAL, FLAGS, REWARD, START, TERMINATED
from hotloop.training.replay.sum_tree import FAN

Array = np.ndarray
Arrays = tuple[np.ndarray, ...]
MASK = (1 << 64) - 1


def window(head: int, shape: Shape) -> tuple[int, int]:
    """See `kernels.window`."""
    oldest = head - shape.length + shape.guard
    low = oldest + shape.back if oldest > 0 else 0
    return low, max(low, head - shape.ahead)


def random_unit(seed: int, counter: int) -> float:
    """See `kernels.random_unit`."""
    z = (seed + (counter + 1) * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return ((z ^ (z >> 31)) >> 11) / (1 << 53)


def steps_held(heads: Array, shape: Shape) -> list[tuple[int, int]]:
    """List the steps that can be sampled, as (lane, number)."""
    return [(lane, seq) for lane in range(shape.lanes) for seq in range(*window(int(heads[lane]), shape))]


def count_steps(heads: Array, shape: Shape, ends: Array) -> int:
    """See `kernels.count_steps`."""
    held = steps_held(heads, shape)
    ends[:] = [sum(each <= lane for each, _ in held) for lane in range(shape.lanes)]
    return len(held)


def slot_of(shape: Shape, lane: int, seq: int) -> int:
    """Return the slot of a step."""
    return lane * shape.length + seq % shape.length


def complete(words: Array, shape: Shape, lane: int, seq: int) -> bool:
    """See `kernels.complete`."""
    if shape.ahead == 0:
        return True
    flags = [int(words[slot_of(shape, lane, seq + k), FLAGS]) for k in range(shape.ahead + 1)]
    if flags[0] & FINAL:
        return False
    steps_to_end = next((k for k, each in enumerate(flags[:-1]) if each & ENDED), shape.ahead)
    return not any(each & START for each in flags[1 : steps_to_end + 1])


def draw(heads: Array, words: Array, shape: Shape, seed: int, ids: Array) -> tuple[int, int]:
    """See `kernels.draw`."""
    held, batch = steps_held(heads, shape), len(ids)
    if len(held) < batch:
        return len(held), 0
    ranks = (int(random_unit(seed, counter) * len(held)) for counter in count())
    chosen = [held[next(ranks)] for _ in range(batch)]
    for i, (lane, seq) in enumerate(chosen):
        tries = chain([(lane, seq)], (held[next(ranks)] for _ in range(MAX_DRAWS - 1)))
        found = next((each for each in tries if complete(words, shape, *each)), None)
        if found is None:
            return len(held), i
        ids[i] = found[1] * shape.lanes + found[0]
    return len(held), batch


def push(words: Array, staged: Array, heads: Array, first: int, shape: Shape) -> None:
    """See `kernels.push`."""
    for e, row in enumerate(staged):
        words[slot_of(shape, first + e, int(heads[first + e]))] = row


def n_step_returns(
    words: Array, rewards: Array, shape: Shape, ids: Array, returns: tuple[int, float], out: Arrays
) -> None:
    """See `kernels.n_step_returns`."""
    n, gamma = returns
    for i, step in enumerate(ids.tolist()):
        seq, lane = divmod(step, shape.lanes)
        slots = [slot_of(shape, lane, seq + k) for k in range(n)]
        ends = [k for k, slot in enumerate(slots) if words[slot, FLAGS] & ENDED]
        slots = slots[: ends[0] + 1] if ends else slots
        total, factor = 0.0, 1.0
        for slot in slots:
            total += factor * float(rewards[slot, REWARD])
            factor *= gamma
        terminated = words[slots[-1], FLAGS] & TERMINATED
        for column, value in zip(out, (total, 0.0 if terminated else factor, slots[0], slots[-1]), strict=True):
            column[i] = value


def copy_words(words: Array, slots: Array, begin: int, out: Array) -> None:
    """See `kernels.copy_words`."""
    out[:] = words[slots, begin : begin + out.shape[1]]


def gather(words: Array, rewards: Array, shape: Shape, ids: Array, returns: tuple[int, float], out: Arrays) -> None:
    """See `kernels.gather`."""
    action, obs, next_obs, reward, discount = out
    firsts, lasts = np.empty_like(ids), np.empty_like(ids)
    n_step_returns(words, rewards, shape, ids, returns, (reward, discount, firsts, lasts))
    columns = np.split(words, np.cumsum([2, action.shape[1], obs.shape[1]]), axis=1)
    action[:], obs[:], next_obs[:] = columns[1][firsts], columns[2][firsts], columns[3][lasts]


def push_frames(arrays: Arrays, shape: Shape, first: int, step: Arrays, ended: Array, written: Array) -> None:
    """See `frame_kernels.push_frames`."""
    frames, words, heads = arrays
    for e, (record, frame, next_frame) in enumerate(zip(*step, strict=True)):
        head = int(heads[first + e])
        slot, after = slot_of(shape, first + e, head), slot_of(shape, first + e, head + 1)
        words[slot], frames[slot] = record, frame
        if ended[e]:
            words[after], frames[after] = [FINAL] + [0] * (len(record) - 1), next_frame
        written[e] = 1 + bool(ended[e])


def trace_stack(words: Array, shape: Shape, slot: int, zero: int, slots: Array) -> None:
    """See `frame_kernels.trace_stack`."""
    lane, at = divmod(slot, shape.length)
    for k in reversed(range(len(slots))):
        slots[k] = slot_of(shape, lane, at)
        if words[slots[k], FLAGS] & START:
            slots[:k] = slots[k] if zero < 0 else zero
            return
        at -= 1


def locate(
    words: Array, rewards: Array, shape: Shape, ids: Array, options: tuple[int, float, int, int], out: Arrays
) -> None:
    """See `frame_kernels.locate`."""
    action, reward, discount, slots = out
    n, gamma, stack, zero = options
    firsts, lasts = np.empty_like(ids), np.empty_like(ids)
    n_step_returns(words, rewards, shape, ids, (n, gamma), (reward, discount, firsts, lasts))
    action[:] = words[firsts, 2:]
    for row, first, last in zip(slots, firsts.tolist(), lasts.tolist(), strict=True):
        lane, at = divmod(last, shape.length)
        next_slot = slot_of(shape, lane, at + 1)
        trace_stack(words, shape, first, zero, row[:stack])
        if n == 1:
            row[stack] = next_slot
        else:
            trace_stack(words, shape, next_slot, zero, row[stack:])


def gather_scaled(frames: Array, slots: Array, scale: float, rows: tuple[int, int], out: Array) -> None:
    """See `frame_kernels.gather_scaled`."""
    for i in range(*rows):
        out[i] = frames[slots[i]].astype(np.float32) * np.float32(scale)


def refresh(sums: Array, mins: Array, offsets: Array, changed: Array) -> None:
    """See `sum_tree.refresh`. Recomputes all nodes; the result is the same."""
    for level in range(1, len(offsets) - 1):
        children = sums[offsets[level - 1] : offsets[level]].reshape(-1, FAN)
        least = children if level == 1 else mins[offsets[level - 1] - offsets[1] : offsets[level] - offsets[1]]
        for node, (values, bounds) in enumerate(zip(children, least.reshape(-1, FAN), strict=True)):
            even, odd = (list(accumulate(part.tolist()))[-1] for part in (values[::2], values[1::2]))
            sums[offsets[level] + node] = even + odd
            mins[offsets[level] - offsets[1] + node] = min((b for b in bounds.tolist() if b > 0), default=math.inf)


def find_leaves(sums: Array, offsets: Array, seed: int, leaves: Array) -> None:
    """See `sum_tree.find_leaves`."""
    batch = len(leaves)
    for i in range(batch):
        rest, node = (i + random_unit(seed, i)) / batch * float(sums[-1]), 0
        for level in reversed(range(len(offsets) - 2)):
            first = offsets[level] + node * FAN
            shares = sums[first : first + FAN].tolist()
            ends = list(accumulate(shares))
            child = sum(end <= rest for end in ends)
            if child < FAN:
                rest -= ends[child - 1] if child else 0.0
            else:
                child = max((k for k in range(FAN) if shares[k] > 0), default=0)
                rest -= rest - 0.5 * shares[child]
            node = node * FAN + child
        leaves[i] = node
    for i in reversed(range(1, batch)):
        j = int(random_unit(seed, batch + i) * (i + 1))
        leaves[[i, j]] = leaves[[j, i]]


def follow(heads: Array, words: Array, shape: Shape, windows: Array, leaves: Array, newest: float) -> Array:
    """See `prioritised.follow`."""
    changed = []
    for lane in range(shape.lanes):
        before, now = range(*windows[lane].tolist()), range(*window(int(heads[lane]), shape))
        for seq in (each for each in before if each not in now):
            changed.append(slot_of(shape, lane, seq))
            leaves[changed[-1]] = 0.0
        for seq in (each for each in now if each not in before):
            changed.append(slot_of(shape, lane, seq))
            leaves[changed[-1]] = newest if complete(words, shape, lane, seq) else 0.0
        windows[lane] = now.start, now.stop
    return np.array(changed, np.int64)


def identify(
    chosen: Array, leaves: Array, shape: Shape, windows: Array, weighing: tuple[float, float], out: Arrays
) -> None:
    """See `prioritised.identify`."""
    ids, weights = out
    least, beta = weighing
    for i, leaf in enumerate(chosen.tolist()):
        lane = leaf // shape.length
        low = int(windows[lane, 0])
        seq = next(each for each in range(low, low + shape.length) if slot_of(shape, lane, each) == leaf)
        ids[i] = seq * shape.lanes + lane
        weights[i] = (least / float(leaves[leaf])) ** beta


def revalue(
    ids: Array, td_abs: Array, shape: Shape, windows: Array, leaves: Array, powers: tuple[float, float]
) -> tuple[Array, float]:
    """See `prioritised.revalue`."""
    epsilon, alpha = powers
    if not all(0 <= each < math.inf for each in td_abs.tolist()):
        return np.empty(0, np.int64), -1.0
    changed, largest = [], 0.0
    for step, error in zip(ids.tolist(), td_abs.tolist(), strict=True):
        seq, lane = divmod(step, shape.lanes)
        priority = (error + epsilon) ** alpha
        largest = max(largest, priority)
        if seq in range(*windows[lane].tolist()):
            changed.append(slot_of(shape, lane, seq))
            leaves[changed[-1]] = priority
    return np.array(changed, np.int64), largest
