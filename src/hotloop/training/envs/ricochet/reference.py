"""The game in plain Python, cell by cell: what the kernels must do, in a form that can be read and checked by hand.

A property test plays both side by side. `read` makes a board of text, `pack` turns boards into the arrays that the
solver and the environment take, `solve` is a plain breadth-first search.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hotloop.training.envs.ricochet.config import LEVELS, RUNNING, SOLVED, TIMEOUT, RicochetConfig
from hotloop.training.envs.ricochet.puzzle import Puzzles, unsolved
from hotloop.training.envs.snake.reference import BITS, mix

Cell = tuple[int, int]
"""x, to the right, and y, down."""

Wall = tuple[Cell, int]
"""A cell and on which of its sides: up, right, down, left."""

WAYS: tuple[Cell, ...] = ((0, -1), (1, 0), (0, 1), (-1, 0))
TWELVE_BITS = 1 << 12


@dataclass
class Board:
    """A board, with its robots where they are now. A wall is noted at both of its cells."""

    size: int
    walls: set[Wall] = field(default_factory=set)
    robots: list[Cell] = field(default_factory=list)
    goal: Cell = (0, 0)
    target: int = 0
    steps: int = 0
    random: int = 0

    def draw(self, choices: int) -> int:
        """Draw a number from 0 up to `choices`."""
        self.random = (self.random + 0x9E3779B97F4A7C15) & BITS
        return ((mix(self.random) >> 32) * choices) >> 32


def beside(cell: Cell, way: int) -> Cell:
    """The cell one step further."""
    return cell[0] + WAYS[way][0], cell[1] + WAYS[way][1]


def around(cell: Cell) -> set[Cell]:
    """A cell and its four neighbours."""
    return {cell, *(beside(cell, way) for way in range(4))}


def is_inside(size: int, cell: Cell) -> bool:
    """Is a cell on the board?"""
    return 0 <= cell[0] < size and 0 <= cell[1] < size


def is_centre(size: int, cell: Cell) -> bool:
    """Is it one of the walled cells in the middle: four on an even board, one on an odd one?"""
    return all(place in ((size - 1) // 2, size // 2) for place in cell)


@dataclass
class Site:
    """A board while its walls are built: what is taken, and the cells of the Ls."""

    board: Board
    near_wall: set[Cell] = field(default_factory=set)
    """Cells that have a wall or whose neighbour has one: nothing is built around them."""
    taken: set[Cell] = field(default_factory=set)
    """Cells that have a wall, and neighbours of cells that something is built around: no new wall may touch them."""
    corners: list[Cell] = field(default_factory=list)

    def fits(self, homes: Sequence[Cell], walls: Sequence[Wall]) -> bool:
        """May these walls be built around these cells?"""
        touched = {cell for cell, _ in walls} | {beside(cell, way) for cell, way in walls}
        return self.near_wall.isdisjoint(homes) and self.taken.isdisjoint(touched)

    def build(self, homes: Sequence[Cell], walls: Sequence[Wall]) -> None:
        """Build walls around cells."""
        for cell, way in walls:
            self.board.walls |= {(cell, way), (beside(cell, way), (way + 2) % 4)}
            for each in (cell, beside(cell, way)):
                self.near_wall |= around(each)
                self.taken.add(each)
        for cell in homes:
            self.taken |= around(cell)

    def build_one_of(self, places: Sequence[tuple[Sequence[Cell], Sequence[Wall]]]) -> Cell | None:
        """Build at one of the places that are left, all equally likely; return its first cell."""
        left = [place for place in places if self.fits(*place)]
        if not left:
            return None
        homes, walls = left[self.board.draw(len(left))]
        self.build(homes, walls)
        return homes[0]


def frame(board: Board) -> Site:
    """Clear a board; build the border and the walls around the centre."""
    size = board.size
    cells = [(x, y) for y in range(size) for x in range(size)]
    outside = {(cell, way) for cell in cells for way in range(4) if not is_inside(size, beside(cell, way))}
    board.walls = outside
    site = Site(board)
    centre = [cell for cell in cells if is_centre(size, cell)]
    site.build([], [(cell, way) for cell in centre for way in range(4) if not is_centre(size, beside(cell, way))])
    return site


def put_edge_wall(site: Site, quadrant: int, side: int) -> bool:
    """Build a wall that juts from the border: on the upper or lower side (0) or the left or right one (1)."""
    size, half = site.board.size, site.board.size // 2
    right, low = quadrant & 1, quadrant >> 1
    first = size - half if (low if side else right) else 0
    depth = size - 1 if (right if side else low) else 0
    places = []
    for k in range(first, first + half - 1):
        if k in (0, size - 2):
            continue  # Beside a corner of the board.
        homes = [(depth, k), (depth, k + 1)] if side else [(k, depth), (k + 1, depth)]
        places.append((homes, [(homes[0], 2 if side else 1)]))
    return site.build_one_of(places) is not None


def put_corner(site: Site, quadrant: int, turn: int) -> None:
    """Build an L around a cell that is not at the border, where there is room."""
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
    """Make a board with its robots and its goal; `random` is the state of the random numbers."""
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
        if found is not None and level.holds(len(found), fewest_robots(board, len(found))):
            break
        board = make(config, board.random)
    return board


def slide(board: Board, robots: Sequence[Cell], robot: int, way: int) -> Cell:
    """Where a robot stops: before a wall or another robot."""
    cell = robots[robot]
    while (cell, way) not in board.walls and beside(cell, way) not in robots:
        cell = beside(cell, way)
    return cell


def play(config: RicochetConfig, board: Board, action: int) -> tuple[float, int]:
    """Play one action; return the reward and how the episode ended, if it did."""
    rewards = config.rewards
    board.steps += 1
    robot, way = divmod(action, 4)
    if robot < config.robots:
        board.robots[robot] = slide(board, board.robots, robot, way)
        if board.robots[board.target] == board.goal:
            return rewards.step + rewards.solved, SOLVED
    return rewards.step, TIMEOUT if board.steps >= config.max_steps else RUNNING


def solve(board: Board, most: int, movers: Sequence[int] | None = None) -> list[int] | None:
    """Return a shortest solution, by breadth-first search over all positions; None if it takes more than `most`."""
    robots = range(len(board.robots)) if movers is None else movers
    start = tuple(board.robots)
    came: dict[tuple[Cell, ...], list[int]] = {start: []}
    waiting = deque([start])
    while waiting:
        at = waiting.popleft()
        if len(came[at]) == most:
            return None
        for action in (4 * robot + way for robot in robots for way in range(4)):
            robot, way = divmod(action, 4)
            after = (*at[:robot], slide(board, at, robot, way), *at[robot + 1 :])
            if after not in came:
                came[after] = [*came[at], action]
                if after[board.target] == board.goal:
                    return came[after]
                waiting.append(after)
    return None


def fewest_robots(board: Board, length: int) -> int:
    """Return how few robots can do it in that many moves."""
    everyone = range(len(board.robots))
    for amount in everyone:
        for bits in range(1 << len(board.robots)):
            movers = [robot for robot in everyone if bits >> robot & 1]
            if len(movers) == amount + 1 and (found := solve(board, length, movers)) and len(found) == length:
                return amount + 1
    raise ValueError(f"no {length} moves solve it")


def see(config: RicochetConfig, board: Board) -> NDArray[np.uint8] | NDArray[np.float32]:
    """What the agent sees, unless it sees pictures: planes uint8 [C, g, g] or numbers float32 [F]."""
    if config.observation == "symbolic":
        return see_numbers(board)
    size, count = config.size, config.robots
    planes = np.zeros((config.planes, size, size), np.uint8)
    for (x, y), way in board.walls:
        planes[way, y, x] = 1
    marks = [board.goal, board.robots[board.target], *board.robots]
    if config.observation == "stops":
        marks += [slide(board, board.robots, robot, way) for robot in range(count) for way in range(4)]
    for plane, (x, y) in enumerate(marks, start=4):
        planes[plane, y, x] = 1
    return planes


def see_numbers(board: Board) -> NDArray[np.float32]:
    """Goal x and y, which robot is the target, the robots' x and y, how far each slides up, right, down, left."""
    count = len(board.robots)
    numbers: list[float] = [*board.goal]
    far: list[float] = []
    for robot, (x, y) in enumerate(board.robots):
        for way in range(4):
            stop = slide(board, board.robots, robot, way)
            far.append(abs(stop[0] - x) + abs(stop[1] - y))
    which = np.array([robot == board.target for robot in range(count)], np.float32)
    scale = np.float32(1 / (board.size - 1))
    places = np.array([place for cell in board.robots for place in cell], np.float32)
    return np.concatenate(
        [np.array(numbers, np.float32) * scale, which, places * scale, np.array(far, np.float32) * scale]
    )


