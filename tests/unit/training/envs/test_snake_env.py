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
from hotloop.training.envs.snake import FEATURES, SnakeEnv, SnakeVectorEnv

Played = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]


def random_actions(steps: int, num_envs: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 3, (steps, num_envs))


def assert_equal(a: Played, b: Played) -> None:
    for left, right in zip(a[:4], b[:4], strict=True):
        np.testing.assert_array_equal(left, right)
    assert a[4].keys() == b[4].keys()


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_matches_gymnasiums_vector_of_single_games(mode: AutoresetMode) -> None:
    ours = SnakeVectorEnv(4, board=6, features="flood", autoreset_mode=mode)
    theirs = SyncVectorEnv([lambda: SnakeEnv(board=6, features="flood")] * 4, autoreset_mode=mode)
    np.testing.assert_array_equal(ours.reset(seed=5)[0], theirs.reset(seed=5)[0])
    ends = 0
    for actions in random_actions(150, 4):
        got, expected = ours.step(actions), theirs.step(actions)
        assert_equal(got, expected)
        info, peer = got[4], expected[4]
        for name in ("score", "length", "steps"):
            np.testing.assert_array_equal(info[name], peer[name])
            np.testing.assert_array_equal(info[f"_{name}"], peer[f"_{name}"])
        over = got[2] | got[3]
        ends += over.sum()
        if mode is AutoresetMode.NEXT_STEP and over.any():
            np.testing.assert_array_equal(info["cause"][over], peer["cause"][over])
            np.testing.assert_array_equal(info["_cause"], over)
        if mode is AutoresetMode.SAME_STEP and over.any():
            assert_equal_at_the_end(info, peer, over)
    assert ends > 20


def assert_equal_at_the_end(info: dict[str, Any], peer: dict[str, Any], over: np.ndarray) -> None:
    np.testing.assert_array_equal(info["_final_obs"], over)
    np.testing.assert_array_equal(info["_final_info"], over)
    np.testing.assert_array_equal(info["final_obs"][over], np.stack(list(peer["final_obs"][over])))
    assert info["final_info"].keys() == peer["final_info"].keys()
    for name in ("score", "length", "steps", "cause"):
        np.testing.assert_array_equal(info["final_info"][name][over], peer["final_info"][name][over])
        np.testing.assert_array_equal(info["final_info"][f"_{name}"], over)


def test_final_observations_are_the_next_observations_of_all_games() -> None:
    env = SnakeVectorEnv(64)
    env.reset(seed=1)
    checked = 0
    for actions in random_actions(40, 64):
        observations, _, terminated, truncated, info = env.step(actions)
        if "final_obs" in info:
            going_on = ~(terminated | truncated)
            np.testing.assert_array_equal(info["final_obs"][going_on], observations[going_on])
            checked += 1
    assert checked > 5


@pytest.mark.parametrize("features", FEATURES)
def test_returned_arrays_are_not_overwritten(features: str) -> None:
    env = SnakeVectorEnv(8, features=features)
    first, info = env.reset(seed=1)
    kept = [first, info["score"], info["length"], info["steps"], info["_score"]]
    for actions in random_actions(30, 8):
        observations, reward, terminated, truncated, info = env.step(actions)
        kept += [observations, reward, terminated, truncated, info["score"], info["length"], info["steps"]]
        kept += [info["final_obs"]] if "final_obs" in info else []
    copies = [array.copy() for array in kept]
    for actions in random_actions(30, 8, seed=1):
        env.step(actions)
    for array, copy in zip(kept, copies, strict=True):
        np.testing.assert_array_equal(array, copy)
    assert not any(np.shares_memory(a, b) for i, a in enumerate(kept[5:12]) for b in kept[12:][i:])


def play_on(env: SnakeVectorEnv, steps: int, seed: int = 0) -> list[Played]:
    return [env.step(actions) for actions in random_actions(steps, env.num_envs, seed)]


