"""Boards with robots and goals as arrays: the form that banks, the solver and the environments share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hotloop.errors import HotloopError
from hotloop.training.envs.gym_types import Flags
from hotloop.training.envs.ricochet.config import LARGEST, MAX_ROBOTS, SMALLEST, UNKNOWN
from hotloop.training.envs.ricochet.memory_layout import CELLS, GOAL, MOVED, OPTIMAL, TARGET, State, new_state
from hotloop.training.envs.validate import check_whole

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class Puzzles:
    """M boards of one size. A cell is 16·y + x. `optimal` and `moved` are -1 on unsolved boards."""

    size: int
    walls: Bytes
    """uint8 [M, 256]: bit d of a cell is set if it has a wall up, right, down, left; includes the border."""
    robots: Bytes
    """uint8 [M, R]"""
    goal: Bytes
    """uint8 [M]"""
    target: Bytes
    """uint8 [M]: the robot that has to reach the goal."""
    optimal: NDArray[np.int8]
    """int8 [M]: length of the shortest solution."""
    moved: NDArray[np.int8]
    """int8 [M]: the fewest robots that a shortest solution moves."""

    def __len__(self) -> int:
        return len(self.goal)

    @property
    def count(self) -> int:
        """Number of robots on each board."""
        return self.robots.shape[1]

    def take(self, which: Flags | NDArray[np.intp] | Sequence[int] | slice) -> Puzzles:
        """Return some of the boards, selected by a mask, indices or a slice."""
        return Puzzles(self.size, *(np.ascontiguousarray(array[which]) for array in self.arrays().values()))

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays by name."""
        return {name: getattr(self, name) for name in ("walls", "robots", "goal", "target", "optimal", "moved")}

    def state(self) -> State:
        """Return arrays for the kernels; stops are not computed yet."""
        state = new_state(len(self))
        state.vitals[:, GOAL], state.vitals[:, TARGET] = self.goal, self.target
        state.vitals[:, OPTIMAL], state.vitals[:, MOVED] = self.optimal, self.moved
        state.robots[:, : self.count] = self.robots
        state.walls[:] = self.walls
        return state

    def planes(self) -> Bytes:
        """Return the `planes` observation: uint8 [M, 6 + R, size, size]."""
        every, grid = np.arange(len(self)), self.walls.reshape(-1, 16, 16)[:, : self.size, : self.size]
        seen = np.zeros((len(self), 6 + self.count, self.size, self.size), np.uint8)
        for direction in range(4):
            seen[:, direction] = grid >> direction & 1
        for plane, cell in enumerate((self.goal, self.robots[every, self.target], *self.robots.T), start=4):
            seen[every, plane, cell >> 4, cell & 15] = 1
        return seen

    @staticmethod
    def from_state(state: State, size: int, robots: int) -> Puzzles:
        """Return the boards of running games, with the current positions of the robots."""
        facts = state.vitals
        return Puzzles(
            size,
            state.walls.copy(),
            state.robots[:, :robots].copy(),
            facts[:, GOAL].astype(np.uint8),
            facts[:, TARGET].astype(np.uint8),
            facts[:, OPTIMAL].astype(np.int8),
            facts[:, MOVED].astype(np.int8),
        )


def check(puzzles: Puzzles, *, at_start: bool = True) -> Puzzles:
    """Reject impossible boards and, if `at_start`, solved ones; the message names the first. Return the boards."""
    size, count = puzzles.size, puzzles.count
    check_whole("size", size, SMALLEST, LARGEST)
    check_whole("robots", count, 1, MAX_ROBOTS)
    inside = np.zeros(CELLS, np.bool_)
    inside.reshape(16, 16)[:size, :size] = True
    sorted_robots = np.sort(puzzles.robots, axis=1)
    faults = {
        "a robot is not on the board": ~inside[puzzles.robots].all(axis=1),
        "the goal is not on the board": ~inside[puzzles.goal],
        "two robots are on one cell": (sorted_robots[:, 1:] == sorted_robots[:, :-1]).any(axis=1),
        f"the target is no robot from 0 to {count - 1}": puzzles.target >= count,
        "the border has a gap": _open_borders(puzzles.walls, size),
        "a wall is on one of its two cells only": _half_walls(puzzles.walls, size),
    }
    for what, wrong in faults.items():
        if wrong.any():
            raise HotloopError(f"board {int(wrong.argmax())} is impossible: {what}; give one that can be played")
    own = puzzles.robots[np.arange(len(puzzles)), puzzles.target]
    if at_start and (own == puzzles.goal).any():
        which = int((own == puzzles.goal).argmax())
        raise HotloopError(f"board {which} is solved before it begins: put the target robot elsewhere than the goal")
    return puzzles


def _open_borders(walls: Bytes, size: int) -> Flags:
    grid = walls.reshape(-1, 16, 16)[:, :size, :size]
    sides = (grid[:, 0], grid[:, :, -1], grid[:, -1], grid[:, :, 0])
    return np.any([((side >> direction) & 1 == 0).any(axis=1) for direction, side in enumerate(sides)], axis=0)


def _half_walls(walls: Bytes, size: int) -> Flags:
    grid = walls.reshape(-1, 16, 16)[:, :size, :size]
    right, left = (grid[:, :, :-1] >> 1) & 1, (grid[:, :, 1:] >> 3) & 1
    down, up = (grid[:, :-1] >> 2) & 1, grid[:, 1:] & 1
    return (right != left).any(axis=(1, 2)) | (down != up).any(axis=(1, 2))


def unsolved(size: int, walls: ArrayLike, robots: ArrayLike, goal: ArrayLike, target: ArrayLike) -> Puzzles:
    """Return boards without known solutions, after checking them."""
    given = [np.ascontiguousarray(np.asarray(each, np.uint8)) for each in (walls, robots, goal, target)]
    unknown = np.full(len(given[-1]), UNKNOWN, np.int8)
    return check(Puzzles(size, *given, optimal=unknown, moved=unknown.copy()))
