"""Reference implementation of the game in plain Python, cell by cell, which can be checked by hand.

A property test compares the kernels with it. `parse` makes a board from text, `pack` converts boards to the arrays that
the solver and the environment take, `solve` is a plain breadth-first search.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hotloop.training.envs.ricochet.config import LEVELS, RUNNING, SOLVED, TIMEOUT, RicochetConfig
from hotloop.training.envs.ricochet.puzzle import Puzzles, unsolved
from hotloop.training.envs.snake.reference import BITS, Cell, mix, neighbour

Wall = tuple[Cell, int]
"""A cell and the side of it: up, right, down, left."""

TWELVE_BITS = 1 << 12


@dataclass
class Board:
    """A board with the current positions of its robots. A wall is stored for both adjacent cells."""

    size: int
    walls: set[Wall] = field(default_factory=set)
    robots: list[Cell] = field(default_factory=list)
    goal: Cell = (0, 0)
    target: int = 0
    steps: int = 0
    random: int = 0

    def draw(self, choices: int) -> int:
        """Draw an integer in [0, choices)."""
        self.random = (self.random + 0x9E3779B97F4A7C15) & BITS
        return ((mix(self.random) >> 32) * choices) >> 32


def around(cell: Cell) -> set[Cell]:
    """Return a cell and its four neighbours."""
    return {cell, *(neighbour(cell, direction) for direction in range(4))}


def is_inside(size: int, cell: Cell) -> bool:
    """Return whether a cell is on the board."""
    return 0 <= cell[0] < size and 0 <= cell[1] < size


def is_centre(size: int, cell: Cell) -> bool:
    """Return whether a cell belongs to the walled centre: four cells on an even board, one on an odd one."""
    return all(place in ((size - 1) // 2, size // 2) for place in cell)


@dataclass
class Site:
    """A board while its walls are built: the occupied cells and the cells of the Ls."""

    board: Board
    near_wall: set[Cell] = field(default_factory=set)
    """Cells that have a wall or a neighbour with one: nothing is built around them."""
    taken: set[Cell] = field(default_factory=set)
    """Cells that have a wall, and neighbours of cells that something is built around: no new wall may touch them."""
    corners: list[Cell] = field(default_factory=list)

    def fits(self, cells_inside: Sequence[Cell], walls: Sequence[Wall]) -> bool:
        """Return whether these walls may be built around these cells."""
        touched = {cell for cell, _ in walls} | {neighbour(cell, direction) for cell, direction in walls}
        return self.near_wall.isdisjoint(cells_inside) and self.taken.isdisjoint(touched)

    def build(self, cells_inside: Sequence[Cell], walls: Sequence[Wall]) -> None:
        """Build walls around cells."""
        for cell, direction in walls:
            self.board.walls |= {(cell, direction), (neighbour(cell, direction), (direction + 2) % 4)}
            for each in (cell, neighbour(cell, direction)):
                self.near_wall |= around(each)
                self.taken.add(each)
        for cell in cells_inside:
            self.taken |= around(cell)

    def build_one_of(self, places: Sequence[tuple[Sequence[Cell], Sequence[Wall]]]) -> Cell | None:
        """Build at a random one of the places that are still allowed; return its first cell."""
        left = [place for place in places if self.fits(*place)]
        if not left:
            return None
        cells_inside, walls = left[self.board.draw(len(left))]
        self.build(cells_inside, walls)
        return cells_inside[0]


def frame(board: Board) -> Site:
    """Clear a board; build the border and the walls around the centre."""
    size = board.size
    cells = [(x, y) for y in range(size) for x in range(size)]
    outside = {
        (cell, direction) for cell in cells for direction in range(4) if not is_inside(size, neighbour(cell, direction))
    }
    board.walls = outside
    site = Site(board)
    centre = [cell for cell in cells if is_centre(size, cell)]
    site.build(
        [],
        [
            (cell, direction)
            for cell in centre
            for direction in range(4)
            if not is_centre(size, neighbour(cell, direction))
        ],
    )
    return site


def put_edge_wall(site: Site, quadrant: int, side: int) -> bool:
    """Build a wall perpendicular to the border: at the top or bottom (side 0), or at the left or right (side 1)."""
    size, half = site.board.size, site.board.size // 2
    right, low = quadrant & 1, quadrant >> 1
    first = size - half if (low if side else right) else 0
    depth = size - 1 if (right if side else low) else 0
    places = []
    for k in range(first, first + half - 1):
        if k in (0, size - 2):
            continue  # Next to a corner of the board.
        cells_inside = [(depth, k), (depth, k + 1)] if side else [(k, depth), (k + 1, depth)]
        places.append((cells_inside, [(cells_inside[0], 2 if side else 1)]))
    return site.build_one_of(places) is not None


def put_corner(site: Site, quadrant: int, turn: int) -> None:
    """Build an L around a random cell that is not at the border, if there is room."""
    size, half = site.board.size, site.board.size // 2
    first_x, first_y = (size - half if quadrant & 1 else 0), (size - half if quadrant >> 1 else 0)
    cells = [
        (x, y)
        for y in range(first_y, first_y + half)
        for x in range(first_x, first_x + half)
        if 0 < x < size - 1 and 0 < y < size - 1
    ]
    cell = site.build_one_of([([cell], [(cell, turn), (cell, (turn + 1) % 4)]) for cell in cells])
    if cell is not None:
        site.corners.append(cell)


def put_walls(config: RicochetConfig, board: Board) -> list[Cell]:
    """Build all walls; return the cells of the Ls."""
    structures = config.structures
    early = 1 if structures < 4 else 0
    layouts = 10 if config.size >= 16 else 1
    site = Site(board)
    for layout in range(layouts):
        site = frame(board)
        turns = board.draw(TWELVE_BITS)
        _put_corners(site, turns, range(early))
        built = 0
        for quadrant in range(4):
            side = board.draw(2)
            for _ in range(structures):
                built += put_edge_wall(site, quadrant, side) or put_edge_wall(site, quadrant, 1 - side)
                side = 1 - side
        if built < 4 * structures and layout < layouts - 1:
            continue
        _put_corners(site, turns, range(early, structures))
        if len(site.corners) == 4 * structures:
            break
    return site.corners


def _put_corners(site: Site, turns: int, which: range) -> None:
    for quadrant in range(4):
        mine = turns >> (3 * quadrant)
        for k in which:
            put_corner(site, quadrant, (mine % 4 + (3 if mine & 4 else 1) * k) % 4)


def make(config: RicochetConfig, random: int) -> Board:
    """Make a board with robots and a goal; `random` is the random state."""
    board = Board(config.size, random=random)
    corners = put_walls(config, board)
    board.goal = corners[board.draw(len(corners))] if corners else _draw_cell(board)
    board.target = board.draw(config.robots)
    while len(board.robots) < config.robots:
        cell = _draw_cell(board)
        if cell != board.goal and cell not in board.robots:
            board.robots.append(cell)
    return board


def _draw_cell(board: Board) -> Cell:
    while True:
        place = board.draw(board.size * board.size)
        cell = place % board.size, place // board.size
        if not is_centre(board.size, cell):
            return cell


def make_for_level(config: RicochetConfig, random: int) -> Board:
    """Make boards until one fits the level."""
    board = make(config, random)
    while config.level is not None:
        level = LEVELS[config.level]
        found = solve(board, level.longest)
        if found is not None and level.contains(len(found), fewest_robots(board, len(found))):
            break
        board = make(config, board.random)
    return board


def slide(board: Board, robots: Sequence[Cell], robot: int, direction: int) -> Cell:
    """Return where a robot stops: before a wall or another robot."""
    cell = robots[robot]
    while (cell, direction) not in board.walls and neighbour(cell, direction) not in robots:
        cell = neighbour(cell, direction)
    return cell


def play(config: RicochetConfig, board: Board, action: int) -> tuple[float, int]:
    """Play one action; return the reward and the cause of the episode's end."""
    rewards = config.rewards
    board.steps += 1
    robot, direction = divmod(action, 4)
    if robot < config.robots:
        board.robots[robot] = slide(board, board.robots, robot, direction)
        if board.robots[board.target] == board.goal:
            return rewards.step + rewards.solved, SOLVED
    return rewards.step, TIMEOUT if board.steps >= config.max_steps else RUNNING