def test_game_does_not_depend_on_number_of_games() -> None:
    many, few = SnakeVectorEnv(100, features="enhanced"), SnakeVectorEnv(3, features="enhanced")
    np.testing.assert_array_equal(many.reset(seed=10)[0][40:43], few.reset(seed=50)[0])
    for actions in random_actions(100, 100):
        whole, part = many.step(actions), few.step(actions[40:43])
        for left, right in zip(whole[:4], part[:4], strict=True):
            np.testing.assert_array_equal(left[40:43], right)


@pytest.mark.parametrize("threads", [2, 3])
def test_results_do_not_depend_on_threads(threads: int) -> None:
    one, several = SnakeVectorEnv(10, features="enhanced"), SnakeVectorEnv(10, features="enhanced", threads=threads)
    np.testing.assert_array_equal(one.reset(seed=4)[0], several.reset(seed=4)[0])
    for a, b in zip(play_on(one, 60), play_on(several, 60), strict=True):
        assert_equal(a, b)
    several.close()


def test_seeds() -> None:
    env = SnakeVectorEnv(3)
    first, _ = env.reset(seed=7)
    second, _ = env.reset()
    by_list, _ = env.reset(seed=[7, 8, 9])
    np.testing.assert_array_equal(first, by_list)
    np.testing.assert_array_equal(second, env.reset()[0])
    foods = set()
    for seed in range(20):
        env.reset(seed=3 * seed)
        foods.add(tuple(env.get_state()["vitals"][:, 3].tolist()))
    assert len(foods) == 20


def test_without_a_seed_two_environments_differ() -> None:
    states = []
    for _ in range(2):
        env = SnakeVectorEnv(8)
        env.reset()
        states.append(env.get_state()["vitals"].tolist())
    assert states[0] != states[1]


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_restored_games_continue_identically(mode: AutoresetMode) -> None:
    env = SnakeVectorEnv(16, features="enhanced", board=7, autoreset_mode=mode)
    env.reset(seed=2)
    steps = 4 if mode is AutoresetMode.DISABLED else 50
    going_straight = np.zeros((3, 16), np.int64)
    if mode is AutoresetMode.DISABLED:
        for actions in going_straight[:2]:
            env.step(actions)
        steps = 1
    else:
        play_on(env, steps)
    saved = env.get_state()
    expected = play_on(env, steps, seed=9)
    other = SnakeVectorEnv(16, features="enhanced", board=7, autoreset_mode=mode)
    other.set_state(saved)
    for a, b in zip(expected, play_on(other, steps, seed=9), strict=True):
        assert_equal(a, b)
    for name, array in env.get_state().items():
        np.testing.assert_array_equal(array, other.get_state()[name])


def test_state_is_a_copy() -> None:
    env = SnakeVectorEnv(2)
    env.reset(seed=1)
    saved = env.get_state()
    before = {name: array.copy() for name, array in saved.items()}
    play_on(env, 5)
    for name, array in saved.items():
        np.testing.assert_array_equal(array, before[name])


