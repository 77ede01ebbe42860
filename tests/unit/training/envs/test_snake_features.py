"""Every feature by its index, in hand-made positions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hotloop.training.envs.snake import SnakeVectorEnv
from hotloop.training.envs.snake.config import DOWN, LEFT, RIGHT, UP, SnakeConfig
from hotloop.training.envs.snake.reference import Cell, Game, pack


def observe(body: list[Cell], heading: int, food: Cell, **options: Any) -> np.ndarray:
    """Return the observation of a position; the kernel observes without playing."""
    options = {"board": 5, "features": "enhanced"} | options
    env = SnakeVectorEnv(2, **options)
    game = Game(body, heading, food)
    env.set_state(pack(SnakeConfig(**options), [game, game]))
    return env.reset(options={"reset_mask": np.array([False, True])})[0][0]


def exactly(values: list[float]) -> list[float]:
    return np.array(values, np.float32).tolist()


def test_straight_snake() -> None:
    # . . . . .
    # . . . . .
    # o o > . .
    # . . . . .
    # . . * . .
    features = observe([(2, 2), (1, 2), (0, 2)], RIGHT, (2, 4))
    assert features[0:3].tolist() == [0, 0, 0]
    assert features[3:7].tolist() == [0, 0, 1, 0]  # food below
    assert features[7:10].tolist() == [0, 1, 0]  # heading right
    assert features[10:13].tolist() == [1, 1, 1]  # all 22 free cells from everywhere
    assert features[13:17].tolist() == [0, 0, 0, 1]  # tail to the left
    assert features[17] == 1
    # From (3, 2): up, right, down are free, back is the head. From (2, 3) and (2, 1): right and left and on.
    assert features[18:21].tolist() == [0.75, 0.75, 0.75]
    assert features[21] == 2 / 8
    assert features[22] == np.float32(3 / 25)


@pytest.mark.parametrize(
    ("heading", "neck", "flags"),
    [(UP, (2, 3), [1, 0, 0]), (RIGHT, (1, 2), [0, 1, 0]), (DOWN, (2, 1), [0, 0, 1]), (LEFT, (3, 2), [0, 0, 0])],
)
def test_heading(heading: int, neck: Cell, flags: list[float]) -> None:
    tail = (2 * neck[0] - 2, 2 * neck[1] - 2)
    assert observe([(2, 2), neck, tail], heading, (0, 0))[7:10].tolist() == flags


def test_danger_is_straight_left_right() -> None:
    up_the_right_wall = observe([(4, 2), (4, 3), (4, 4)], UP, (0, 0))
    assert up_the_right_wall[0:3].tolist() == [0, 0, 1]
    up_the_left_wall = observe([(0, 2), (0, 3), (0, 4)], UP, (4, 0))
    assert up_the_left_wall[0:3].tolist() == [0, 1, 0]
    into_the_top = observe([(2, 0), (2, 1), (2, 2)], UP, (4, 4))
    assert into_the_top[0:3].tolist() == [1, 0, 0]


@pytest.mark.parametrize(
    ("food", "flags"),
    [((2, 0), [1, 0, 0, 0]), ((4, 0), [1, 1, 0, 0]), ((4, 2), [0, 1, 0, 0]), ((0, 4), [0, 0, 1, 1])],
)
def test_food_is_up_right_down_left(food: Cell, flags: list[float]) -> None:
    assert observe([(2, 2), (2, 3), (2, 4)], UP, food)[3:7].tolist() == flags


# . . ^ . .      The snake separates two regions; the head at (2, 0) heads up, against the border.
# . . o . .
# . . o . .
# . . o . .
# . . o . *
WALL_OF_SNAKE = [(2, 0), (2, 1), (2, 2), (2, 3), (2, 4)]


def test_free_space_on_either_side() -> None:
    features = observe([*WALL_OF_SNAKE, (1, 4)], UP, (4, 4))
    # straight is the wall; right 10 of 19 free cells, left 9 of 19.
    assert features[10:13].tolist() == exactly([0, 10 / 19, 9 / 19])
    assert features[17] == 1  # the tail at (1, 4) touches the left room


def test_unreachable_tail() -> None:
    # . o o . .
    # . v o . .      The head at (1, 1) can only go to (0, 1) and on to (0, 0).
    # o o o . .
    # o T . . .
    # . . . . *
    coil = [(1, 1), (1, 0), (2, 0), (2, 1), (2, 2), (1, 2), (0, 2), (0, 3), (1, 3)]
    features = observe(coil, DOWN, (4, 4))
    # Heading down at (1, 1): below is body, to the right (west) is (0, 1), to the left (east) is body.
    assert features[0:3].tolist() == [1, 1, 0]
    assert features[10:13].tolist() == exactly([0, 2 / 16, 0])  # (0, 1) and (0, 0)
    assert features[17] == 0
    assert features[18:21].tolist() == [0, 0.25, 0]  # from (0, 1) only (0, 0)
    assert features[13:17].tolist() == [0, 0, 1, 0]  # the tail at (1, 3) is straight below
    assert features[21] == 2 / 8


def test_free_tail_counts_as_free_cell() -> None:
    square = [(2, 2), (2, 3), (1, 3), (1, 2)]
    closed = observe(square, UP, (4, 4))
    assert closed[0:3].tolist() == [0, 1, 0]
    assert closed[12] == 0
    free = observe(square, UP, (4, 4), tail_free=True)
    assert free[0:3].tolist() == [0, 0, 0]
    assert free[10:13].tolist() == [1, 1, 1]  # 22 of 22, the tail among them
    assert closed[17] == free[17] == 1


def test_smaller_sets_are_prefixes_of_larger_ones() -> None:
    whole = observe([*WALL_OF_SNAKE, (1, 4)], UP, (4, 4))
    for name, size in (("basic", 10), ("flood", 13), ("selective", 18)):
        part = observe([*WALL_OF_SNAKE, (1, 4)], UP, (4, 4), features=name)
        assert part.shape == (size,)
        assert part.tolist() == whole[:size].tolist()


def test_grid() -> None:
    grid = observe([(2, 2), (1, 2), (0, 2)], RIGHT, (4, 1), features="grid")
    assert grid.shape == (5, 5, 3)
    assert grid.dtype == np.uint8
    assert np.argwhere(grid).tolist() == [[1, 4, 2], [2, 0, 1], [2, 1, 1], [2, 2, 0]]
