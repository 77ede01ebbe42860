"""The game in plain Python, cell by cell: what `kernels` must do, in a form that can be read and checked by hand.

A property test plays both side by side. `pack` turns games into the arrays of `SnakeVectorEnv.set_state`, so that a
position made by hand can be played by the kernel.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hotloop.training.envs.snake.config import (
    ENHANCED,
    ENTRAPMENT,
    FLOOD,
    LEFT,
    LEVELS,
    NOWHERE,
    RIGHT,
    RUNNING,
    SELECTIVE,
    SELF,
    START_LENGTH,
    TIMEOUT,
    WALL,
    WIN,
    SnakeConfig,
)

Cell = tuple[int, int]
"""x, to the right, and y, down."""

STEPS: tuple[Cell, ...] = ((0, -1), (1, 0), (0, 1), (-1, 0))
"""Up, right, down, left."""

BITS = (1 << 64) - 1


@dataclass
class Game:
    """One game. The body has its head first."""

    body: list[Cell] = field(default_factory=list)
    heading: int = RIGHT
    food: Cell | None = None
    steps: int = 0
    random: int = 0

    @property
    def head(self) -> Cell:
        """Where the head is."""
        return self.body[0]

    @property
    def tail(self) -> Cell:
        """Where the tail is."""
        return self.body[-1]


def mix(z: int) -> int:
    """Mix 64 bits (the output function of SplitMix64)."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & BITS
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & BITS
    return z ^ (z >> 31)


def random_state(seed: int) -> int:
    """The state from which the random numbers of a seed begin."""
    return mix((seed + 0x9E3779B97F4A7C15) & BITS)


def place_food(config: SnakeConfig, game: Game) -> None:
    """Put the food on a free cell, counted line by line."""
    body = set(game.body)
    free = [(x, y) for y in range(config.board) for x in range(config.board) if (x, y) not in body]
    game.food = None
    if free:
        game.random = (game.random + 0x9E3779B97F4A7C15) & BITS
        game.food = free[((mix(game.random) >> 32) * len(free)) >> 32]


def begin(config: SnakeConfig, game: Game) -> None:
    """Begin an episode: length 3, head in the centre, heading right."""
    centre = config.board // 2
    game.body = [(centre - k, centre) for k in range(START_LENGTH)]
    game.heading, game.steps = RIGHT, 0
    place_food(config, game)


def beside(cell: Cell, way: int) -> Cell:
    """The cell one step further."""
    dx, dy = STEPS[way % 4]
    return cell[0] + dx, cell[1] + dy


def is_inside(config: SnakeConfig, cell: Cell) -> bool:
    """Is a cell on the board?"""
    return 0 <= cell[0] < config.board and 0 <= cell[1] < config.board


def is_fatal(config: SnakeConfig, game: Game, cell: Cell) -> bool:
    """Would the head die there?"""
    if not is_inside(config, cell):
        return True
    return cell in game.body and not (config.tail_free and cell == game.tail)


def play(config: SnakeConfig, game: Game, action: int) -> tuple[float, int]:
    """Play one action; return the reward and how the episode ended, if it did. A dead snake stays as it was."""
    rewards, head = config.rewards, game.head
    game.steps += 1
    way = _turned(config, game.heading, action)
    cell = beside(head, way)
    if is_fatal(config, game, cell):
        if all(is_fatal(config, game, beside(head, game.heading + turn)) for turn in (0, 1, 3)):
            return rewards.death, ENTRAPMENT
        return rewards.death, SELF if is_inside(config, cell) else WALL
    game.heading = way
    if cell == game.food:
        game.body = [cell, *game.body]
        place_food(config, game)
        reward = rewards.food
    else:
        assert game.food is not None
        game.body = [cell, *game.body[:-1]]
        reward = rewards.step + rewards.shaping * (_apart(head, game.food) - _apart(cell, game.food)) / config.board
    if len(game.body) == config.cells:
        return reward, WIN
    if game.steps >= config.max_steps:
        return reward + rewards.timeout, TIMEOUT
    return reward, RUNNING


