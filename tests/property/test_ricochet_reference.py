"""The kernels generate, play, observe, draw and solve boards exactly like the Python reference."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("gymnasium")

from hotloop.training.envs.ricochet import RicochetVectorEnv, raster, raster_reference, reference, render, solve
from hotloop.training.envs.ricochet.config import (
    CAUSES,
    LARGEST,
    RUNNING,
    SMALLEST,
    SOLVED,
    TIMEOUT,
    UNKNOWN,
    RicochetConfig,
)
from hotloop.training.envs.snake.reference import random_state

SIZES, ROBOTS = st.integers(SMALLEST, LARGEST), st.integers(1, 4)
OPTIONS = st.fixed_dictionaries(
    {
        "size": SIZES,
        "robots": ROBOTS,
        "observation": st.sampled_from(["planes", "stops", "symbolic"]),
        "noop": st.booleans(),
        "max_steps": st.sampled_from([1, 5, 20]),
    }
)


def reference_observation(config: RicochetConfig, board: reference.Board) -> np.ndarray:
    return (
        raster_reference.draw(board, raster.canvas(config.size, 128))
        if config.observation == "rgb"
        else reference.observe(config, board)
    )


def compare_with_reference(options: dict[str, Any], seed: int, chance: int, steps: int) -> None:
    config, rng = RicochetConfig(**options), random.Random(chance)
    env = RicochetVectorEnv(2, **options)
    boards = [reference.make_for_level(config, random_state(seed + i)) for i in range(2)]
    observations, _ = env.reset(seed=seed)
    for board, observation in zip(boards, observations, strict=True):
        np.testing.assert_array_equal(observation, reference_observation(config, board))
    for _ in range(steps):
        # Half of the actions move the target robot, so that boards get solved.
        actions = np.array(
            [rng.choice([rng.randrange(config.actions), 4 * board.target + rng.randrange(4)]) for board in boards]
        )
        observations, rewards, terminated, truncated, info = env.step(actions)
        for i, board in enumerate(boards):
            reward, cause = reference.play(config, board, int(actions[i]))
            assert rewards[i] == np.float32(reward)
            assert (terminated[i], truncated[i]) == (cause == SOLVED, cause == TIMEOUT)
            if cause != RUNNING:
                np.testing.assert_array_equal(info["final_obs"][i], reference_observation(config, board))
                assert info["final_info"]["cause"][i] == CAUSES[cause]
                assert info["final_info"]["steps"][i] == board.steps
                boards[i] = board = reference.make_for_level(config, board.random)
            np.testing.assert_array_equal(observations[i], reference_observation(config, board))
            assert info["steps"][i] == board.steps


@settings(max_examples=40, deadline=None)
@given(OPTIONS, st.integers(0, 2**63), st.integers(0, 2**31))
def test_kernel_matches_reference(options: dict[str, Any], seed: int, chance: int) -> None:
    compare_with_reference(options, seed, chance, steps=30)


@settings(max_examples=8, deadline=None)
@given(SIZES, ROBOTS, st.integers(0, 2**63), st.integers(0, 2**31))
def test_images_match_reference(size: int, robots: int, seed: int, chance: int) -> None:
    compare_with_reference(
        {"size": size, "robots": robots, "observation": "rgb", "max_steps": 3}, seed, chance, steps=5
    )


@settings(max_examples=5, deadline=None)
@given(st.sampled_from([(0, 16, 4), (0, 9, 3), (1, 9, 1), (3, 8, 2)]), st.integers(0, 2**63))
def test_generated_boards_match_reference(case: tuple[int, int, int], seed: int) -> None:
    level, size, robots = case
    compare_with_reference({"level": level, "size": size, "robots": robots, "max_steps": 4}, seed, seed % 1000, steps=6)


@settings(max_examples=60, deadline=None)
@given(SIZES, ROBOTS, st.integers(0, 2**63))
def test_generated_boards_follow_the_rules(size: int, robots: int, seed: int) -> None:
    """Check the walls against the rules in docs/envs-ricochet.md."""
    env = RicochetVectorEnv(1, size=size, robots=robots)
    env.reset(seed=seed)
    board = reference.parse(render.write(env.puzzles()))
    inner = {
        (cell, direction)
        for cell, direction in board.walls
        if reference.is_inside(size, reference.neighbour(cell, direction))
    }
    assert all((reference.neighbour(cell, direction), (direction + 2) % 4) in inner for cell, direction in inner)
    centre = {(x, y) for x in range(size) for y in range(size) if reference.is_centre(size, (x, y))}
    around_centre = {wall for wall in inner if wall[0] in centre or reference.neighbour(*wall) in centre}
    assert len(around_centre) == 2 * (8 if size % 2 == 0 else 4)
    border_walls, corners = structures(board, inner - around_centre)
    assert_walls_do_not_meet(inner, around_centre, border_walls, corners)
    assert not centre & {board.goal, *board.robots}
    assert len({*board.robots, board.goal}) == robots + 1
    assert not corners or board.goal in corners
    assert all(0 < x < size - 1 and 0 < y < size - 1 for x, y in corners)
    assert all(not {1, size - 1} & {place for place in middle if place not in (0, size)} for middle in border_walls)
    limit = 4 if size >= 10 else 2
    half = size // 2
    for right in (False, True):
        for low in (False, True):
            own = [
                turn
                for (x, y), turn in corners.items()
                if (x >= size - half if right else x < half) and (y >= size - half if low else y < half)
            ]
            assert len(own) <= limit
            assert len(own) - len(set(own)) == 0
    if size == LARGEST:
        assert (len(border_walls), len(corners)) == (16, 16)
    groups = [{cell} for cell in corners] + [set(cells) for cells in border_walls.values()]
    assert all(not any(reference.around(cell) & b for cell in a) for a in groups for b in groups if a is not b)


def assert_walls_do_not_meet(
    inner: set[reference.Wall],
    around_centre: set[reference.Wall],
    border_walls: dict[reference.Cell, tuple[reference.Cell, reference.Cell]],
    corners: dict[reference.Cell, int],
) -> None:
    """Check that no two structures share an end of a wall or a cell."""
    built = [around_centre]
    built += [
        {wall for wall in inner if {wall[0], reference.neighbour(*wall)} == set(pair)} for pair in border_walls.values()
    ]
    built += [
        {wall for wall in inner if (wall in sides) or (reference.neighbour(*wall), (wall[1] + 2) % 4) in sides}
        for cell, turn in corners.items()
        for sides in [{(cell, turn), (cell, (turn + 1) % 4)}]
    ]
    points = [set().union(*(ends(*wall) for wall in walls)) for walls in built]
    cells = [{wall[0] for wall in walls} for walls in built]
    for kind in (points, cells):
        assert len(set().union(*kind)) == sum(len(each) for each in kind)


def ends(cell: reference.Cell, direction: int) -> set[reference.Cell]:
    """Return the two ends of a wall as grid points."""
    (x, y), (right, down) = cell, (cell[0] + 1, cell[1] + 1)
    return ({(x, y), (right, y)}, {(right, y), (right, down)}, {(x, down), (right, down)}, {(x, y), (x, down)})[
        direction
    ]


def structures(
    board: reference.Board, walls: set[reference.Wall]
) -> tuple[dict[reference.Cell, tuple[reference.Cell, reference.Cell]], dict[reference.Cell, int]]:
    """Return the walls at the border, by their end there, and the orientation of the Ls, by their cell."""
    size, border_walls = board.size, {}
    for cell, direction in walls:
        border = [point for point in ends(cell, direction) if 0 in point or size in point]
        if border:
            border_walls[border[0]] = (cell, reference.neighbour(cell, direction))
    at_border = {
        wall
        for wall in walls
        if any(set(wall[:1]) <= set(pair) and reference.neighbour(*wall) in pair for pair in border_walls.values())
    }
    rest = walls - at_border
    sides: dict[reference.Cell, set[int]] = {}
    for cell, direction in rest:
        sides.setdefault(cell, set()).add(direction)
    corners = {}
    for cell, directions in sides.items():
        if len(directions) == 2:
            turn = next(turn for turn in range(4) if directions == {turn, (turn + 1) % 4})
            corners[cell] = turn
    assert len(rest) == 4 * len(corners)  # Each L is two walls, stored for both cells, and there are no other walls.
    return border_walls, corners


@settings(max_examples=40, deadline=None)
@given(st.integers(SMALLEST, 9), st.integers(1, 3), st.integers(0, 2**63))
def test_solver_matches_a_plain_search(size: int, robots: int, seed: int) -> None:
    board = reference.make(RicochetConfig(size=size, robots=robots), seed)
    most = {1: 12, 2: 6, 3: 4}[robots]
    expected, found = reference.solve(board, most), solve(reference.pack([board]), most=most)
    if expected is None:
        assert found is None
        return
    assert found is not None
    assert found.length == len(expected) == len(found.actions)
    assert found.moved == reference.fewest_robots(board, found.length) == len({action // 4 for action in found.actions})
    for k, action in enumerate(found.actions):
        robot, direction = divmod(action, 4)
        board.robots[robot] = reference.slide(board, board.robots, robot, direction)
        assert (board.robots[board.target] == board.goal) == (k == found.length - 1)


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 2**63))
def test_solver_on_full_size_boards(seed: int) -> None:
    board = reference.make(RicochetConfig(), seed)
    expected, found = reference.solve(board, 3), solve(reference.pack([board]), most=3)
    assert (found.length if found else UNKNOWN) == (len(expected) if expected else UNKNOWN)


@settings(max_examples=30, deadline=None)
@given(SIZES, ROBOTS, st.integers(0, 2**63))
def test_board_survives_conversion_to_text_and_back(size: int, robots: int, seed: int) -> None:
    board = reference.make(RicochetConfig(size=size, robots=robots), seed)
    again = reference.parse(render.write(reference.pack([board])))
    assert (again.walls, again.robots, again.goal, again.target) == (
        board.walls,
        board.robots,
        board.goal,
        board.target,
    )
