"""Kernels that make a board: walls by quadrant, robots, goal, and where every slide ends.

Walls are placed one after the other, each at a random place that the rules allow. Occupied cells are bits and a row is
an integer, so a few shifts per row find the places for an L of one orientation in a quadrant. `reference` does the same
with sets.

Numba recompiles a cached kernel only when the kernel's own file changes: after a change here, touch `kernels.py`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hotloop.training.envs.numba_tools import borrow, count_ones, draw, kernel, lowest_one, step_x, step_y
from hotloop.training.envs.ricochet.config import DOWN, LEFT, RIGHT, UNKNOWN, UP
from hotloop.training.envs.ricochet.memory_layout import CELLS, GOAL, MOVED, OPTIMAL, RANDOM, TARGET, State

ZERO, ONE = np.uint64(0), np.uint64(1)
NEAR_WALL, TAKEN = range(2)
"""Two sets of bit rows: cells that no wall may be built around because they or a neighbour have one, and cells that no
wall may touch.

Together they keep walls from meeting: a wall that ended where another does would be next to that wall's cell or to a
neighbour of it.
"""

TURNS = 1 << 12
"""Number of ways to orient the Ls: three random bits for each of the four quadrants."""

ROOMY, MAX_LAYOUTS = 16, 10
"""Boards of at least this size have room for all walls. A layout that lacks one is rebuilt, with this many in all."""

PAD = 1
"""Bit rows have a margin of one cell on each side, so cells outside the board need no special case."""

FOUND = 16
"""Index in `Site.corners` of the number of Ls built."""


class Site(NamedTuple):
    """A board while its walls are built."""

    size: int
    taken: np.ndarray
    """uint64 [2, 20]: bit rows."""
    corners: np.ndarray
    """int64 [17]: cells of the Ls, then their number."""
    places: np.ndarray
    """uint64 [16]: bit rows of the cells around which the next L may be built."""


@kernel
def is_centre(size: int, x: int, y: int) -> bool:
    """Return whether a cell belongs to the walled centre: four cells on an even board, one on an odd one."""
    low, high = (size - 1) // 2, size // 2
    return low <= x <= high and low <= y <= high


@kernel
def mark(taken: np.ndarray, kind: int, x: int, y: int) -> None:
    """Set the bit of a cell."""
    taken[kind, y + PAD] |= ONE << np.uint64(x + PAD)


@kernel
def mark_around(taken: np.ndarray, kind: int, x: int, y: int) -> None:
    """Set the bits of a cell and its four neighbours."""
    bit = ONE << np.uint64(x + PAD)
    taken[kind, y - 1 + PAD] |= bit
    taken[kind, y + PAD] |= (bit << ONE) | bit | (bit >> ONE)
    taken[kind, y + 1 + PAD] |= bit


@kernel
def put_wall(walls: np.ndarray, i: int, taken: np.ndarray, x: int, y: int, direction: int) -> None:
    """Build a wall on one side of a cell; it is stored for both adjacent cells."""
    next_x, next_y = x + step_x(direction), y + step_y(direction)
    walls[i, 16 * y + x] |= 1 << direction
    walls[i, 16 * next_y + next_x] |= 1 << ((direction + 2) & 3)
    for a, b in ((x, y), (next_x, next_y)):
        mark_around(taken, NEAR_WALL, a, b)
        mark(taken, TAKEN, a, b)


@kernel
def put_frame(size: int, walls: np.ndarray, i: int, taken: np.ndarray) -> None:
    """Clear the board; build the border and the walls around the centre."""
    for cell in range(CELLS):
        walls[i, cell] = 0
    taken[:] = ZERO
    for k in range(size):
        walls[i, k] |= 1 << UP
        walls[i, 16 * k + size - 1] |= 1 << RIGHT
        walls[i, 16 * (size - 1) + k] |= 1 << DOWN
        walls[i, 16 * k] |= 1 << LEFT
    low, high = (size - 1) // 2, size // 2
    for k in range(low, high + 1):
        put_wall(walls, i, taken, k, low, UP)
        put_wall(walls, i, taken, high, k, RIGHT)
        put_wall(walls, i, taken, k, high, DOWN)
        put_wall(walls, i, taken, low, k, LEFT)


@kernel
def choose_bit(vitals: np.ndarray, i: int, row: np.uint64) -> int:
    """Return the position of a random set bit; -1 if there is none."""
    ones = count_ones(row)
    if ones == 0:
        return -1
    for _ in range(draw(vitals, i, RANDOM, ones)):
        row &= row - ONE
    return lowest_one(row)


@kernel
def put_edge_wall(state: State, i: int, site: Site, quadrant: int, side: int) -> bool:
    """Build a wall perpendicular to the border: at the top or bottom (side 0), or at the left or right (side 1).

    It separates two cells of the quadrant, neither of which is in a corner of the board. Return whether there was room.
    """
    size, taken = site.size, site.taken
    half = size // 2
    first = size - half if (quadrant >> side) & 1 else 0
    depth = size - 1 if (quadrant >> (1 - side)) & 1 else 0
    used = ZERO
    if side:
        for y in range(size):
            cells = taken[NEAR_WALL, y + PAD] | taken[TAKEN, y + PAD]
            used |= ((cells >> np.uint64(depth + PAD)) & ONE) << np.uint64(y)
    else:
        used = (taken[NEAR_WALL, depth + PAD] | taken[TAKEN, depth + PAD]) >> np.uint64(PAD)
    low, high = max(first, 1), min(first + half - 1, size - 2)
    places = ZERO
    if low < high:
        # A bit stands for the cell before the wall: it and the next cell must be free.
        places = ~(used | (used >> ONE)) & ((ONE << np.uint64(high)) - (ONE << np.uint64(low)))
    at = choose_bit(state.vitals, i, places)
    if at < 0:
        return False
    x, y = (depth, at) if side else (at, depth)
    put_wall(state.walls, i, taken, x, y, DOWN if side else RIGHT)
    for along in (at, at + 1):
        x, y = (depth, along) if side else (along, depth)
        mark_around(taken, TAKEN, x, y)
    return True


@kernel
def corner_places(taken: np.ndarray, y: int, turn: int, columns: np.uint64) -> np.uint64:
    """Return the cells of a row around which an L of one orientation may be built."""
    used = taken[NEAR_WALL, y + PAD] | taken[TAKEN, y + PAD]
    for k in range(2):
        direction = (turn + k) & 3
        if direction == UP:
            used |= taken[TAKEN, y - 1 + PAD]
        elif direction == RIGHT:
            used |= taken[TAKEN, y + PAD] >> ONE
        elif direction == DOWN:
            used |= taken[TAKEN, y + 1 + PAD]
        else:
            used |= taken[TAKEN, y + PAD] << ONE
    return ~used & columns


@kernel
def put_corner(state: State, i: int, site: Site, quadrant: int, turn: int) -> None:
    """Build an L around a random cell that is not at the border, if there is room."""
    size, taken = site.size, site.taken
    half = size // 2
    first_x = size - half if quadrant & 1 else 0
    first_y = size - half if quadrant >> 1 else 0
    low, high = max(first_x, 1), min(first_x + half, size - 1)
    columns = ((ONE << np.uint64(high)) - (ONE << np.uint64(low))) << np.uint64(PAD)
    top, total = max(first_y, 1), 0
    for y in range(top, min(first_y + half, size - 1)):
        places = corner_places(taken, y, turn, columns)
        site.places[y] = places
        total += count_ones(places)
    if total == 0:
        return
    wanted = draw(state.vitals, i, RANDOM, total)
    y = top
    while wanted >= count_ones(site.places[y]):
        wanted -= count_ones(site.places[y])
        y += 1
    places = site.places[y]
    for _ in range(wanted):
        places &= places - ONE
    x = lowest_one(places) - PAD
    put_wall(state.walls, i, taken, x, y, turn)
    put_wall(state.walls, i, taken, x, y, (turn + 1) & 3)
    mark_around(taken, TAKEN, x, y)
    site.corners[site.corners[FOUND]] = 16 * y + x
    site.corners[FOUND] += 1


@kernel
def put_walls(state: State, i: int, site: Site, structures: int) -> None:
    """Build all walls.

    Walls at the border fit into fewer places, so on a large board they come first. A small board has little room: there
    one L per quadrant comes first, because the goal is placed in an L.
    """
    early = 1 if structures < 4 else 0
    for more in range(MAX_LAYOUTS - 1 if site.size >= ROOMY else 0, -1, -1):
        put_frame(site.size, state.walls, i, site.taken)
        site.corners[FOUND] = 0
        turns = draw(state.vitals, i, RANDOM, TURNS)
        put_corners(state, i, site, turns, 0, early)
        built = 0
        for quadrant in range(4):
            built += put_edge_walls(state, i, site, quadrant, structures)
        if more and built < 4 * structures:
            continue
        put_corners(state, i, site, turns, early, structures)
        if site.corners[FOUND] == 4 * structures:
            return


@kernel
def put_corners(state: State, i: int, site: Site, turns: int, first: int, last: int) -> None:
    """Build Ls number `first` up to `last` of each quadrant.

    `turns` has three bits per quadrant: the first orientation, and whether the next ones follow clockwise or
    counter-clockwise. Taking them in turn makes all orientations equally frequent.
    """
    for quadrant in range(4):
        begin, by = turns >> (3 * quadrant), 1 + ((turns >> (3 * quadrant + 1)) & 2)
        for k in range(first, last):
            put_corner(state, i, site, quadrant, (begin + by * k) & 3)


@kernel
def put_edge_walls(state: State, i: int, site: Site, quadrant: int, structures: int) -> int:
    """Build walls alternately at the two borders of a quadrant, or where there is room. Return the number built."""
    side, built = draw(state.vitals, i, RANDOM, 2), 0
    for _ in range(structures):
        if put_edge_wall(state, i, site, quadrant, side) or put_edge_wall(state, i, site, quadrant, 1 - side):
            built += 1
        side = 1 - side
    return built


@kernel
def draw_cell(state: State, i: int, size: int) -> int:
    """Draw a random cell outside the centre."""
    while True:
        place = draw(state.vitals, i, RANDOM, size * size)
        x, y = place % size, place // size
        if not is_centre(size, x, y):
            return 16 * y + x


@kernel
def make_board(state: State, i: int, size: int, robots: int, structures: int) -> None:
    """Make a board with robots and a goal. The goal is in an L if there is one."""
    rows, cells, places = np.empty((2, 20), np.uint64), np.empty(17, np.int64), np.empty(16, np.uint64)
    site = Site(size, borrow(rows), borrow(cells), borrow(places))
    put_walls(state, i, site, structures)
    found = site.corners[FOUND]
    goal = site.corners[draw(state.vitals, i, RANDOM, found)] if found else draw_cell(state, i, size)
    # Numba frees an array after its last use, and `site` only borrows them. This use keeps them alive until here.
    rows[0, 0], cells[0], places[0] = ZERO, 0, ZERO
    state.vitals[i, GOAL] = goal
    state.vitals[i, TARGET] = draw(state.vitals, i, RANDOM, robots)
    state.vitals[i, OPTIMAL] = UNKNOWN
    state.vitals[i, MOVED] = UNKNOWN
    for r in range(4):
        state.robots[i, r] = 0
    for r in range(robots):
        cell, free = goal, False
        while not free:
            cell = draw_cell(state, i, size)
            free = cell != goal
            for other in range(r):
                free = free and state.robots[i, other] != cell
        state.robots[i, r] = cell


@kernel
def find_stops(size: int, walls: np.ndarray, stops: np.ndarray, i: int) -> None:
    """Write where every slide ends: at a wall in that direction, or where the slide from the next cell ends."""
    for row in range(size):
        first = 16 * row
        right, left = first + size - 1, first
        for x in range(size):
            if (walls[i, first + x] >> LEFT) & 1:
                left = first + x
            stops[i, CELLS * LEFT + first + x] = left
            cell = first + size - 1 - x
            if (walls[i, cell] >> RIGHT) & 1:
                right = cell
            stops[i, CELLS * RIGHT + cell] = right
        # Vertical slides are computed row by row, because each row only needs the previous one.
        for x in range(size):
            cell = first + x
            before = stops[i, CELLS * UP + max(cell - 16, 0)]
            stops[i, CELLS * UP + cell] = cell if (walls[i, cell] >> UP) & 1 else before
        first = 16 * (size - 1 - row)
        for x in range(size):
            cell = first + x
            before = stops[i, CELLS * DOWN + min(cell + 16, CELLS - 1)]
            stops[i, CELLS * DOWN + cell] = cell if (walls[i, cell] >> DOWN) & 1 else before


@kernel
def slide(stops: np.ndarray, i: int, positions: int, robots: int, robot: int, direction: int) -> int:
    """Return where a robot stops: at the wall, or before the nearest robot in its path.

    `positions` holds one byte per robot.
    """
    cell = (positions >> (8 * robot)) & 255
    stop = int(stops[i, CELLS * direction + cell])
    for other in range(robots):
        at = (positions >> (8 * other)) & 255
        if direction == UP:
            if (at ^ cell) & 15 == 0 and stop <= at < cell:
                stop = at + 16
        elif direction == RIGHT:
            # Cell numbers of one row are consecutive, so a number between two of them is in the same row.
            if cell < at <= stop:
                stop = at - 1
        elif direction == DOWN:
            if (at ^ cell) & 15 == 0 and cell < at <= stop:
                stop = at - 16
        elif stop <= at < cell:
            stop = at + 1
    return stop


@kernel
def pack_robots(robots: np.ndarray, i: int, count: int) -> int:
    """Return the positions of a game's robots, one byte each."""
    positions = 0
    for r in range(count):
        positions |= int(robots[i, r]) << (8 * r)
    return positions