def see(config: SnakeConfig, game: Game) -> NDArray[np.float32] | NDArray[np.uint8]:
    """What the agent sees: float32 [F], or uint8 [g, g, 3] for the grid."""
    if config.features == "grid":
        return see_grid(config, game)
    level, head, length = LEVELS[config.features], game.head, len(game.body)
    ways = [beside(head, game.heading + turn) for turn in (0, 1, 3)]
    straight, right, left = ways
    seen: list[float] = [is_fatal(config, game, cell) for cell in (straight, left, right)]
    seen += _directions(head, game.food)
    seen += [game.heading == way for way in range(LEFT)]
    if level >= FLOOD:
        open_cells = config.cells - length + config.tail_free
        seen += [len(region(config, game, cell)) / max(open_cells, 1) for cell in ways]
    if level >= SELECTIVE:
        seen += _directions(head, game.tail)
        seen += [is_tail_in_reach(config, game)]
    if level >= ENHANCED:
        seen += [_ways_on(config, game, cell) / 4 for cell in ways]
        seen += [_apart(head, game.tail) / (2 * (config.board - 1)), length / config.cells]
    return np.array(seen, np.float32)


def see_grid(config: SnakeConfig, game: Game) -> NDArray[np.uint8]:
    """Head, body and food, each on a board of its own."""
    grid = np.zeros((config.board, config.board, 3), np.uint8)
    for k, (x, y) in enumerate(game.body):
        grid[y, x, 0 if k == 0 else 1] = 1
    if game.food is not None:
        grid[game.food[1], game.food[0], 2] = 1
    return grid


def region(config: SnakeConfig, game: Game, start: Cell) -> set[Cell]:
    """All cells that can be reached from one on, itself included, without passing a fatal one."""
    if is_fatal(config, game, start):
        return set()
    found, waiting = {start}, deque([start])
    while waiting:
        cell = waiting.popleft()
        for way in range(4):
            further = beside(cell, way)
            if further not in found and not is_fatal(config, game, further):
                found.add(further)
                waiting.append(further)
    return found


def is_tail_in_reach(config: SnakeConfig, game: Game) -> bool:
    """Could the head get to the tail, if nothing but the head moved?"""
    around_tail = [beside(game.tail, way) for way in range(4)]
    if game.head in around_tail:
        return True
    return any(not region(config, game, beside(game.head, way)).isdisjoint(around_tail) for way in range(4))


def pack(config: SnakeConfig, games: Sequence[Game]) -> dict[str, NDArray[np.generic]]:
    """Return the state of games that are going on, for `SnakeVectorEnv.set_state`."""
    vitals = np.zeros((len(games), 7), np.int64)
    rows = np.zeros((len(games), config.board), np.uint64)
    body = np.zeros((len(games), config.cells), np.int16)
    for i, game in enumerate(games):
        length = len(game.body)
        food = NOWHERE if game.food is None else _number(game.food)
        random = int(np.uint64(game.random).astype(np.int64))
        vitals[i] = (length - 1, length, game.heading, food, game.steps, length == config.cells, random)
        for k, (x, y) in enumerate(reversed(game.body)):
            body[i, k] = _number((x, y))
            rows[i, y] |= np.uint64(1 << x)
    return {"vitals": vitals, "rows": rows, "body": body}


def _number(cell: Cell) -> int:
    return 64 * cell[1] + cell[0]


def _turned(config: SnakeConfig, heading: int, action: int) -> int:
    if config.actions == "relative":
        return (heading + (0, -1, 1)[action]) % 4
    return heading if action == (heading + 2) % 4 else action


def _apart(a: Cell, b: Cell) -> int:
    return abs(a[0] - b[0]) + abs(a[1] - b[1])


def _directions(head: Cell, cell: Cell | None) -> list[float]:
    if cell is None:
        return [0, 0, 0, 0]
    return [cell[1] < head[1], cell[0] > head[0], cell[1] > head[1], cell[0] < head[0]]


def _ways_on(config: SnakeConfig, game: Game, cell: Cell) -> int:
    if is_fatal(config, game, cell):
        return 0
    return sum(not is_fatal(config, game, beside(cell, way)) for way in range(4))
