"""Sliding, stopping, solving, rewards, ends and observations, on hand-made boards."""

from __future__ import annotations

import numpy as np
import pytest

from hotloop.errors import HotloopError
from hotloop.training.envs.ricochet import Puzzles, RicochetEnv, RicochetVectorEnv, Solution, reference, render, solve
from hotloop.training.envs.ricochet.board_kernels import find_stops
from hotloop.training.envs.ricochet.puzzle import unsolved
from hotloop.training.envs.ricochet.solver import LAST_NUMBER, new_search, solve_board

UP, RIGHT, DOWN, LEFT = range(4)
A, B, C = 0, 4, 8
"""First actions of the robots."""

OPEN = """
+--+--+--+--+--+
|A  .  .  .  B |
+  +  +  +  +  +
|.  .  .  .  . |
+  +  +--+  +  +
|.  . |. |.  . |
+  +  +--+  +  +
|.  .  .  .  . |
+  +  +  +  +  +
|.  .  a  .  . |
+--+--+--+--+--+
"""
"""A has to reach the middle of the lower side, where only another robot can stop it."""

WALLED = """
+--+--+--+--+--+--+
|.  .  .  .  .  . |
+  +--+  +  +  +  +
|.  A  .  .  .  . |
+  +  +--+--+  +  +
|.  . |.  . |.  . |
+  +  +  +  +  +  +
|.  . |.  . |.  . |
+  +  +--+--+  +  +
|.  .  . |b  .  . |
+  +  +  +--+  +  +
|B  .  .  .  .  C |
+--+--+--+--+--+--+
"""


def puzzle(text: str) -> Puzzles:
    return reference.pack([reference.parse(text)])


def start(text: str, **options: object) -> RicochetEnv:
    board = puzzle(text)
    env = RicochetEnv(size=board.size, robots=board.count, **options)
    env.reset(seed=1, options={"puzzles": board})
    return env


