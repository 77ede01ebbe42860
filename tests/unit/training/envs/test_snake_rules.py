"""Moves, rewards and every cause of an episode's end, in hand-made positions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hotloop.training.envs.snake import Rewards, SnakeVectorEnv
from hotloop.training.envs.snake.config import DOWN, LEFT, RIGHT, UP, SnakeConfig
from hotloop.training.envs.snake.reference import Cell, Game, pack

STRAIGHT, TURN_LEFT, TURN_RIGHT = 0, 1, 2


def at(body: list[Cell], heading: int, food: Cell | None, steps: int = 0, **options: Any) -> SnakeVectorEnv:
    """Make one game in a given position, by default on a board of 5."""
    options = {"board": 5} | options
    env = SnakeVectorEnv(1, **options)
    env.set_state(pack(SnakeConfig(**options), [Game(body, heading, food, steps, random=7)]))
    return env


def play(env: SnakeVectorEnv, action: int) -> tuple[float, bool, bool, str | None, int]:
    """Play one action; return reward, terminated, truncated, cause and length."""
    _, reward, terminated, truncated, info = env.step(np.array([action]))
    final = info.get("final_info")
    cause, length = (final["cause"][0], final["length"][0]) if final else (None, info["length"][0])
    return float(reward[0]), bool(terminated[0]), bool(truncated[0]), cause, int(length)


def body_of(env: SnakeVectorEnv) -> list[Cell]:
    return [(cell & 63, cell >> 6) for cell in env.picture(0).body]


def test_start() -> None:
    env = SnakeVectorEnv(4, board=10)
    _, info = env.reset(seed=3)
    assert body_of(env) == [(5, 5), (4, 5), (3, 5)]
    assert env.picture(0).heading == RIGHT
    assert info["score"].tolist() == [0] * 4
    assert info["length"].tolist() == [3] * 4


@pytest.mark.parametrize(
    ("actions", "action", "head", "heading"),
    [
        ("relative", STRAIGHT, (3, 2), RIGHT),
        ("relative", TURN_LEFT, (2, 1), UP),
        ("relative", TURN_RIGHT, (2, 3), DOWN),
        ("absolute", UP, (2, 1), UP),
        ("absolute", RIGHT, (3, 2), RIGHT),
        ("absolute", DOWN, (2, 3), DOWN),
        ("absolute", LEFT, (3, 2), RIGHT),  # back is ignored
    ],
)
def test_moves(actions: str, action: int, head: Cell, heading: int) -> None:
    env = at([(2, 2), (1, 2), (0, 2)], RIGHT, (4, 4), actions=actions)
    play(env, action)
    assert body_of(env) == [head, (2, 2), (1, 2)]
    assert env.picture(0).heading == heading


@pytest.mark.parametrize(
    ("action", "reward"),
    [(STRAIGHT, -0.01 + 0.5 / 5), (TURN_LEFT, -0.01 - 0.5 / 5), (TURN_RIGHT, -0.01 + 0.5 / 5)],
)
def test_step_and_shaping(action: int, reward: float) -> None:
    env = at([(2, 2), (1, 2), (0, 2)], RIGHT, (4, 4))
    assert play(env, action) == (np.float32(reward), False, False, None, 3)


def test_food_grows_the_snake_and_is_placed_again() -> None:
    env = at([(2, 2), (1, 2), (0, 2)], RIGHT, (3, 2))
    assert play(env, STRAIGHT) == (10.0, False, False, None, 4)
    assert body_of(env) == [(3, 2), (2, 2), (1, 2), (0, 2)]
    food = env.picture(0).food
    assert (food & 63, food >> 6) not in body_of(env)


def test_wall() -> None:
    env = at([(4, 2), (3, 2), (2, 2)], RIGHT, (0, 0))
    assert play(env, STRAIGHT) == (-10.0, True, False, "wall", 3)


def test_self() -> None:
    # Heading up at (2, 2) with the body to its left; the cell to the right is free.
    env = at([(2, 2), (2, 3), (1, 3), (1, 2), (1, 1), (0, 1)], UP, (4, 4))
    assert play(env, TURN_LEFT) == (-10.0, True, False, "self", 6)


@pytest.mark.parametrize("action", [STRAIGHT, TURN_LEFT, TURN_RIGHT])
def test_entrapment_is_death_without_a_safe_direction(action: int) -> None:
    # The head in the corner (0, 0), heading up: walls ahead and to its left, its body to its right.
    env = at([(0, 0), (0, 1), (1, 1), (1, 0), (2, 0)], UP, (4, 4))
    assert play(env, action) == (-10.0, True, False, "entrapment", 5)


def test_tail_is_fatal_unless_free() -> None:
    square = [(2, 2), (2, 3), (1, 3), (1, 2)]
    assert play(at(square, UP, (4, 4)), TURN_LEFT)[1:4] == (True, False, "self")
    env = at(square, UP, (4, 4), tail_free=True)
    assert play(env, TURN_LEFT)[1:4] == (False, False, None)
    assert body_of(env) == [(1, 2), (2, 2), (2, 3), (1, 3)]
    # The bit rows still contain the cell that was left and entered in one step.
    assert play(env, TURN_LEFT)[3] is None
    assert env.get_state()["rows"][0].tolist() == [0, 0, 0b110, 0b110, 0]


def snake_over_all_but_last() -> list[Cell]:
    """Make a snake that fills a board of 5 row by row, with its head one step from the last cell, (4, 4)."""
    path = [(x if y % 2 == 0 else 4 - x, y) for y in range(5) for x in range(5)]
    return path[-2::-1]


def test_full_board_is_won() -> None:
    env = at(snake_over_all_but_last(), RIGHT, (4, 4))
    observations, reward, terminated, truncated, info = env.step(np.array([STRAIGHT]))
    assert (reward[0], terminated[0], truncated[0]) == (10.0, True, False)
    assert info["final_info"]["cause"][0] == "win"
    assert info["final_info"]["score"][0] == 22
    # Danger everywhere, food nowhere, heading right.
    assert info["final_obs"][0].tolist() == [1, 1, 1, 0, 0, 0, 0, 0, 1, 0]
    assert observations[0, :3].tolist() == [0, 0, 0]


def test_win_in_the_last_step_is_not_a_timeout() -> None:
    env = at(snake_over_all_but_last(), RIGHT, (4, 4), steps=999)
    assert play(env, STRAIGHT) == (10.0, True, False, "win", 25)


def test_timeout_is_truncated() -> None:
    env = at([(2, 2), (1, 2), (0, 2)], RIGHT, (4, 4), steps=998)
    assert play(env, STRAIGHT)[1:4] == (False, False, None)
    reward, terminated, truncated, cause, _ = play(env, TURN_RIGHT)
    assert (terminated, truncated, cause) == (False, True, "timeout")
    assert reward == np.float32(-0.01 + 0.5 / 5 - 5)


def test_death_in_the_last_step_is_not_a_timeout() -> None:
    env = at([(4, 2), (3, 2), (2, 2)], RIGHT, (0, 0), steps=999)
    assert play(env, STRAIGHT) == (-10.0, True, False, "wall", 3)


def test_food_in_the_last_step() -> None:
    env = at([(2, 2), (1, 2), (0, 2)], RIGHT, (3, 2), steps=999)
    assert play(env, STRAIGHT) == (5.0, False, True, "timeout", 4)


def test_other_rewards() -> None:
    rewards = Rewards(food=1, death=-100, step=0, shaping=0, timeout=-2)
    start = [(2, 2), (1, 2), (0, 2)]
    assert play(at(start, RIGHT, (3, 2), rewards=rewards), STRAIGHT)[0] == 1.0
    assert play(at(start, RIGHT, (4, 4), rewards=rewards), STRAIGHT)[0] == 0.0
    assert play(at(start, RIGHT, (4, 4), steps=999, rewards={"timeout": -2, "step": 0, "shaping": 0}), 0)[0] == -2.0
    assert play(at([(4, 2), (3, 2), (2, 2)], RIGHT, (0, 0), rewards=rewards), STRAIGHT)[0] == -100.0


def test_every_free_cell_gets_food() -> None:
    env = SnakeVectorEnv(2000, board=5)
    env.reset(seed=0)
    food = env.get_state()["vitals"][:, 3]
    counts = np.bincount((food >> 6) * 5 + (food & 63), minlength=25)
    assert counts[[10, 11, 12]].tolist() == [0, 0, 0]
    free = np.delete(counts, [10, 11, 12])
    # 2000 / 22 = 91 each; five standard deviations of that are 47.
    assert free.min() > 91 - 47
    assert free.max() < 91 + 47
