"""Gymnasium's conventions: seeds, autoreset, infos, saving, errors, registration, its own checker."""

from __future__ import annotations

import subprocess
import sys
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import hotloop.training.envs
from hotloop.errors import HotloopError
from hotloop.spans import registry
from hotloop.training.array_pool import ArrayPool
from hotloop.training.envs.ricochet import OBSERVATIONS, RicochetEnv, RicochetVectorEnv

Played = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]
SMALL = {"size": 8, "robots": 2, "max_steps": 6}


def random_actions(steps: int, num_envs: int, seed: int = 0, actions: int = 8) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, actions, (steps, num_envs))


def play_on(env: RicochetVectorEnv, steps: int, seed: int = 0) -> list[Played]:
    return [env.step(actions) for actions in random_actions(steps, env.num_envs, seed)]


def assert_equal(a: Played, b: Played) -> None:
    for left, right in zip(a[:4], b[:4], strict=True):
        np.testing.assert_array_equal(left, right)
    assert a[4].keys() == b[4].keys()


@pytest.mark.parametrize("observation", OBSERVATIONS)
@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_matches_gymnasiums_vector_of_single_boards(mode: AutoresetMode, observation: str) -> None:
    options = SMALL | {"observation": observation}
    ours = RicochetVectorEnv(4, autoreset_mode=mode, **options)
    theirs = SyncVectorEnv([lambda: RicochetEnv(**options)] * 4, autoreset_mode=mode)
    np.testing.assert_array_equal(ours.reset(seed=5)[0], theirs.reset(seed=5)[0])
    ends = 0
    for actions in random_actions(40, 4):
        got, expected = ours.step(actions), theirs.step(actions)
        assert_equal(got, expected)
        info, peer = got[4], expected[4]
        for name in ("steps", "optimal", "_steps", "_optimal"):
            np.testing.assert_array_equal(info[name], peer[name])
        over = got[2] | got[3]
        ends += over.sum()
        if mode is AutoresetMode.NEXT_STEP and over.any():
            np.testing.assert_array_equal(info["cause"][over], peer["cause"][over])
        if mode is AutoresetMode.SAME_STEP and over.any():
            np.testing.assert_array_equal(info["_final_obs"], over)
            np.testing.assert_array_equal(info["_final_info"], over)
            np.testing.assert_array_equal(
                np.stack(list(info["final_obs"][over])), np.stack(list(peer["final_obs"][over]))
            )
            for name in ("steps", "optimal", "cause"):
                np.testing.assert_array_equal(info["final_info"][name][over], peer["final_info"][name][over])
                np.testing.assert_array_equal(info["final_info"][f"_{name}"], over)
    assert ends > 15


@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_final_observations(observation: str) -> None:
    """Final observations cover all boards, except for pictures, where they cover the boards whose episode ended."""
    env = RicochetVectorEnv(32, observation=observation, **SMALL)
    env.reset(seed=1)
    checked = 0
    for actions in random_actions(10, 32):
        observations, _, terminated, truncated, info = env.step(actions)
        if "final_obs" in info:
            going_on = ~(terminated | truncated)
            if observation == "rgb":
                assert [each is None for each in info["final_obs"]] == going_on.tolist()
            else:
                np.testing.assert_array_equal(info["final_obs"][going_on], observations[going_on])
            assert (info["final_info"]["steps"][~going_on] > 0).all()
            assert (info["steps"][~going_on] == 0).all()
            checked += 1
    assert checked > 2


