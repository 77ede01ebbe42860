"""The kernel gives the same results as the plain-Python reference, with all options."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numba")

from numba import njit

from hotloop.training.envs import numba_tools
from hotloop.training.envs.snake import bits, reference
from hotloop.training.envs.snake.config import CAUSES, FEATURES, RUNNING, TIMEOUT, SnakeConfig
from hotloop.training.envs.snake.vector import SnakeVectorEnv

OPTIONS = st.fixed_dictionaries(
    {
        "board": st.sampled_from([5, 6, 7, 10, 13, 63, 64]),
        "features": st.sampled_from(list(FEATURES)),
        "actions": st.sampled_from(["relative", "absolute"]),
        "tail_free": st.booleans(),
        "max_steps": st.sampled_from([7, 40, 1000]),
    }
)
SMALL_OPTIONS = OPTIONS.filter(lambda options: options["board"] <= 10)
MASK = (1 << 64) - 1


def careful_action(config: SnakeConfig, game: reference.Game, rng: random.Random) -> int:
    """Mostly move towards the food and avoid death, so that snakes grow and die of every cause."""
    actions = list(range(3 if config.actions == "relative" else 4))
    rng.shuffle(actions)
    if rng.random() < 0.03:
        return actions[0]

    def cost(action: int) -> tuple[bool, int]:
        cell = reference.neighbour(game.head, reference._next_heading(config, game.heading, action))
        assert game.food is not None
        return reference.is_fatal(config, game, cell), reference._distance(cell, game.food)

    return min(actions, key=cost)


@settings(max_examples=50, deadline=None)
@given(OPTIONS, st.integers(0, 2**63), st.integers(0, 2**31))
def test_kernel_matches_reference(options: dict[str, Any], seed: int, chance: int) -> None:
    config = SnakeConfig(**options)
    rng = random.Random(chance)
    games = [reference.Game(random=reference.random_state(seed + i)) for i in range(3)]
    env = SnakeVectorEnv(3, **options)
    observations, _ = env.reset(seed=seed)
    for game, observation in zip(games, observations, strict=True):
        reference.start_episode(config, game)
        np.testing.assert_array_equal(observation, reference.observe(config, game))
    # The reference searches cell by cell, so a few steps on a large board take as long as many on a small one.
    for _ in range(60 if config.board <= 13 else 4):
        actions = np.array([careful_action(config, game, rng) for game in games])
        observations, rewards, terminated, truncated, info = env.step(actions)
        for i, game in enumerate(games):
            reward, cause = reference.play(config, game, int(actions[i]))
            assert rewards[i] == np.float32(reward)
            assert terminated[i] == (cause not in (RUNNING, TIMEOUT))
            assert truncated[i] == (cause == TIMEOUT)
            true_next = info.get("final_obs", observations)[i]
            np.testing.assert_array_equal(true_next, reference.observe(config, game))
            if cause != RUNNING:
                final = info["final_info"]
                assert final["cause"][i] == CAUSES[cause]
                assert (final["length"][i], final["steps"][i]) == (len(game.body), game.steps)
                reference.start_episode(config, game)
            assert info["_final_obs"][i] == (cause != RUNNING) if "final_obs" in info else cause == RUNNING
            np.testing.assert_array_equal(observations[i], reference.observe(config, game))
            assert (info["score"][i], info["steps"][i]) == (len(game.body) - 3, game.steps)


def random_snake(config: SnakeConfig, rng: random.Random) -> reference.Game:
    """Make a snake of random length by a walk that avoids itself; many end up tightly coiled."""
    head = (rng.randrange(config.board), rng.randrange(config.board))
    body, length = [head], rng.randint(3, config.cells)
    while len(body) < length:
        around = [reference.neighbour(body[-1], direction) for direction in range(4)]
        free = [cell for cell in around if reference.is_inside(config, cell) and cell not in body]
        if not free:
            break
        # Choosing the cell with the fewest exits keeps the walk close to its own path, so it gets long.
        rng.shuffle(free)
        body.append(min(free, key=lambda cell: sum(reference.neighbour(cell, each) not in body for each in range(4))))
    if len(body) < 3:
        return random_snake(config, rng)
    dx, dy = body[0][0] - body[1][0], body[0][1] - body[1][1]
    game = reference.Game(
        body, reference.STEPS.index((dx, dy)), steps=rng.randrange(config.max_steps), random=rng.getrandbits(64)
    )
    reference.place_food(config, game)
    return game


@settings(max_examples=300, deadline=None)
@given(SMALL_OPTIONS, st.integers(0, 2**31))
def test_kernel_matches_reference_for_coiled_snakes(options: dict[str, Any], chance: int) -> None:
    config = SnakeConfig(**options)
    rng = random.Random(chance)
    games = [game for game in (random_snake(config, rng) for _ in range(8)) if game.food is not None]
    if not games:
        return
    env = SnakeVectorEnv(len(games), **options)
    env.set_state(reference.pack(config, games))
    actions = np.array([careful_action(config, game, rng) for game in games])
    observations, rewards, _, _, info = env.step(actions)
    for i, game in enumerate(games):
        reward, cause = reference.play(config, game, int(actions[i]))
        assert rewards[i] == np.float32(reward)
        if cause != RUNNING:
            assert info["final_info"]["cause"][i] == CAUSES[cause]
        np.testing.assert_array_equal(info.get("final_obs", observations)[i], reference.observe(config, game))


def plain_fill(free: int, seeds: int) -> int:
    filled = seeds
    while (grown := (filled | filled << 1 | filled >> 1) & free) != filled:
        filled = grown
    return filled


@given(st.integers(0, MASK), st.integers(0, MASK))
def test_fill_runs(free: int, wanted: int) -> None:
    seeds = free & wanted
    assert int(bits.fill_runs(np.uint64(free), np.uint64(seeds))) == plain_fill(free, seeds)


@njit
def _count_and_lowest(value: np.uint64) -> tuple[int, int]:
    return numba_tools.count_ones(value), numba_tools.lowest_one(value)


@given(st.integers(1, MASK))
def test_count_ones_and_lowest_one(value: int) -> None:
    expected = value.bit_count(), (value & -value).bit_length() - 1
    assert _count_and_lowest(np.uint64(value)) == expected


@settings(max_examples=100, deadline=None)
@given(st.integers(5, 64), st.floats(0.3, 1.0), st.integers(0, 2**31))
def test_flood_fill_matches_a_plain_search(board: int, density: float, chance: int) -> None:
    rng = random.Random(chance)
    free = {(x, y) for x in range(board) for y in range(board) if rng.random() < density} | {(board // 2, board // 3)}
    start = rng.choice(sorted(free))
    reached, queue = {start}, [start]
    while queue:
        cell = queue.pop()
        new = {reference.neighbour(cell, direction) for direction in range(4)} & free - reached
        reached |= new
        queue += new
    scratch = np.zeros((4, board), np.uint64)
    for x, y in free:
        scratch[bits.FREE, y] |= np.uint64(1 << x)
    assert bits.flood(scratch, 0, *start) == len(reached)
    filled = {(x, y) for x in range(board) for y in range(board) if int(scratch[0, y]) >> x & 1}
    assert filled == reached
