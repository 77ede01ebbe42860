"""Exact solver: the shortest solution of a board, and the smallest number of robots that such a solution moves.

Iterative deepening with a lower bound: the moves that the target robot would need if it could stop anywhere on its
path. A position whose bound exceeds the moves left is pruned; if they are equal, only the target robot may move. A
table of visited positions, in which the other robots are interchangeable, prunes repetitions. It has a fixed size and
may lose entries, which costs time but never a solution. `reference` has a plain search.

Numba recompiles a cached kernel only when the kernel's own file changes: after a change here, touch `kernels.py`.
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
MAX_MOVES = 30
"""The longest solution that the solver searches for."""

FAR, LAST_NUMBER = 255, (1 << 24) - 1
AT, NEXT, TAKEN = range(3)
"""Rows of `Search.path`."""


class Solution(NamedTuple):
    """A shortest solution that moves as few robots as possible."""

    length: int
    moved: int
    """Number of robots that move."""
    actions: tuple[int, ...]
    """robot · 4 + direction."""


def new_search() -> Search:
    """Allocate the solver's working memory."""
    return Search(
        table=np.zeros(1 << TABLE_BITS, np.uint64),
        bound=np.zeros(CELLS, np.uint8),
        path=np.zeros((3, 64), np.int64),
        queue=np.zeros(CELLS, np.int64),
        number=np.zeros(1, np.int64),
    )


def solve(puzzles: Puzzles, which: int = 0, most: int = MAX_MOVES) -> Solution | None:
    """Solve board `which`; return None if it has no solution of at most `most` moves, of up to MAX_MOVES."""
    state, search = puzzles.state(), new_search()
    find_stops(puzzles.size, state.walls, state.stops, which)
    length = solve_board(state, which, puzzles.count, min(most, MAX_MOVES), search)
    if length == UNKNOWN:
        return None
    actions = tuple(int(action) for action in search.path[TAKEN, :length])
    return Solution(int(length), int(state.vitals[which, MOVED]), actions)


@kernel
def find_bounds(walls: np.ndarray, i: int, goal: int, max_moves: int, search: Search) -> None:
    """Write each cell's least number of moves to the goal if a robot could stop anywhere; FAR above `max_moves`.

    The search runs from the goal outwards. That is valid because walls block both directions.
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
        if moves == max_moves:
            break
        for direction in range(4):
            at, by = cell, 16 * step_y(direction) + step_x(direction)
            while not (walls[i, at] >> direction) & 1:
                at += by
                if bound[at] <= moves:
                    break  # From that cell on, the same line is handled with an equal or smaller bound.
                if bound[at] == FAR:
                    bound[at] = moves + 1
                    queue[last] = at
                    last += 1


@kernel
def canonical(positions: int, target: int, robots: int) -> np.uint64:
    """Return positions in a form independent of the other robots' order: the target's byte, then the rest sorted."""
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
def check_and_mark_visited(search: Search, key: np.uint64, left: int) -> bool:
    """Return whether this search was in this position before, with at least as many moves left; if not, record it."""
    slot = (key * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(64 - TABLE_BITS)
    mine = (key << np.uint64(32)) | (np.uint64(search.number[0]) << np.uint64(8))
    entry = search.table[slot]
    if entry >> np.uint64(8) == mine >> np.uint64(8) and np.int64(entry & np.uint64(255)) >= left:
        return True
    search.table[slot] = mine | np.uint64(left)
    return False


@kernel
def search_depth(state: State, i: int, robots: int, movers: int, depth: int, search: Search) -> bool:
    """Search for a solution of exactly `depth` moves by the robots whose bits are set in `movers`."""
    stops, path, bound = state.stops, search.path, search.bound
    goal, target = state.vitals[i, GOAL], state.vitals[i, TARGET]
    all_move = movers == (1 << robots) - 1
    search.number[0] = (search.number[0] + 1) & LAST_NUMBER
    if search.number[0] == 0:
        # Numbers start again, so entries of an old search would be mistaken for this one's.
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
        # Try the target robot first.
        robot, direction = target + (turn >> 2), turn & 3
        if robot >= robots:
            robot -= robots
        positions, left = path[AT, ply], depth - ply - 1
        if not (movers >> robot) & 1:
            continue
        if robot != target and np.int64(bound[(positions >> (8 * target)) & 255]) > left:
            # Moving any robot but the target would leave too few moves, so skip the remaining robots.
            path[NEXT, ply] = 4 * robots
            continue
        cell, stop = (positions >> (8 * robot)) & 255, slide(stops, i, positions, robots, robot, direction)
        if stop == cell:
            continue
        if robot == target:
            if stop == goal:
                path[TAKEN, ply] = 4 * robot + direction
                return left == 0
            if np.int64(bound[stop]) > left:
                continue
        positions ^= (cell ^ stop) << (8 * robot)
        if left > 1 and check_and_mark_visited(
            search, canonical(positions, target, robots) if all_move else np.uint64(positions), left
        ):
            continue
        path[TAKEN, ply] = 4 * robot + direction
        ply += 1
        path[AT, ply] = positions
        path[NEXT, ply] = 0
    return False


@kernel
def solve_board(state: State, i: int, robots: int, max_moves: int, search: Search) -> int:
    """Solve a board: store the length and the robots moved in the state, and the actions in `search.path[TAKEN]`.

    Return the length, or UNKNOWN if there is no solution of at most `max_moves` moves.
    """
    target = state.vitals[i, TARGET]
    all_robots, alone = (1 << robots) - 1, 1 << target
    find_bounds(state.walls, i, state.vitals[i, GOAL], max_moves, search)
    state.vitals[i, OPTIMAL] = UNKNOWN
    state.vitals[i, MOVED] = UNKNOWN
    for depth in range(1, max_moves + 1):
        # Only search for the fewest robots once a solution with all of them is known.
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