@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_returned_arrays_are_not_overwritten(observation: str) -> None:
    env = RicochetVectorEnv(3, observation=observation, **SMALL)
    first, info = env.reset(seed=1)
    # A view of an observation keeps all of it alive.
    kept = [first[1:2, ..., :3], info["steps"]]
    for actions in random_actions(12, 3):
        observations, reward, terminated, truncated, info = env.step(actions)
        kept += [observations, reward, terminated, truncated, info["steps"]]
        kept += [info["final_obs"]] if "final_obs" in info and observation != "rgb" else []
        kept += [each for each in info.get("final_obs", []) if each is not None and observation == "rgb"]
    copies = [array.copy() for array in kept]
    play_on(env, 12, seed=1)
    for array, copy in zip(kept, copies, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_array_pool_reuses_only_unreferenced_arrays() -> None:
    pool = ArrayPool((4,), np.uint8, capacity=2)
    first, second = pool.take(), pool.take()
    assert not np.shares_memory(first, second)
    view, address = first.reshape(2, 2)[1:], first.ctypes.data
    del first, second
    # The second is free; a view still holds the first.
    assert {pool.take().ctypes.data for _ in range(3)}.isdisjoint({address})
    del view
    assert pool.take().ctypes.data == address
    held = [pool.take() for _ in range(5)]
    assert len({each.ctypes.data for each in held}) == 5


def test_board_does_not_depend_on_number_of_boards() -> None:
    many, few = RicochetVectorEnv(20, **SMALL), RicochetVectorEnv(3, **SMALL)
    np.testing.assert_array_equal(many.reset(seed=10)[0][4:7], few.reset(seed=14)[0])
    for actions in random_actions(40, 20):
        whole, part = many.step(actions), few.step(actions[4:7])
        for left, right in zip(whole[:4], part[:4], strict=True):
            np.testing.assert_array_equal(left[4:7], right)


@pytest.mark.parametrize("observation", ["planes", "rgb"])
@pytest.mark.parametrize("threads", [2, 3])
def test_results_do_not_depend_on_threads(threads: int, observation: str) -> None:
    options = SMALL | {"observation": observation, "level": 0}
    one, several = RicochetVectorEnv(10, **options), RicochetVectorEnv(10, threads=threads, **options)
    np.testing.assert_array_equal(one.reset(seed=4)[0], several.reset(seed=4)[0])
    for a, b in zip(play_on(one, 20), play_on(several, 20), strict=True):
        assert_equal(a, b)
    several.close()


def test_every_reset_without_a_seed_draws_a_new_board() -> None:
    """This includes a reset right after one with a seed, and the single environment."""
    env = RicochetEnv()
    env.reset(seed=3)
    boards = {env.puzzles().walls.tobytes()}
    for _ in range(9):
        env.reset()
        boards.add(env.puzzles().walls.tobytes())
    assert len(boards) == 10
    vector = RicochetVectorEnv(16)
    vector.reset(seed=3)
    assert len({row.tobytes() for row in vector.puzzles().walls}) == 16
    assert vector.puzzles().walls[0].tobytes() in boards


def test_seeds() -> None:
    env = RicochetVectorEnv(3, **SMALL)
    first, _ = env.reset(seed=7)
    second, _ = env.reset()
    by_list, _ = env.reset(seed=[7, 8, 9])
    np.testing.assert_array_equal(first, by_list)
    np.testing.assert_array_equal(second, env.reset()[0])
    others = RicochetVectorEnv(3, **SMALL)
    assert not np.array_equal(RicochetVectorEnv(3, **SMALL).reset()[0], others.reset()[0])


@pytest.mark.parametrize("observation", OBSERVATIONS)
@pytest.mark.parametrize("mode", ["SameStep", "NextStep"])
def test_restored_games_continue_identically(mode: str, observation: str) -> None:
    options = SMALL | {"observation": observation, "autoreset_mode": mode}
    env = RicochetVectorEnv(5, **options)
    env.reset(seed=2)
    play_on(env, 9)
    saved = env.get_state()
    before = {name: array.copy() for name, array in saved.items()}
    expected = play_on(env, 15, seed=9)
    other = RicochetVectorEnv(5, **options)
    other.set_state(saved)
    for a, b in zip(expected, play_on(other, 15, seed=9), strict=True):
        assert_equal(a, b)
    for name, array in env.get_state().items():
        np.testing.assert_array_equal(array, other.get_state()[name])
        np.testing.assert_array_equal(saved[name], before[name])


def test_disabled_autoreset_requires_a_reset() -> None:
    env = RicochetVectorEnv(2, size=8, robots=1, max_steps=2, autoreset_mode="Disabled", noop=True)
    env.reset(seed=1)
    idle = np.array([4, 4])
    env.step(idle)
    observations, _, _, truncated, info = env.step(idle)
    assert truncated.tolist() == [True, True]
    assert info["cause"].tolist() == ["timeout", "timeout"]
    assert "final_obs" not in info
    with pytest.raises(HotloopError, match="board 0 is over: reset it"):
        env.step(idle)
    again, info = env.reset(options={"reset_mask": np.array([True, False])})
    assert info["steps"].tolist() == [0, 2]
    np.testing.assert_array_equal(again[1], observations[1])
    assert not np.array_equal(again[0], observations[0])


def test_boards_of_a_level() -> None:
    for level, lengths in ((0, {1, 2}), (1, {2, 3, 4})):
        env = RicochetVectorEnv(32, level=level)
        _, info = env.reset(seed=1)
        assert set(info["optimal"].tolist()) <= lengths
        assert (env.puzzles().moved == 1).all()
    assert set(RicochetVectorEnv(4).reset(seed=1)[1]["optimal"].tolist()) == {-1}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 3}, "size is 3: give a whole number from 4 to 16"),
        ({"size": 17}, "size is 17"),
        ({"size": 8.0}, "size is 8.0"),
        ({"robots": 5}, "robots is 5: give a whole number from 1 to 4"),
        ({"robots": 0}, "robots is 0"),
        ({"observation": "image"}, "observation is 'image': give one of planes, stops, symbolic, rgb"),
        ({"level": 4}, "level is 4: give a whole number from 0 to 3"),
        ({"level": 3, "robots": 1}, "level 3 moves 2 robots, and robots is 1: give more robots or another level"),
        ({"held_out": True}, "held_out needs a bank"),
        ({"max_steps": 0}, "max_steps is 0"),
        ({"num_envs": 0}, "num_envs is 0"),
        ({"threads": -1}, "threads is -1"),
        ({"threads": 0}, "threads is 0: give a whole number of at least 1"),
        ({"board": 10}, "Ricochet has no option 'board': there are size, robots, observation, level"),
        ({"rewards": {"goal": 1}}, "Ricochet has no reward 'goal': there are step, solved"),
        ({"render_mode": "human"}, "render_mode is 'human': give one of rgb_array, ansi"),
        ({"autoreset_mode": "Never"}, "autoreset_mode is 'Never': give one of NextStep, SameStep, Disabled"),
    ],
)
def test_invalid_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(HotloopError, match=message):
        RicochetVectorEnv(**options)