def solve(board: Board, max_moves: int, movers: Sequence[int] | None = None) -> list[int] | None:
    """Return a shortest solution by breadth-first search; None if it takes more than `max_moves`."""
    robots = range(len(board.robots)) if movers is None else movers
    start = tuple(board.robots)
    path_to: dict[tuple[Cell, ...], list[int]] = {start: []}
    queue = deque([start])
    while queue:
        at = queue.popleft()
        if len(path_to[at]) == max_moves:
            return None
        for action in (4 * robot + direction for robot in robots for direction in range(4)):
            robot, direction = divmod(action, 4)
            after = (*at[:robot], slide(board, at, robot, direction), *at[robot + 1 :])
            if after not in path_to:
                path_to[after] = [*path_to[at], action]
                if after[board.target] == board.goal:
                    return path_to[after]
                queue.append(after)
    return None


def fewest_robots(board: Board, length: int) -> int:
    """Return the smallest number of robots that can solve the board in `length` moves."""
    robots = range(len(board.robots))
    for count in robots:
        for bits in range(1 << len(board.robots)):
            movers = [robot for robot in robots if bits >> robot & 1]
            if len(movers) == count + 1 and (found := solve(board, length, movers)) and len(found) == length:
                return count + 1
    raise ValueError(f"no {length} moves solve it")