def pack(boards: Sequence[Board]) -> Puzzles:
    """Return boards of one size as arrays."""
    walls = np.zeros((len(boards), 256), np.uint8)
    for i, board in enumerate(boards):
        for cell, way in board.walls:
            walls[i, number(cell)] |= 1 << way
    robots = np.array([[number(cell) for cell in board.robots] for board in boards])
    goal, target = [number(board.goal) for board in boards], [board.target for board in boards]
    return unsolved(boards[0].size, walls, robots, np.array(goal), np.array(target))


def number(cell: Cell) -> int:
    """The one number by which the kernels know a cell."""
    return 16 * cell[1] + cell[0]


def read(text: str) -> Board:
    """Make a board of text as `render.write` writes it: `A` to `D` robots, a small letter the goal of that robot.

    A cell is two characters wide and one line high, with a line of `+--+` above and below, `|` left and right; where
    there is no wall there are spaces.
    """
    lines = [line for line in text.strip("\n").splitlines() if line[:1] in "+|"]
    size = len(lines) // 2
    board, robots = Board(size), {}
    for y in range(size):
        for x in range(size):
            beside_it = (lines[2 * y][3 * x + 1], lines[2 * y + 1][3 * x + 3], lines[2 * y + 2][3 * x + 1])
            present = (*beside_it, lines[2 * y + 1][3 * x])
            board.walls |= {((x, y), way) for way, sign in enumerate(present) if sign != " "}
            for letter in lines[2 * y + 1][3 * x + 1 : 3 * x + 3].strip(" ."):
                if letter.isupper():
                    robots["ABCD".index(letter)] = (x, y)
                else:
                    board.goal, board.target = (x, y), "abcd".index(letter)
    board.robots = [robots[robot] for robot in sorted(robots)]
    return board