def test_impossible_level_is_an_error() -> None:
    env = RicochetVectorEnv(1, size=4, robots=1, level=2)
    with pytest.raises(HotloopError, match="no board of level 2 was found in 20,000 of size 4 with robots 1"):
        env.reset(seed=1)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([0, 8, 0], "action of board 1 is 8: give a whole number from 0 to 7"),
        ([0, 0, -1], "action of board 2 is -1"),
        ([0, 0], r"actions are int64 \(2,\): give 3 whole numbers"),
        ([0.0, 0.0, 0.0], r"actions are float64 \(3,\)"),
    ],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_invalid_actions_do_not_change_the_boards(actions: list[Any], message: str, threads: int) -> None:
    env = RicochetVectorEnv(3, threads=threads, **SMALL)
    env.reset(seed=1)
    before = env.get_state()
    with pytest.raises(HotloopError, match=message):
        env.step(np.array(actions))
    for name, array in env.get_state().items():
        np.testing.assert_array_equal(array, before[name])
    env.close()


def test_other_invalid_calls() -> None:
    env = RicochetVectorEnv(3, **SMALL)
    with pytest.raises(HotloopError, match="call reset first"):
        env.step(np.zeros(3, np.int64))
    with pytest.raises(HotloopError, match="there are 2 seeds: give 3"):
        env.reset(seed=[1, 2])
    env.reset(seed=1)
    with pytest.raises(HotloopError, match=r"reset_mask is bool \(2,\): give bool \(3,\)"):
        env.reset(options={"reset_mask": np.ones(2, bool)})
    with pytest.raises(HotloopError, match=r"for 'vitals', not int64 \(3, 7\): restore it with the num_envs"):
        env.set_state(RicochetVectorEnv(4, **SMALL).get_state())
    with pytest.raises(HotloopError, match="has nothing for 'vitals'"):
        env.set_state({})


@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_gymnasiums_checker(observation: str) -> None:
    env = gymnasium.make(hotloop.training.envs.RICOCHET_ID, observation=observation, size=7, robots=3, noop=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)


def test_make_and_make_vec() -> None:
    env = gymnasium.make(hotloop.training.envs.RICOCHET_ID)
    assert env.reset(seed=1)[0].shape == (10, 16, 16)
    assert env.action_space.n == 16
    vector = gymnasium.make_vec(hotloop.training.envs.RICOCHET_ID, num_envs=5, observation="rgb")
    assert isinstance(vector, RicochetVectorEnv)
    assert vector.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    observations, _ = vector.reset(seed=1)
    assert observations in vector.observation_space
    assert vector.observation_space.shape == (5, 128, 128, 3)


def test_make_by_module_name_and_lazy_imports() -> None:
    program = (
        "import sys, gymnasium, hotloop.training.envs;"
        "assert 'numba' not in sys.modules and 'torch' not in sys.modules;"
        "print(gymnasium.make('hotloop.training.envs:hotloop/Ricochet-v0').unwrapped.config.size);"
        "assert 'pyarrow' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "16\n"


def test_drawing_records_spans() -> None:
    """Spans are named as in the study and nested; a step without a new board draws robots only."""
    names = ["observation_generation", "rendering", "draw_grid", "draw_walls", "draw_target", "draw_robots"]
    made = [registry.span(f"env_rgb_{name}") for name in names]
    env = RicochetVectorEnv(2, observation="rgb", noop=True)
    order: list[str] = []

    class Noted(registry.Span):
        __slots__ = ()

        def __enter__(self) -> None:
            order.append(self.name.removeprefix("env_rgb_"))

        def __exit__(self, *error: object) -> None:
            order.append("end")

    was = [type(each) for each in made]
    try:
        for each in made:
            each.__class__ = Noted
        env.reset(seed=1)
        first, order[:] = list(order), []
        env.step(np.array([16, 16]))
    finally:
        for each, kind in zip(made, was, strict=True):
            each.__class__ = kind
    assert first == [*names[:3], "end", "draw_walls", "end", "draw_target", "end", "draw_robots", "end", "end", "end"]
    assert order == ["observation_generation", "rendering", "draw_robots", "end", "end", "end"]
