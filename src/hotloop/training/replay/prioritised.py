"""Prioritised sampling from a ring that other processes may write.

Only the sampling process has the tree of priorities. Before each draw it compares the lanes' heads with those of the
last draw, gives new steps the largest priority so far, and clears steps that are about to be overwritten. Writers do
not know about priorities, so adding costs nothing extra.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numba import njit

from hotloop.training.replay.kernels import Shape, complete, window
from hotloop.training.replay.ring_layout import ReplayError, Ring
from hotloop.training.replay.samplers import Prioritised, count_held, too_few
from hotloop.training.replay.sum_tree import SumTree
from hotloop.training.state_checks import array_of, require_state

MAX_PRIORITY = 1e39
"""Upper bound of a priority, as TD errors are float32. The sum of all priorities stays finite."""


@njit(cache=True, nogil=True)
def follow(heads, words, shape: Shape, windows, leaves, newest: float):
    """Set the priority of complete steps that entered a lane's window to `newest`, and of those that left it to 0.

    Args:
        heads: int64 [lanes]; must not change during the call.
        words: Records, uint32 [slots, W].
        shape: Geometry of the ring.
        windows: int64 [lanes, 2], the sampling windows of the last call; updated.
        leaves: Priorities, float64 [slots].
        newest: Priority of new steps.

    Returns:
        The leaves that changed, int64.
    """
    count = 0
    for lane in range(shape.lanes):
        low, high = window(heads[lane], shape)
        count += min(low, windows[lane, 1]) - min(low, windows[lane, 0]) + high - max(low, windows[lane, 1])
    changed = np.empty(count, np.int64)
    at = 0
    for lane in range(shape.lanes):
        low, high = window(heads[lane], shape)
        base = lane * shape.length
        for seq in range(windows[lane, 0], min(low, windows[lane, 1])):
            changed[at] = base + seq % shape.length
            leaves[changed[at]] = 0.0
            at += 1
        for seq in range(max(low, windows[lane, 1]), high):
            changed[at] = base + seq % shape.length
            leaves[changed[at]] = newest if complete(words, shape, lane, seq) else 0.0
            at += 1
        windows[lane, 0], windows[lane, 1] = low, high
    return changed


@njit(cache=True, nogil=True)
def identify(chosen, leaves, shape: Shape, windows, weighing: tuple[float, float], out) -> None:
    """Convert leaves to step ids and importance weights.

    w = (p_least / p)^β, which is (N P)^-β divided by its largest possible value.

    Args:
        chosen: Leaves, int64 [B].
        leaves: Priorities, float64 [slots].
        shape: Geometry of the ring.
        windows: Sampling windows of the lanes, int64 [lanes, 2].
        weighing: The smallest priority and β.
        out: ids int64 [B] and weights float32 [B].
    """
    ids, weights = out
    least, beta = weighing
    for i in range(chosen.shape[0]):
        lane = chosen[i] // shape.length
        low = windows[lane, 0]
        seq = low + (chosen[i] - lane * shape.length - low) % shape.length
        ids[i] = seq * shape.lanes + lane
        weights[i] = (least / leaves[chosen[i]]) ** beta


@njit(cache=True, nogil=True)
def revalue(ids, td_abs, shape: Shape, windows, leaves, powers: tuple[float, float]):
    """Set the priorities (|δ| + ε)^α of the steps that are still in the tree.

    Args:
        ids: int64 [B].
        td_abs: |δ|, float32 [B].
        shape: Geometry of the ring.
        windows: Sampling windows of the lanes, int64 [lanes, 2].
        leaves: Priorities, float64 [slots].
        powers: ε and α.

    Returns:
        The leaves that were set, int64, and the largest priority. If an error is negative or not finite, nothing is
        set and the priority returned is -1.
    """
    epsilon, alpha = powers
    changed = np.empty_like(ids)
    count, largest = 0, 0.0
    for i in range(ids.shape[0]):
        if not 0.0 <= td_abs[i] < np.inf:
            return changed[:0], -1.0
    for i in range(ids.shape[0]):
        priority = (td_abs[i] + epsilon) ** alpha
        largest = max(largest, priority)
        seq = ids[i] // shape.lanes
        lane = ids[i] - seq * shape.lanes
        if windows[lane, 0] <= seq < windows[lane, 1]:
            changed[count] = lane * shape.length + seq % shape.length
            leaves[changed[count]] = priority
            count += 1
    return changed[:count], largest


class PrioritisedSampler:
    """Draws steps in proportion to (|TD error| + ε)^α."""

    def __init__(self, ring: Ring, config: Prioritised) -> None:
        self._ring = ring
        self._config = config
        self._tree = SumTree(ring.shape.lanes * ring.shape.length)
        self._windows = np.zeros((ring.shape.lanes, 2), np.int64)
        self._newest = 1.0
        self.nbytes = self._tree.nbytes

    def __len__(self) -> int:
        return count_held(self._ring)

    def draw(self, batch: int, seed: int, beta: float | None) -> tuple[np.ndarray, np.ndarray]:
        """Draw steps: ids int64 [B] and importance weights float32 [B]."""
        ring, tree = self._ring, self._tree
        if batch > len(self):
            raise too_few(batch, len(self))
        # A copy, because writers keep advancing the heads.
        changed = follow(ring.heads.copy(), ring.words, ring.shape, self._windows, tree.leaves, self._newest)
        if len(changed):
            tree.refresh(changed)
        if tree.total <= 0:
            raise ReplayError(f"none of {len(self)} steps is a complete transition: add more before sampling")
        ids, weights = np.empty(batch, np.int64), np.empty(batch, np.float32)
        weighing = (tree.least, self._config.beta if beta is None else float(beta))
        identify(tree.sample(batch, seed), tree.leaves, ring.shape, self._windows, weighing, (ids, weights))
        return ids, weights

    def update(self, ids: np.ndarray, td_abs: np.ndarray) -> None:
        """Set the priorities of steps from their absolute TD errors [B]."""
        ids, td_abs = np.asarray(ids), np.asarray(td_abs, np.float32)
        if ids.ndim != 1 or ids.shape != td_abs.shape or ids.dtype != np.int64:
            raise ReplayError(
                f"index is {ids.dtype} {list(ids.shape)} and td_abs {list(td_abs.shape)}: "
                "give Batch.index, int64 [B], and one error for each"
            )
        powers = (self._config.epsilon, self._config.alpha)
        changed, largest = revalue(ids, td_abs, self._ring.shape, self._windows, self._tree.leaves, powers)
        if largest < 0:
            raise ReplayError("a TD error is negative, infinite or not a number: give finite absolute values")
        self._newest = max(self._newest, largest)
        self._tree.refresh(changed)

    def state(self) -> dict[str, np.ndarray]:
        """Return the priorities, the sampling windows of the lanes, and the priority of new steps."""
        return {"priorities": self._tree.leaves, "seen": self._windows, "newest": np.array([self._newest])}

    def restore(self, state: Mapping[str, np.ndarray], heads: np.ndarray) -> None:
        """Restore a state; the tree is then identical to the last bit."""
        own = self.state()
        if any(name not in state or state[name].shape != own[name].shape for name in own):
            raise ReplayError(
                f"the state has no priorities for {len(self._tree.leaves)} steps: "
                "make the replay as it was saved, prioritised or not, with the same capacity"
            )
        self._check(state, heads)
        self._tree.leaves[:] = state["priorities"]
        self._tree.rebuild()
        self._windows[:] = state["seen"]
        self._newest = float(state["newest"][0])

    def _check(self, state: Mapping[str, np.ndarray], heads: np.ndarray) -> None:
        """Reject windows that do not fit the lanes, and priorities of steps outside of them.

        `follow` allocates memory according to the windows, and `identify` trusts every leaf above 0.
        """
        for name, own in self.state().items():
            array_of(state, name, own, low=0, high=None if name == "seen" else MAX_PRIORITY)
        shape, (low, high) = self._ring.shape, state["seen"].T
        now_low, now_high = np.array([window(int(head), shape) for head in heads]).T
        fits = (low <= high) & (high - low <= shape.length) & (low <= now_low) & (high <= now_high)
        require_state(bool(fits.all()), "the windows of the priorities do not fit the lanes")
        steps = low[:, None] + (np.arange(shape.length) - low[:, None]) % shape.length
        outside = state["priorities"].reshape(shape.lanes, -1)[steps >= high[:, None]]
        require_state(not outside.any(), "a step that cannot be sampled has a priority")
        require_state(float(state["newest"][0]) > 0, "the priority of new steps is 0")
