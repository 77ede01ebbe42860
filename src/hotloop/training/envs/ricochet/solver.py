"""Exact solver: the shortest solution of a board, and the fewest robots that such a solution moves.

Iterative deepening with a lower bound: the moves that the target robot needs at least, if it could stop anywhere on its
way. A position whose bound is above the moves left is cut off, and where both are equal only the target robot may move.
A table of positions seen, in which the other robots are interchangeable, cuts off repetitions; it is lossy and of fixed
size, which costs time at worst and never a solution. `twin` has a plain search.

Numba renews its cache of a kernel when the kernel's own file has changed: after a change here, touch `kernels.py`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hotloop.training.envs.numba_tools import count_ones, kernel, step_x, step_y
from hotloop.training.envs.ricochet.board_kernels import CELLS, find_stops, pack_robots, slide
from hotloop.training.envs.ricochet.config import UNKNOWN
from hotloop.training.envs.ricochet.memory_layout import GOAL, MOVED, OPTIMAL, TARGET, Search, State
from hotloop.training.envs.ricochet.puzzle import Puzzles

TABLE_BITS = 16
MOST_MOVES = 30
"""Longer solutions are not looked for."""

FAR, LAST_NUMBER = 255, (1 << 24) - 1
AT, NEXT, TAKEN = range(3)
"""Rows of `Search.path`."""


class Solution(NamedTuple):
    """A shortest solution that moves as few robots as a shortest one can."""

    length: int
    moved: int
    """How many robots move."""
    actions: tuple[int, ...]
    """robot · 4 + direction."""


def new_search() -> Search:
    """Return memory for the solver."""
    return Search(
        table=np.zeros(1 << TABLE_BITS, np.uint64),
        bound=np.zeros(CELLS, np.uint8),
        path=np.zeros((3, 64), np.int64),
        queue=np.zeros(CELLS, np.int64),
        number=np.zeros(1, np.int64),
    )


def solve(puzzles: Puzzles, which: int = 0, most: int = MOST_MOVES) -> Solution | None:
    """Solve a board.

    Args:
        puzzles: Boards.
        which: Which of them.
        most: Longer solutions are not looked for; up to MOST_MOVES.

    Returns:
        The solution, or None if there is none of at most `most` moves.
    """
    state, search = puzzles.state(), new_search()
    find_stops(puzzles.size, state.walls, state.stops, which)
    length = solve_board(state, which, puzzles.count, min(most, MOST_MOVES), search)
    if length == UNKNOWN:
        return None
    actions = tuple(int(action) for action in search.path[TAKEN, :length])
    return Solution(int(length), int(state.vitals[which, MOVED]), actions)


@kernel
def find_bounds(walls: np.ndarray, i: int, goal: int, most: int, search: Search) -> None:
    """Write for every cell the least number of moves to the goal, as if one could stop anywhere; FAR above `most`.

    A wall between two cells is on both, so that lines are the same both ways.
    """
    bound, queue = search.bound, search.queue
    for cell in range(CELLS):
        bound[cell] = FAR
    bound[goal] = 0
    queue[0] = goal
    first, last = 0, 1
    while first < last:
        cell = queue[first]
        first += 1
        moves = np.int64(bound[cell])
        if moves == most:
            break
        for way in range(4):
            at, by = cell, 16 * step_y(way) + step_x(way)
            while not (walls[i, at] >> way) & 1:
                at += by
                if bound[at] <= moves:
                    break  # From there the same line has been drawn, or will be.
                if bound[at] == FAR:
                    bound[at] = moves + 1
                    queue[last] = at
                    last += 1


@kernel
def canonical(positions: int, target: int, robots: int) -> np.uint64:
    """Return positions in which the others' order is lost: the target robot's byte, then the rest sorted."""
    a, b, c = -1, -1, -1
    for r in range(robots):
        if r != target:
            cell = (positions >> (8 * r)) & 255
            if cell > a:
                a, b, c = cell, a, b
            elif cell > b:
                b, c = cell, b
            else:
                c = cell
    key = (positions >> (8 * target)) & 255
    return np.uint64((key << 24) | (max(a, 0) << 16) | (max(b, 0) << 8) | max(c, 0))


@kernel
def was_seen(search: Search, key: np.uint64, left: int) -> bool:
    """Was this position reached in this search with as many moves left? If not, note that it is now."""
    slot = (key * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(64 - TABLE_BITS)
    mine = (key << np.uint64(32)) | (np.uint64(search.number[0]) << np.uint64(8))
    entry = search.table[slot]
    if entry >> np.uint64(8) == mine >> np.uint64(8) and np.int64(entry & np.uint64(255)) >= left:
        return True
    search.table[slot] = mine | np.uint64(left)
    return False


@kernel
def search_depth(state: State, i: int, robots: int, movers: int, depth: int, search: Search) -> bool:
    """Look for a solution of exactly `depth` moves by the robots whose bits are set in `movers`."""
    stops, path, bound = state.stops, search.path, search.bound
    goal, target = state.vitals[i, GOAL], state.vitals[i, TARGET]
    all_move = movers == (1 << robots) - 1
    search.number[0] = (search.number[0] + 1) & LAST_NUMBER
    if search.number[0] == 0:
        # What is left of a search long ago would be taken for this one's.
        search.table[:] = np.uint64(0)
    path[AT, 0] = pack_robots(state.robots, i, robots)
    path[NEXT, 0] = 0
    if np.int64(bound[(path[AT, 0] >> (8 * target)) & 255]) > depth:
        return False
    ply = 0
    while ply >= 0:
        turn = path[NEXT, ply]
        if turn == 4 * robots:
            ply -= 1
            continue
        path[NEXT, ply] = turn + 1
        # The target robot comes first.
        robot, way = target + (turn >> 2), turn & 3
        if robot >= robots:
            robot -= robots
        positions, left = path[AT, ply], depth - ply - 1
        if not (movers >> robot) & 1:
            continue
        if robot != target and np.int64(bound[(positions >> (8 * target)) & 255]) > left:
            # Nor does a later robot lead there in time.
            path[NEXT, ply] = 4 * robots
            continue
        cell, stop = (positions >> (8 * robot)) & 255, slide(stops, i, positions, robots, robot, way)
        if stop == cell:
            continue
        if robot == target:
            if stop == goal:
                path[TAKEN, ply] = 4 * robot + way
                return left == 0
            if np.int64(bound[stop]) > left:
                continue
        positions ^= (cell ^ stop) << (8 * robot)
        if left > 1 and was_seen(
            search, canonical(positions, target, robots) if all_move else np.uint64(positions), left
        ):
            continue
        path[TAKEN, ply] = 4 * robot + way
        ply += 1
        path[AT, ply] = positions
        path[NEXT, ply] = 0
    return False


@kernel
def solve_board(state: State, i: int, robots: int, most: int, search: Search) -> int:
    """Solve a board: write its length and robots moved, leave the actions in `search.path[TAKEN]`, return the length.

    Returns UNKNOWN if there is no solution of at most `most` moves.
    """
    target = state.vitals[i, TARGET]
    all_robots, alone = (1 << robots) - 1, 1 << target
    find_bounds(state.walls, i, state.vitals[i, GOAL], most, search)
    state.vitals[i, OPTIMAL] = UNKNOWN
    state.vitals[i, MOVED] = UNKNOWN
    for depth in range(1, most + 1):
        # The fewest robots that can do it are looked for once it is known that all of them can.
        if search_depth(state, i, robots, alone, depth, search):
            state.vitals[i, OPTIMAL] = depth
            state.vitals[i, MOVED] = 1
            return depth
        if robots > 1 and search_depth(state, i, robots, all_robots, depth, search):
            for moved in range(2, robots + 1):
                for movers in range(all_robots + 1):
                    if (
                        movers & alone
                        and count_ones(np.uint64(movers)) == moved
                        and search_depth(state, i, robots, movers, depth, search)
                    ):
                        state.vitals[i, OPTIMAL] = depth
                        state.vitals[i, MOVED] = moved
                        return depth
    return UNKNOWN