def test_disabled_autoreset_requires_a_reset() -> None:
    env = SnakeVectorEnv(2, board=5, autoreset_mode="Disabled")
    env.reset(seed=1)
    for _ in range(2):
        env.step(np.array([0, 0]))
    observations, _, terminated, _, info = env.step(np.array([0, 1]))
    assert terminated.tolist() == [True, False]
    assert info["cause"].tolist() == ["wall", None]
    assert "final_obs" not in info
    with pytest.raises(HotloopError, match="game 0 is over: reset it"):
        env.step(np.array([0, 0]))
    again, info = env.reset(options={"reset_mask": terminated})
    assert info["steps"].tolist() == [0, 3]
    np.testing.assert_array_equal(again[1], observations[1])
    env.step(np.array([0, 0]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"board": 4}, "board is 4: give a whole number from 5 to 64"),
        ({"board": 65}, "board is 65"),
        ({"board": 10.0}, "board is 10.0"),
        ({"features": "pixels"}, "features is 'pixels': give one of basic, flood, selective, enhanced, grid"),
        ({"actions": "both"}, "actions is 'both': give one of relative, absolute"),
        ({"max_steps": 0}, "max_steps is 0"),
        ({"num_envs": 0}, "num_envs is 0"),
        ({"threads": -1}, "threads is -1"),
        ({"threads": 0}, "threads is 0: give a whole number of at least 1"),
        ({"size": 10}, "Snake has no option 'size': there are board, features"),
        ({"rewards": {"apple": 1}}, "Snake has no reward 'apple': there are food, death"),
        ({"render_mode": "human"}, "render_mode is 'human': give one of rgb_array, ansi"),
        ({"autoreset_mode": "Never"}, "autoreset_mode is 'Never': give one of NextStep, SameStep, Disabled"),
    ],
)
def test_invalid_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(HotloopError, match=message.replace("(", r"\(")):
        SnakeVectorEnv(**options)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([0, 3, 0], "action of game 1 is 3: give a whole number from 0 to 2"),
        ([0, 0, -1], "action of game 2 is -1"),
        ([0, 0], r"actions are int64 \(2,\): give 3 whole numbers"),
        ([0.0, 0.0, 0.0], r"actions are float64 \(3,\)"),
    ],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_invalid_actions_do_not_change_the_games(actions: list[Any], message: str, threads: int) -> None:
    env = SnakeVectorEnv(3, threads=threads)
    env.reset(seed=1)
    before = env.get_state()
    with pytest.raises(HotloopError, match=message):
        env.step(np.array(actions))
    for name, array in env.get_state().items():
        np.testing.assert_array_equal(array, before[name])
    env.close()


def test_other_invalid_calls() -> None:
    env = SnakeVectorEnv(3)
    with pytest.raises(HotloopError, match="call reset first"):
        env.step(np.zeros(3, np.int64))
    with pytest.raises(HotloopError, match="there are 2 seeds: give 3"):
        env.reset(seed=[1, 2])
    env.reset(seed=1)
    with pytest.raises(HotloopError, match=r"reset_mask is bool \(2,\): give bool \(3,\)"):
        env.reset(options={"reset_mask": np.ones(2, bool)})
    with pytest.raises(HotloopError, match=r"'rows', not uint64 \(3, 10\): restore it with the num_envs and board"):
        other = SnakeVectorEnv(3, board=8)
        other.reset(seed=1)
        env.set_state(other.get_state())
    with pytest.raises(HotloopError, match="has nothing for 'vitals'"):
        env.set_state({})


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("actions", ["relative", "absolute"])
def test_gymnasiums_checker(features: str, actions: str) -> None:
    env = gymnasium.make(hotloop.training.envs.SNAKE_ID, features=features, actions=actions, board=8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)


def test_make_and_make_vec() -> None:
    env = gymnasium.make(hotloop.training.envs.SNAKE_ID, features="flood", board=7)
    assert env.reset(seed=1)[0].shape == (13,)
    vector = gymnasium.make_vec(hotloop.training.envs.SNAKE_ID, num_envs=5, features="grid", board=7)
    assert isinstance(vector, SnakeVectorEnv)
    assert vector.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    observations, _ = vector.reset(seed=1)
    assert observations in vector.observation_space
    assert vector.observation_space.shape == (5, 7, 7, 3)
    assert vector.action_space.sample().shape == (5,)


def test_make_by_module_name_and_lazy_imports() -> None:
    """Gymnasium imports the module before the colon; registering alone loads neither numba nor torch."""
    program = (
        "import sys, gymnasium, hotloop.training.envs;"
        "assert 'numba' not in sys.modules and 'torch' not in sys.modules;"
        "del sys.modules['hotloop.training.envs']; gymnasium.registry.pop('hotloop/Snake-v0');"
        "print(gymnasium.make('hotloop.training.envs:hotloop/Snake-v0').unwrapped.config.board)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "10\n"


def test_single_game_ends_with_its_cause() -> None:
    env = SnakeEnv(board=5)
    _, info = env.reset(seed=1)
    assert info == {"score": 0, "length": 3, "steps": 0}
    env.step(0)
    env.step(0)
    _, reward, terminated, truncated, info = env.step(0)
    assert (reward, terminated, truncated) == (-10.0, True, False)
    assert info["cause"] == "wall"
    with pytest.raises(HotloopError, match="is over: reset it"):
        env.step(0)
