"""The kernel plays as the plain-Python twin does, in every form of the game."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
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
    """Mostly towards the food, mostly not into death, so that snakes grow and also die of everything."""
    actions = list(range(3 if config.actions == "relative" else 4))
    rng.shuffle(actions)
    if rng.random() < 0.03:
        return actions[0]

    def badness(action: int) -> tuple[bool, int]:
        cell = reference.beside(game.head, reference._turned(config, game.heading, action))
        assert game.food is not None
        return reference.is_fatal(config, game, cell), reference._apart(cell, game.food)

    return min(actions, key=badness)


@settings(max_examples=50, deadline=None)
@given(OPTIONS, st.integers(0, 2**63), st.integers(0, 2**31))
def test_kernel_plays_as_twin(options: dict[str, Any], seed: int, chance: int) -> None:
    config = SnakeConfig(**options)
    rng = random.Random(chance)
    games = [reference.Game(random=reference.random_state(seed + i)) for i in range(3)]
    env = SnakeVectorEnv(3, **options)
    observations, _ = env.reset(seed=seed)
    for game, seen in zip(games, observations, strict=True):
        reference.begin(config, game)
        np.testing.assert_array_equal(seen, reference.see(config, game))
    # The twin searches cell by cell: on a large board a few steps are as much work as many on a small one.
    for _ in range(60 if config.board <= 13 else 4):
        actions = np.array([careful_action(config, game, rng) for game in games])
        observations, rewards, terminated, truncated, info = env.step(actions)
        for i, game in enumerate(games):
            reward, cause = reference.play(config, game, int(actions[i]))
            assert rewards[i] == np.float32(reward)
            assert terminated[i] == (cause not in (RUNNING, TIMEOUT))
            assert truncated[i] == (cause == TIMEOUT)
            true_next = info.get("final_obs", observations)[i]
            np.testing.assert_array_equal(true_next, reference.see(config, game))
            if cause != RUNNING:
                final = info["final_info"]
                assert final["cause"][i] == CAUSES[cause]
                assert (final["length"][i], final["steps"][i]) == (len(game.body), game.steps)
                reference.begin(config, game)
            assert info["_final_obs"][i] == (cause != RUNNING) if "final_obs" in info else cause == RUNNING
            np.testing.assert_array_equal(observations[i], reference.see(config, game))
            assert (info["score"][i], info["steps"][i]) == (len(game.body) - 3, game.steps)


def random_snake(config: SnakeConfig, rng: random.Random) -> reference.Game:
    """A snake of any length, by a walk that seldom turns into itself: many of them lie in tight coils."""
    head = (rng.randrange(config.board), rng.randrange(config.board))
    body, wanted = [head], rng.randint(3, config.cells)
    while len(body) < wanted:
        ways = [cell for way in range(4) if reference.is_inside(config, cell := reference.beside(body[-1], way))]
        ways = [cell for cell in ways if cell not in body]
        if not ways:
            break
        # The cell with the fewest ways on keeps the walk close to what it has passed, so it gets long.
        rng.shuffle(ways)
        body.append(min(ways, key=lambda cell: sum(reference.beside(cell, way) not in body for way in range(4))))
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
def test_kernel_agrees_in_tight_coils(options: dict[str, Any], chance: int) -> None:
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
        np.testing.assert_array_equal(info.get("final_obs", observations)[i], reference.see(config, game))


def plain_fill(free: int, seeds: int) -> int:
    filled = seeds
    while (further := (filled | filled << 1 | filled >> 1) & free) != filled:
        filled = further
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
def test_flood_is_a_search(board: int, density: float, chance: int) -> None:
    rng = random.Random(chance)
    free = {(x, y) for x in range(board) for y in range(board) if rng.random() < density} | {(board // 2, board // 3)}
    start = rng.choice(sorted(free))
    found, waiting = {start}, [start]
    while waiting:
        cell = waiting.pop()
        further = {reference.beside(cell, way) for way in range(4)} & free - found
        found |= further
        waiting += further
    scratch = np.zeros((4, board), np.uint64)
    for x, y in free:
        scratch[bits.FREE, y] |= np.uint64(1 << x)
    assert bits.flood(scratch, 0, *start) == len(found)
    filled = {(x, y) for x in range(board) for y in range(board) if int(scratch[0, y]) >> x & 1}
    assert filled == found
