"""Pictures of a game."""

from __future__ import annotations

import numpy as np
import pytest

from hotloop.training.envs.snake import SnakeEnv, SnakeVectorEnv
from hotloop.training.envs.snake.config import NOWHERE, RIGHT, UP
from hotloop.training.envs.snake.render import FOOD_COLOUR, GROUND, HEAD_COLOUR, Picture, draw, write


def cells(*places: tuple[int, int]) -> tuple[int, ...]:
    return tuple(64 * y + x for x, y in places)


CORNER = Picture(5, cells((2, 1), (2, 2), (1, 2), (0, 2)), UP, *cells((4, 3)), steps=17)


def test_text() -> None:
    assert write(CORNER) == (". . . . .\n. . ^ . .\no o o . .\n. . . . *\n. . . . .\nscore 1  step 17")


def test_text_without_food() -> None:
    assert "*" not in write(CORNER._replace(food=NOWHERE))


def test_pixels() -> None:
    pixels = draw(CORNER)
    assert pixels.shape == (200, 200, 3)
    assert pixels.dtype == np.uint8
    assert pixels[60, 100].tolist() == HEAD_COLOUR.astype(int).tolist()  # between the eyes
    assert pixels[142, 182].tolist() == list(FOOD_COLOUR)
    assert pixels[20, 20].tolist() == GROUND[0].astype(int).tolist()
    assert pixels[20, 60].tolist() == GROUND[1].astype(int).tolist()
    # The joint between two body cells is covered; the corner outside the bend is not.
    assert pixels[100, 80, 1] > 90
    assert pixels[118, 118].tolist() == GROUND[0].astype(int).tolist()


@pytest.mark.parametrize(("board", "side"), [(5, 200), (10, 400), (20, 400), (64, 512)])
def test_size(board: int, side: int) -> None:
    assert draw(Picture(board, cells((2, 2), (1, 2), (0, 2)), RIGHT, NOWHERE, 0)).shape == (side, side, 3)


def test_every_game_is_rendered() -> None:
    env = SnakeVectorEnv(3, board=5, render_mode="ansi")
    env.reset(seed=1)
    frames = env.render()
    assert frames is not None
    assert [frame.splitlines()[2][:5] for frame in frames] == ["o o >"] * 3
    assert SnakeVectorEnv(3).render() is None


def test_single_game_is_rendered() -> None:
    env = SnakeEnv(board=5, render_mode="rgb_array")
    env.reset(seed=1)
    assert env.render().shape == (200, 200, 3)