def places(env: RicochetEnv) -> list[tuple[int, int]]:
    return [(int(cell) % 16, int(cell) // 16) for cell in env.puzzles().robots[0]]


@pytest.mark.parametrize(
    ("actions", "expected"),
    [
        ([A + DOWN], [(0, 4), (4, 0)]),  # to the border
        ([A + RIGHT], [(3, 0), (4, 0)]),  # before a robot
        ([B + LEFT], [(0, 0), (1, 0)]),
        ([A + UP], [(0, 0), (4, 0)]),  # blocked: it stays
        ([A + RIGHT, A + DOWN], [(3, 4), (4, 0)]),
        ([A + RIGHT, B + DOWN, A + RIGHT], [(4, 0), (4, 4)]),
        ([B + DOWN, A + RIGHT, A + DOWN], [(4, 3), (4, 4)]),  # before a robot, downwards
        ([B + DOWN, B + LEFT, A + DOWN, B + UP], [(0, 3), (0, 4)]),  # blocked by a robot, upwards
    ],
)
def test_slides(actions: list[int], expected: list[tuple[int, int]]) -> None:
    env = start(OPEN)
    for action in actions:
        env.step(action)
    assert places(env) == expected


@pytest.mark.parametrize(
    ("actions", "expected"),
    [
        ([A + UP], (1, 1)),  # a wall above its cell
        ([A + LEFT, A + DOWN], (0, 4)),  # before B
        ([A + RIGHT, A + DOWN], (5, 4)),  # before C
        ([A + RIGHT, A + DOWN, A + LEFT], (3, 4)),  # a wall left of the goal; the goal is not A's
    ],
)
def test_walls_stop_robots(actions: list[int], expected: tuple[int, int]) -> None:
    env = start(WALLED)
    for action in actions:
        _, reward, terminated, _, _ = env.step(action)
        assert (reward, terminated) == (pytest.approx(-0.01), False)
    assert places(env)[0] == expected


def test_solving_ends_the_episode_with_its_reward() -> None:
    env = start(WALLED)
    # B up, right along the row to the border, down before C, left to the wall at the goal.
    for action in (B + UP, B + RIGHT, B + DOWN):
        _, reward, terminated, truncated, info = env.step(action)
        assert (reward, terminated, truncated) == (pytest.approx(-0.01), False, False)
        assert "cause" not in info
    _, reward, terminated, truncated, info = env.step(B + LEFT)
    assert (reward, terminated, truncated) == (pytest.approx(0.99), True, False)
    assert info == {"steps": 4, "optimal": -1, "cause": "solved"}


def test_passing_over_the_goal_does_not_solve() -> None:
    env = start(OPEN)
    env.step(A + DOWN)
    _, _, terminated, _, _ = env.step(A + RIGHT)
    assert not terminated
    assert places(env)[0] == (4, 4)


def test_timeout_and_solving_in_the_last_step() -> None:
    env = start(WALLED, max_steps=3)
    ends = [env.step(A + UP)[2:4] for _ in range(3)]
    assert ends == [(False, False), (False, False), (False, True)]
    env = start(WALLED, max_steps=4)
    last = [env.step(action) for action in (B + UP, B + RIGHT, B + DOWN, B + LEFT)][-1]
    assert last[2:4] == (True, False)


def test_noop() -> None:
    env = start(OPEN, noop=True)
    assert env.action_space.n == 9
    before = places(env)
    _, reward, _, _, info = env.step(8)
    assert (reward, info["steps"], places(env)) == (pytest.approx(-0.01), 1, before)
    with pytest.raises(HotloopError, match="action of board 0 is 8: give a whole number from 0 to 7"):
        start(OPEN).step(8)


def test_custom_rewards() -> None:
    env = start(WALLED, rewards={"step": -1.0, "solved": 5.0})
    assert [env.step(action)[1] for action in (B + UP, B + RIGHT, B + DOWN, B + LEFT)] == [-1.0, -1.0, -1.0, 4.0]


def test_planes() -> None:
    board = puzzle(OPEN)
    observation, _ = RicochetEnv(size=5, robots=2).reset(seed=1, options={"puzzles": board})
    assert observation.shape == (8, 5, 5)
    assert observation[UP].tolist() == [[1] * 5, [0] * 5, [0, 0, 1, 0, 0], [0, 0, 1, 0, 0], [0] * 5]
    assert observation[RIGHT].tolist()[2] == [0, 1, 1, 0, 1]
    assert observation[DOWN].tolist() == [[0] * 5, [0, 0, 1, 0, 0], [0, 0, 1, 0, 0], [0] * 5, [1] * 5]
    assert observation[LEFT].tolist()[2] == [1, 0, 1, 1, 0]
    for plane, (x, y) in ((4, (2, 4)), (5, (0, 0)), (6, (0, 0)), (7, (4, 0))):
        assert [tuple(reversed(place)) for place in np.argwhere(observation[plane]).tolist()] == [(x, y)]


def test_stops() -> None:
    observation, _ = RicochetEnv(size=5, robots=2, observation="stops").reset(seed=1, options={"puzzles": puzzle(OPEN)})
    assert observation.shape == (16, 5, 5)
    marks = [tuple(reversed(np.argwhere(plane)[0].tolist())) for plane in observation[8:]]
    assert marks == [(0, 0), (3, 0), (0, 4), (0, 0), (4, 0), (4, 0), (4, 4), (1, 0)]


def test_symbolic() -> None:
    observation, _ = RicochetEnv(size=5, robots=2, observation="symbolic").reset(
        seed=1, options={"puzzles": puzzle(OPEN)}
    )
    assert observation.tolist() == [0.5, 1, 1, 0, 0, 0, 1, 0, 0, 0.75, 1, 0, 0, 0, 1, 0.75]


def test_solutions_by_hand() -> None:
    assert solve(puzzle(WALLED)) == Solution(4, 1, (B + UP, B + RIGHT, B + DOWN, B + LEFT))
    # Without B, A can never stop at the goal.
    found = solve(puzzle(OPEN))
    assert found is not None
    assert found.moved == 2
    assert found.length == len(reference.solve(reference.parse(OPEN), 10) or [])
    assert solve(puzzle(OPEN), most=found.length - 1) is None
    assert solve(puzzle(OPEN.replace("B", "."))) is None


def test_search_ignores_table_entries_of_old_searches() -> None:
    """The search number has few bits; when it starts again at 0, the table is cleared."""
    state, search = puzzle(WALLED).state(), new_search()
    find_stops(6, state.walls, state.stops, 0)
    search.number[0], search.table[:] = LAST_NUMBER, 1
    assert solve_board(state, 0, 3, 10, search) == 4
    assert search.number[0] < 20
    assert not (search.table == 1).any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"robots": [[0, 0]]}, "board 0 is impossible: two robots are on one cell"),
        ({"robots": [[0, 5]]}, "a robot is not on the board"),
        ({"goal": [80]}, "the goal is not on the board"),
        ({"target": [2]}, "the target is no robot from 0 to 1"),
        ({"goal": [0]}, "board 0 is solved before it begins"),
        ({"robots": [[0, 1, 2, 3, 4]]}, "robots is 5: give a whole number from 1 to 4"),
        ({"size": 17}, "size is 17: give a whole number from 4 to 16"),
    ],
)
def test_impossible_boards(change: dict[str, object], message: str) -> None:
    board = puzzle(OPEN)
    parts = {"size": 5, "walls": board.walls, "robots": board.robots, "goal": board.goal, "target": board.target}
    with pytest.raises(HotloopError, match=message):
        unsolved(**parts | {name: np.array(value) if name != "size" else value for name, value in change.items()})


def test_impossible_walls() -> None:
    board = puzzle(OPEN)
    for cell, bit, message in ((0, 1, "the border has a gap"), (34, 1, "a wall is on one of its two cells only")):
        walls = board.walls.copy()
        walls[0, cell] ^= bit
        with pytest.raises(HotloopError, match=message):
            unsolved(5, walls, board.robots, board.goal, board.target)
        env = RicochetVectorEnv(1, size=5, robots=2)
        state = env.get_state()
        state["walls"], state["robots"][:, :2] = walls, board.robots
        with pytest.raises(HotloopError, match=message):
            env.set_state(state)


def test_puzzles_must_fit_the_environment() -> None:
    env = RicochetVectorEnv(2, size=5, robots=2)
    with pytest.raises(HotloopError, match="puzzles are 1 of size 5 with robots 2: give 2 of size 5 with robots 2"):
        env.reset(options={"puzzles": puzzle(OPEN)})


def test_text() -> None:
    assert render.write(puzzle(OPEN)) == OPEN.strip()
    solved = start(WALLED, render_mode="ansi")
    for action in (B + UP, B + RIGHT, B + DOWN, B + LEFT):
        solved.step(action)
    assert "|Bb" in solved.render()