def observe(config: RicochetConfig, board: Board) -> NDArray[np.uint8] | NDArray[np.float32]:
    """Return the observation, except for `rgb`: planes uint8 [C, g, g] or numbers float32 [F]."""
    if config.observation == "symbolic":
        return observe_numbers(board)
    size, count = config.size, config.robots
    planes = np.zeros((config.planes, size, size), np.uint8)
    for (x, y), direction in board.walls:
        planes[direction, y, x] = 1
    marks = [board.goal, board.robots[board.target], *board.robots]
    if config.observation == "stops":
        marks += [slide(board, board.robots, robot, direction) for robot in range(count) for direction in range(4)]
    for plane, (x, y) in enumerate(marks, start=4):
        planes[plane, y, x] = 1
    return planes


def observe_numbers(board: Board) -> NDArray[np.float32]:
    """Return goal x and y, the target robot, the robots' x and y, and how far each slides up, right, down, left."""
    count = len(board.robots)
    numbers: list[float] = [*board.goal]
    distances: list[float] = []
    for robot, (x, y) in enumerate(board.robots):
        for direction in range(4):
            stop = slide(board, board.robots, robot, direction)
            distances.append(abs(stop[0] - x) + abs(stop[1] - y))
    which = np.array([robot == board.target for robot in range(count)], np.float32)
    scale = np.float32(1 / (board.size - 1))
    places = np.array([place for cell in board.robots for place in cell], np.float32)
    return np.concatenate(
        [np.array(numbers, np.float32) * scale, which, places * scale, np.array(distances, np.float32) * scale]
    )


def pack(boards: Sequence[Board]) -> Puzzles:
    """Return boards of one size as arrays."""
    walls = np.zeros((len(boards), 256), np.uint8)
    for i, board in enumerate(boards):
        for cell, direction in board.walls:
            walls[i, cell_number(cell)] |= 1 << direction
    robots = np.array([[cell_number(cell) for cell in board.robots] for board in boards])
    goal, target = [cell_number(board.goal) for board in boards], [board.target for board in boards]
    return unsolved(boards[0].size, walls, robots, np.array(goal), np.array(target))


def cell_number(cell: Cell) -> int:
    """Return the number that the kernels use for a cell."""
    return 16 * cell[1] + cell[0]


def parse(text: str) -> Board:
    """Parse a board from the text that `render.write` writes: `A` to `D` robots, a lower-case letter that robot's goal.

    A cell is two characters wide and one line high, with a line of `+--+` above and below, `|` left and right; where
    there is no wall there are spaces.
    """
    lines = [line for line in text.strip("\n").splitlines() if line[:1] in "+|"]
    size = len(lines) // 2
    board, robots = Board(size), {}
    for y in range(size):
        for x in range(size):
            sides = (lines[2 * y][3 * x + 1], lines[2 * y + 1][3 * x + 3], lines[2 * y + 2][3 * x + 1])
            present = (*sides, lines[2 * y + 1][3 * x])
            board.walls |= {((x, y), direction) for direction, sign in enumerate(present) if sign != " "}
            for letter in lines[2 * y + 1][3 * x + 1 : 3 * x + 3].strip(" ."):
                if letter.isupper():
                    robots["ABCD".index(letter)] = (x, y)
                else:
                    board.goal, board.target = (x, y), "abcd".index(letter)
    board.robots = [robots[robot] for robot in sorted(robots)]
    return board
