"""Reference implementation of the game in plain Python, cell by cell, which can be checked by hand.

A property test compares `kernels` with it. `pack` converts games to the arrays of `SnakeVectorEnv.set_state`, so that
tests can play hand-made positions with the kernel.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hotloop.training.envs.snake import config as codes
from hotloop.training.envs.snake.config import SnakeConfig

Cell = tuple[int, int]
"""x, to the right, and y, down."""

STEPS: tuple[Cell, ...] = ((0, -1), (1, 0), (0, 1), (-1, 0))
"""Up, right, down, left."""

BITS = (1 << 64) - 1


@dataclass
class Game:
    """One game. The body has its head first."""

    body: list[Cell] = field(default_factory=list)
    heading: int = codes.RIGHT
    food: Cell | None = None
    steps: int = 0
    random: int = 0

    @property
    def head(self) -> Cell:
        """Cell of the head."""
        return self.body[0]

    @property
    def tail(self) -> Cell:
        """Cell of the tail."""
        return self.body[-1]


def mix(z: int) -> int:
    """Mix 64 bits (the output function of SplitMix64)."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & BITS
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & BITS
    return z ^ (z >> 31)


def random_state(seed: int) -> int:
    """Return the initial random state for a seed."""
    return mix((seed + 0x9E3779B97F4A7C15) & BITS)


def place_food(config: SnakeConfig, game: Game) -> None:
    """Put the food on a random free cell."""
    body = set(game.body)
    free = [(x, y) for y in range(config.board) for x in range(config.board) if (x, y) not in body]
    game.food = None
    if free:
        game.random = (game.random + 0x9E3779B97F4A7C15) & BITS
        game.food = free[((mix(game.random) >> 32) * len(free)) >> 32]


def start_episode(config: SnakeConfig, game: Game) -> None:
    """Start an episode: length 3, head in the centre, heading right."""
    centre = config.board // 2
    game.body = [(centre - k, centre) for k in range(codes.START_LENGTH)]
    game.heading, game.steps = codes.RIGHT, 0
    place_food(config, game)


def neighbour(cell: Cell, direction: int) -> Cell:
    """Return the next cell in a direction."""
    dx, dy = STEPS[direction % 4]
    return cell[0] + dx, cell[1] + dy


def is_inside(config: SnakeConfig, cell: Cell) -> bool:
    """Return whether a cell is on the board."""
    return 0 <= cell[0] < config.board and 0 <= cell[1] < config.board


def is_fatal(config: SnakeConfig, game: Game, cell: Cell) -> bool:
    """Return whether moving the head to a cell is fatal."""
    if not is_inside(config, cell):
        return True
    return cell in game.body and not (config.tail_free and cell == game.tail)


def play(config: SnakeConfig, game: Game, action: int) -> tuple[float, int]:
    """Play one action; return the reward and the cause of the episode's end. A snake that dies does not move."""
    rewards, head = config.rewards, game.head
    game.steps += 1
    direction = _next_heading(config, game.heading, action)
    cell = neighbour(head, direction)
    if is_fatal(config, game, cell):
        if all(is_fatal(config, game, neighbour(head, game.heading + turn)) for turn in (0, 1, 3)):
            return rewards.death, codes.ENTRAPMENT
        return rewards.death, codes.SELF if is_inside(config, cell) else codes.WALL
    game.heading = direction
    if cell == game.food:
        game.body = [cell, *game.body]
        place_food(config, game)
        reward = rewards.food
    else:
        assert game.food is not None
        game.body = [cell, *game.body[:-1]]
        reward = (
            rewards.step + rewards.shaping * (_distance(head, game.food) - _distance(cell, game.food)) / config.board
        )
    if len(game.body) == config.cells:
        return reward, codes.WIN
    if game.steps >= config.max_steps:
        return reward + rewards.timeout, codes.TIMEOUT
    return reward, codes.RUNNING


