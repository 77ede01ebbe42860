"""The Mario environment on our own game: rewards, ends, start states, and routes that finish its levels."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

pytest.importorskip("stable_retro", reason="stable-retro is not installed: pip install 'hotloop[nes]'")

import hotloop.training.envs
from hotloop.errors import HotloopError
from hotloop.training.envs.nes import MarioConfig, MarioEnv, MarioRewards, memory_layout
from hotloop.training.envs.nes.start_states import RUNNER_LEVELS, load_routes

NOTHING, RIGHT, JUMP, RUN, RUN_JUMP, UP, LEFT = range(7)
LATE = 0x702
"""Address at which `runner` counts late frames."""


@contextmanager
def playing(**options: Any) -> Iterator[MarioEnv]:
    with closing(MarioEnv(**options)) as env:
        yield env


def test_gymnasiums_checker() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Its checks of render modes and of closing would make a second environment in this process.
        env = gymnasium.make(hotloop.training.envs.MARIO_ID, render_mode="rgb_array").unwrapped
        with closing(env):
            check_env(env, skip_render_check=True, skip_close_check=True)
            picture = env.render()
            assert isinstance(picture, np.ndarray)
            assert (picture.shape, picture.dtype) == ((224, 240, 3), np.uint8)


@pytest.mark.parametrize("level", RUNNER_LEVELS)
def test_routes_finish_all_levels_without_late_frames(level: str) -> None:
    """The included routes reach the flag, and the game is never late for a frame."""
    with playing(level=level) as env:
        env.reset()
        assert env._emulator.ram[memory_layout.STAGE] == int(level[-1]) - 1
        # A route starts at the first frame of the level, a reset one frame later.
        env._emulator.load(env._level_starts[level])
        before = int(env._emulator.ram[LATE])
        rewards, info = [], {}
        for action in load_routes()[level]:
            _, reward, terminated, truncated, info = env.step(int(action))
            rewards.append(reward)
        assert (terminated, truncated, info["cause"], info["flag"]) == (True, False, "flag", True)
        assert rewards[-1] > 1.9
        assert sum(rewards) == pytest.approx(2 + 0.02 * (info["x"] - 40))
        assert int(env._emulator.ram[LATE]) == before


def test_rewards_by_hand() -> None:
    rewards = MarioRewards(progress=1.0, death=-100.0, deadlock=-7.0)
    with playing(rewards=rewards, patience=5) as env:
        _, info = env.reset()
        x = info["x"]
        for _ in range(10):
            _, reward, _, _, info = env.step(RUN)
            assert reward == info["x"] - x >= 0
            x = info["x"]
        assert x > 80
        # The player slides on for some steps, then makes no progress for five.
        rewards_seen, terminated = [], False
        while not terminated:
            _, reward, terminated, truncated, info = env.step(NOTHING)
            rewards_seen.append(reward)
        assert (info["cause"], info["flag"], truncated) == ("deadlock", False, False)
        assert rewards_seen[-5:] == [0, 0, 0, 0, -7.0]
        assert rewards_seen[-6] > 0
        assert info["distance"] == info["x"]


def test_moving_left_costs_reward_and_is_no_progress() -> None:
    with playing(rewards=MarioRewards(progress=1.0), patience=12) as env:
        env.reset()
        for _ in range(12):
            *_, info = env.step(RUN)
        furthest, steps = info["distance"], 0
        while True:
            _, reward, terminated, _, info = env.step(LEFT)
            steps += 1
            furthest = max(furthest, info["x"])
            if terminated:
                break
        assert reward < -0.5
        assert info["distance"] == furthest > info["x"]
        assert info["cause"] == "deadlock"


def test_death_ends_the_episode() -> None:
    """Running without jumping meets the first grub."""
    with playing() as env:
        env.reset()
        terminated, reward, info = False, 0.0, {}
        while not terminated:
            _, reward, terminated, _, info = env.step(RUN)
        assert info["cause"] == "death"
        assert reward == pytest.approx(-1, abs=0.2)
        assert 200 < info["x"] < 400
        with pytest.raises(HotloopError, match="call reset first"):
            env.step(0)


def test_same_seed_gives_same_episode_and_frames_are_not_reused() -> None:
    options: dict[str, Any] = {"noops": 30, "sticky": 0.25, "level": "random", "actions": "complex", "size": 128}
    runs = []
    with playing(**options) as env:
        assert env.action_space.n == 12  # type: ignore[attr-defined]
        for _ in range(2):
            observation, info = env.reset(seed=11)
            observations, infos = [observation], [info]
            actions = np.random.default_rng(3)
            for _ in range(25):
                observation, reward, terminated, _, info = env.step(int(actions.integers(12)))
                observations.append(observation)
                infos.append(info | {"reward": reward})
                if terminated:
                    break
            runs.append((np.array(observations), infos))
        assert np.array_equal(runs[0][0], runs[1][0])
        assert runs[0][1] == runs[1][1]
        assert runs[0][0].shape[1:] == (128, 128)
        assert not np.shares_memory(observations[0], observations[1])
        levels = {env.reset()[1]["level"] for _ in range(40)}
        assert levels == set(RUNNER_LEVELS)
        frames = {env.reset()[1]["frames"] for _ in range(40)}
        assert min(frames) >= 1
        assert 20 < max(frames) <= 31


def test_sticky_actions_repeat_the_previous_action() -> None:
    with playing(sticky=0.999999) as env:
        env.reset(seed=1)
        env.step(RUN)
        for _ in range(20):
            *_, info = env.step(LEFT)
        assert info["x"] > 100


def test_route_and_reached_start_states() -> None:
    with playing(start="route") as env:
        starts = {env.reset(seed=seed)[1]["x"] for seed in range(60)}
        assert len(starts) > 8
        assert min(starts) == 40
        assert max(starts) > 1500
    with playing(start="reached") as env:
        assert {env.reset()[1]["x"] for _ in range(5)} == {40}
        for action in load_routes()["1-1"][:120]:
            *_, terminated, _, _ = env.step(int(action))
            if terminated:
                break
        starts = {env.reset(seed=seed)[1]["x"] for seed in range(30)}
        assert len(starts) > 2
        assert max(starts) < 1300


def test_begin_share() -> None:
    with playing(start="route", begin_share=1.0) as env:
        assert {env.reset(seed=seed)[1]["x"] for seed in range(20)} == {40}
    with playing(start="route", begin_share=0.5) as env:
        starts = [env.reset(seed=seed)[1]["x"] for seed in range(100)]
        assert 40 <= starts.count(40) <= 70, "half of them, and some of the others by chance"


def test_reached_states_are_kept_after_a_reset_to_a_given_state() -> None:
    route = [int(action) for action in load_routes()["1-1"][:60]]
    with playing(start="reached", begin_share=1.0) as env:
        assert env.reset()[1]["x"] == 40
        for action in route:
            env.step(action)
        assert len(env._start_states["1-1"]) > 1
        assert {env.reset(seed=seed)[1]["x"] for seed in range(5)} == {40}
        state = env.save()
    with playing(start="reached") as env:  # from a state, before any other reset
        assert env.reset(options={"state": state})[1]["x"] == 40
        for action in route:
            env.step(action)
        starts = {env.reset(seed=seed)[1]["x"] for seed in range(30)}
        assert min(starts) == 40
        assert len(starts) > 1


def test_closed_environment_raises() -> None:
    with playing() as env:
        env.reset()
    for call in (env.reset, env.save):
        with pytest.raises(HotloopError, match="the emulator was closed: make a new environment"):
            call()


def test_reset_to_a_saved_state() -> None:
    with playing() as env:
        env.reset()
        for _ in range(15):
            *_, info = env.step(RUN)
        state, x = env.save(), info["x"]
        after = [env.step(RUN_JUMP)[4]["x"] for _ in range(10)]
        env.reset()
        _, info = env.reset(options={"state": state})
        assert 0 <= info["x"] - x <= 3
        again = [env.step(RUN_JUMP)[4]["x"] for _ in range(10)]
        assert abs(again[-1] - after[-1]) <= 6
        assert env.reset(options={"level": "1-3"})[1]["level"] == "1-3"


def test_max_steps_truncates() -> None:
    with playing(max_steps=3) as env:
        env.reset()
        ends = [env.step(0)[2:4] for _ in range(3)]
        assert ends == [(False, False), (False, False), (False, True)]


@pytest.mark.parametrize("policy", ["random", "right and jump", "right and jump by turns"])
def test_blind_play_does_not_finish_the_first_level(policy: str) -> None:
    rng = np.random.default_rng(5)
    with playing(noops=30, sticky=0.25) as env:
        for episode in range(8):
            env.reset(seed=episode)
            terminated, step, info = False, 0, {}
            while not terminated:
                step += 1
                action = RUN_JUMP
                if policy == "random":
                    action = int(rng.integers(7))
                elif policy == "right and jump by turns":
                    action = RUN_JUMP if step % 8 else RUN
                *_, terminated, _, info = env.step(action)
            assert not info["flag"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 96}, "size is 96: give one of 84, 128"),
        ({"actions": "all"}, "actions is 'all': give one of simple, complex"),
        ({"skip": 0}, "skip is 0: give a whole number from 1 to 10000"),
        ({"level": "first"}, "level is 'first': give a world and a level such as 1-2, or random"),
        ({"level": "2-1"}, "level is '2-1': give one of 1-1, 1-2, 1-3, 1-4"),
        ({"sticky": 1.0}, "sticky is 1.0: give a number from 0 to below 1"),
        ({"begin_share": 1.5}, "begin_share is 1.5: give a number from 0 to 1"),
        ({"rewards": 3}, "rewards is 3: give MarioRewards"),
        ({"colour": "grey"}, "Mario has no option 'colour': there are rom, rom_unchecked, level"),
        ({"render_mode": "human"}, "render_mode is 'human': give one of rgb_array"),
        ({"rom": "/nowhere/game.nes"}, "cannot be read"),
    ],
)
def test_invalid_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(HotloopError, match=message):
        MarioEnv(**options)


@pytest.mark.parametrize("action", [7, -1, 1.5, "A"])
def test_invalid_actions(action: Any) -> None:
    with playing() as env:
        with pytest.raises(HotloopError, match="call reset first"):
            env.step(0)
        env.reset()
        with pytest.raises(HotloopError, match="give a whole number from 0 to 6"):
            env.step(action)


def test_config_is_validated_on_creation() -> None:
    with pytest.raises(HotloopError, match="rewards: flag is 'much': give a number"):
        MarioConfig(rewards=MarioRewards(flag="much"))  # type: ignore[arg-type]
