"""Many cars: in this process and in worker processes, with the same results."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

pytest.importorskip("Box2D")

import hotloop
import hotloop.training.envs
from hotloop.errors import HotloopError
from hotloop.training.envs.carracing import CarRacingEnv, CarRacingVectorEnv
from hotloop.training.envs.carracing.vector import _count_workers


def actions_of(steps: int, cars: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform([-1, 0, 0], [1, 1, 0.2], (steps, cars, 3)).astype(np.float32)


def make(count: int, **options: Any) -> CarRacingVectorEnv:
    return CarRacingVectorEnv(count, **{"workers": 0, "size": 64, "supersample": 1} | options)


@pytest.fixture
def two_workers() -> Iterator[CarRacingVectorEnv]:
    env = make(3, workers=2, max_frames=12)
    yield env
    env.close()


def assert_same(left: Any, right: Any) -> None:
    if isinstance(left, dict):
        assert left.keys() == right.keys()
        for name in left:
            assert_same(left[name], right[name])
    elif isinstance(left, tuple):
        for a, b in zip(left, right, strict=True):
            assert_same(a, b)
    else:
        np.testing.assert_array_equal(left, right)


def test_results_do_not_depend_on_workers(two_workers: CarRacingVectorEnv) -> None:
    here = make(3, max_frames=12)
    assert_same(here.reset(seed=4), two_workers.reset(seed=4))
    for actions in actions_of(30, 3):
        assert_same(here.step(actions), two_workers.step(actions))
    assert_same(here.reset(seed=[9, 8, 7]), two_workers.reset(seed=[9, 8, 7]))


def test_car_in_a_vector_matches_a_single_car() -> None:
    many, one = make(3, max_frames=12), CarRacingEnv(size=64, supersample=1, max_frames=12)
    observations, _ = many.reset(seed=4)
    np.testing.assert_array_equal(observations[2], one.reset(seed=6)[0])
    for actions in actions_of(25, 3):
        observations, rewards, terminated, truncated, info = many.step(actions)
        alone, reward, end, out_of_time, single_info = one.step(actions[2])
        assert rewards[2] == np.float32(reward)
        assert (terminated[2], truncated[2]) == (end, out_of_time)
        np.testing.assert_array_equal(info.get("final_obs", observations)[2], alone)
        if end or out_of_time:
            assert info["final_info"]["frames"][2] == single_info["frames"] == 12
            assert info["final_info"]["tiles"][2] == single_info["tiles"]
            alone, _ = one.reset()
            assert info["frames"][2] == 0
        np.testing.assert_array_equal(observations[2], alone)


def test_same_step_mode_reports_the_end_of_an_episode() -> None:
    env = make(2, max_frames=3)
    env.reset(seed=1)
    env._batch.cars[1]._frames = 1  # pyright: ignore[reportOptionalMemberAccess]
    steps = [env.step(actions) for actions in actions_of(3, 2)]
    assert [step[3].tolist() for step in steps] == [[False, False], [False, True], [True, False]]
    assert "final_obs" not in steps[0][4]
    assert steps[1][4]["_final_obs"].tolist() == [False, True]
    np.testing.assert_array_equal(steps[1][4]["final_obs"][0], steps[1][0][0])
    assert steps[1][4]["final_info"]["frames"].tolist() == [2, 3]
    assert steps[1][4]["final_info"]["_lap_finished"].tolist() == [False, False]
    assert steps[1][4]["frames"].tolist() == [2, 0]


def test_next_step_mode() -> None:
    env = make(1, max_frames=2, autoreset_mode="NextStep")
    first, _ = env.reset(seed=1)
    steps = [env.step(actions) for actions in actions_of(4, 1)]
    assert [step[3].tolist() for step in steps] == [[False], [True], [False], [False]]
    assert steps[2][1].tolist() == [0.0]
    assert [step[4]["frames"][0] for step in steps] == [1, 2, 0, 1]
    assert not np.array_equal(steps[2][0], first)


def test_disabled_mode_requires_a_reset() -> None:
    env = make(2, max_frames=2, autoreset_mode=AutoresetMode.DISABLED)
    env.reset(seed=1)
    env._batch.cars[0]._frames = 1  # pyright: ignore[reportOptionalMemberAccess]
    observations, _, _, truncated, info = env.step(np.zeros((2, 3), np.float32))
    assert truncated.tolist() == [True, False]
    assert info["_lap_finished"].tolist() == [False, False]
    with pytest.raises(HotloopError, match="the episode of car 0 is over: reset it"):
        env.step(np.zeros((2, 3), np.float32))
    again, info = env.reset(options={"reset_mask": truncated})
    assert info["frames"].tolist() == [0, 1]
    np.testing.assert_array_equal(again[1], observations[1])
    env.step(np.zeros((2, 3), np.float32))


def test_returned_arrays_are_not_overwritten(two_workers: CarRacingVectorEnv) -> None:
    kept = [two_workers.reset(seed=1)[0]]
    copies = [kept[0].copy()]
    for actions in actions_of(14, 3):
        observations, rewards, _, _, info = two_workers.step(actions)
        kept += [observations, rewards, info.get("final_obs", observations), info["frames"]]
        copies = [*copies, *(each.copy() for each in kept[-4:])]
    for array, copy in zip(kept, copies, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_send_and_receive(two_workers: CarRacingVectorEnv) -> None:
    two_workers.reset(seed=1)
    with pytest.raises(HotloopError, match="call send with actions first"):
        two_workers.receive()
    two_workers.send(actions_of(1, 3)[0])
    with pytest.raises(HotloopError, match="send before receive"):
        two_workers.send(actions_of(1, 3)[0])
    assert two_workers.receive()[4]["frames"].tolist() == [1, 1, 1]
    two_workers.send(actions_of(1, 3)[0])
    assert two_workers.reset(seed=2)[1]["frames"].tolist() == [0, 0, 0]


def test_dead_worker_is_replaced(two_workers: CarRacingVectorEnv) -> None:
    two_workers.reset(seed=1)
    before, *_ = two_workers.step(actions_of(1, 3)[0])
    dead = two_workers._workers[1]
    os.kill(dead._process.pid, signal.SIGKILL)
    dead._process.wait()
    with pytest.warns(RuntimeWarning, match=r"the worker of cars 1 to 2 ended \(-9\): it is replaced"):
        observations, rewards, terminated, truncated, info = two_workers.step(actions_of(1, 3)[0])
    assert truncated.tolist() == [False, True, True]
    assert not terminated.any()
    assert rewards[1:].tolist() == [0, 0]
    assert info["frames"].tolist() == [2, 0, 0]
    np.testing.assert_array_equal(info["final_obs"][1:], before[1:])
    assert info["final_info"]["frames"].tolist() == [2, 1, 1]
    assert not np.array_equal(observations[1], before[1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert two_workers.step(actions_of(1, 3)[0])[4]["frames"].tolist() == [3, 1, 1]


def test_other_options_reach_the_workers() -> None:
    env = make(2, workers=1, state="vector", action_form="discrete", action_repeat=3)
    env.reset(seed=1)
    observations, *_, info = env.step(np.array([3, 0]))
    assert observations.shape == (2, 36)
    assert info["frames"].tolist() == [3, 3]
    env.close()
    env.close()


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (np.zeros((2, 2), np.float32), r"actions are float32 \(2, 2\): give numbers of shape \(2, 3\)"),
        (np.array([[0, 0, 0], [0, np.inf, 0]]), r"action of car 1 is \[ 0. inf  0.\]: give finite numbers"),
        (np.array([["a"] * 3] * 2), "actions are <U1"),
    ],
)
def test_invalid_actions(actions: np.ndarray, message: str) -> None:
    env = make(2)
    env.reset(seed=1)
    with pytest.raises(HotloopError, match=message):
        env.step(actions)


def test_invalid_discrete_actions() -> None:
    env = make(2, action_form="discrete", state="vector")
    env.reset(seed=1)
    with pytest.raises(HotloopError, match="action of car 1 is 5: give a whole number from 0 to 4"):
        env.step(np.array([0, 5]))
    with pytest.raises(HotloopError, match="give whole numbers of shape"):
        env.step(np.array([0.0, 1.0]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_envs": 0}, "num_envs is 0"),
        ({"workers": -1}, "workers is -1"),
        ({"state": "pixels"}, "state is 'pixels': give one of visual, vector"),
        ({"autoreset_mode": "Never"}, "autoreset_mode is 'Never': give one of NextStep, SameStep, Disabled"),
        ({"render_mode": "human"}, "render_mode is 'human'"),
    ],
)
def test_invalid_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(HotloopError, match=message):
        CarRacingVectorEnv(**options)


def test_other_invalid_calls() -> None:
    env = make(2)
    with pytest.raises(HotloopError, match="before reset"):
        env.step(np.zeros((2, 3), np.float32))
    with pytest.raises(HotloopError, match="a reset_mask came with the first reset"):
        env.reset(options={"reset_mask": np.ones(2, bool)})
    with pytest.raises(HotloopError, match="there are 3 seeds: give 2"):
        env.reset(seed=[1, 2, 3])
    env.reset(seed=1)
    with pytest.raises(HotloopError, match=r"reset_mask is bool \(3,\): give bool \(2,\)"):
        env.reset(options={"reset_mask": np.ones(3, bool)})


def test_make_vec_and_render() -> None:
    env = gymnasium.make_vec(hotloop.training.envs.CARRACING_ID, num_envs=2, render_mode="rgb_array", size=64)
    assert isinstance(env, CarRacingVectorEnv)
    assert env.workers == 0
    observations, _ = env.reset(seed=1)
    assert observations in env.observation_space
    frames = env.render()
    assert frames is not None
    assert [frame.shape for frame in frames] == [(400, 600, 3)] * 2
    env.close()


def test_counts_cores_on_systems_without_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert [_count_workers(None, cars, None) for cars in (1, 2, 8)] == [0, 2, 3]
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert _count_workers(None, 8, None) == 1


def test_recorded_worker_joins_the_run(tmp_path: Path) -> None:
    with hotloop.record(tmp_path / "run"):
        env = make(2, workers=1, recorded=True)
        env.reset(seed=1)
        for actions in actions_of(5, 2):
            env.step(actions)
        env.close()
    (worker,) = hotloop.load(tmp_path / "run").processes[1:]
    calls = {node.name: node.calls for thread in worker.threads for node in thread.nodes if node.kind == "span"}
    assert (calls["env.physics"], calls["env.render"]) == (10, 10)