def observe(config: SnakeConfig, game: Game) -> NDArray[np.float32] | NDArray[np.uint8]:
    """Return the observation: float32 [F], or uint8 [g, g, 3] for the grid."""
    if config.features == "grid":
        return observe_grid(config, game)
    level, head, length = codes.LEVELS[config.features], game.head, len(game.body)
    cells = [neighbour(head, game.heading + turn) for turn in (0, 1, 3)]
    straight, right, left = cells
    features: list[float] = [is_fatal(config, game, cell) for cell in (straight, left, right)]
    features += _directions(head, game.food)
    features += [game.heading == direction for direction in range(codes.LEFT)]
    if level >= codes.FLOOD:
        open_cells = config.cells - length + config.tail_free
        features += [len(region(config, game, cell)) / max(open_cells, 1) for cell in cells]
    if level >= codes.SELECTIVE:
        features += _directions(head, game.tail)
        features += [is_tail_reachable(config, game)]
    if level >= codes.ENHANCED:
        features += [_exits(config, game, cell) / 4 for cell in cells]
        features += [_distance(head, game.tail) / (2 * (config.board - 1)), length / config.cells]
    return np.array(features, np.float32)


def observe_grid(config: SnakeConfig, game: Game) -> NDArray[np.uint8]:
    """Return head, body and food, each in its own channel."""
    grid = np.zeros((config.board, config.board, 3), np.uint8)
    for k, (x, y) in enumerate(game.body):
        grid[y, x, 0 if k == 0 else 1] = 1
    if game.food is not None:
        grid[game.food[1], game.food[0], 2] = 1
    return grid


def region(config: SnakeConfig, game: Game, start: Cell) -> set[Cell]:
    """Return all cells reachable from `start` without crossing a fatal one, `start` included."""
    if is_fatal(config, game, start):
        return set()
    reached, queue = {start}, deque([start])
    while queue:
        cell = queue.popleft()
        for direction in range(4):
            neighbour_cell = neighbour(cell, direction)
            if neighbour_cell not in reached and not is_fatal(config, game, neighbour_cell):
                reached.add(neighbour_cell)
                queue.append(neighbour_cell)
    return reached


def is_tail_reachable(config: SnakeConfig, game: Game) -> bool:
    """Return whether the head could reach the tail if the body stayed in place."""
    around_tail = [neighbour(game.tail, direction) for direction in range(4)]
    if game.head in around_tail:
        return True
    return any(
        not region(config, game, neighbour(game.head, direction)).isdisjoint(around_tail) for direction in range(4)
    )


def pack(config: SnakeConfig, games: Sequence[Game]) -> dict[str, NDArray[np.generic]]:
    """Return the state of running games, for `SnakeVectorEnv.set_state`."""
    vitals = np.zeros((len(games), 7), np.int64)
    rows = np.zeros((len(games), config.board), np.uint64)
    body = np.zeros((len(games), config.cells), np.int16)
    for i, game in enumerate(games):
        length = len(game.body)
        food = codes.NOWHERE if game.food is None else _cell_number(game.food)
        random = int(np.uint64(game.random).astype(np.int64))
        vitals[i] = (length - 1, length, game.heading, food, game.steps, length == config.cells, random)
        for k, (x, y) in enumerate(reversed(game.body)):
            body[i, k] = _cell_number((x, y))
            rows[i, y] |= np.uint64(1 << x)
    return {"vitals": vitals, "rows": rows, "body": body}


def _cell_number(cell: Cell) -> int:
    return 64 * cell[1] + cell[0]


def _next_heading(config: SnakeConfig, heading: int, action: int) -> int:
    if config.actions == "relative":
        return (heading + (0, -1, 1)[action]) % 4
    return heading if action == (heading + 2) % 4 else action


def _distance(a: Cell, b: Cell) -> int:
    return abs(a[0] - b[0]) + abs(a[1] - b[1])


def _directions(head: Cell, cell: Cell | None) -> list[float]:
    if cell is None:
        return [0, 0, 0, 0]
    return [cell[1] < head[1], cell[0] > head[0], cell[1] > head[1], cell[0] < head[0]]


def _exits(config: SnakeConfig, game: Game, cell: Cell) -> int:
    if is_fatal(config, game, cell):
        return 0
    return sum(not is_fatal(config, game, neighbour(cell, direction)) for direction in range(4))
