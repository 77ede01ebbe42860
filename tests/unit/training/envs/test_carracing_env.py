"""CarRacing behind Gymnasium's Env: the official game with our renderer."""

from __future__ import annotations

import subprocess
import sys
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

pytest.importorskip("Box2D")

from gymnasium.envs.box2d.car_racing import CarRacing

import hotloop.training.envs
from hotloop.errors import HotloopError
from hotloop.training.envs.carracing import CarRacingConfig, CarRacingEnv
from hotloop.training.envs.carracing.centre_line_driver import drive
from hotloop.training.envs.carracing.score_digits import shrink, stamp, write


def drives(seed: int, frames: int, **options: Any) -> list[np.ndarray]:
    """Actions of the driver with noise, so that wheels also leave the road."""
    env, rng = CarRacingEnv(state="vector", **options), np.random.default_rng(seed)
    numbers, _ = env.reset(seed=seed)
    actions = []
    for _ in range(frames):
        actions.append(np.clip(drive(numbers) + rng.normal(0, 0.2, 3), [-1, 0, 0], 1).astype(np.float32))
        numbers, *_ = env.step(actions[-1])
    return actions


def test_same_game_and_nearly_same_picture_as_gymnasium() -> None:
    """Rewards and positions are bit-identical, and pixels differ by less than 0.5 of 255 on average."""
    official, ours = CarRacing(), CarRacingEnv(colour="rgb")
    theirs, _ = official.reset(seed=5)
    own, _ = ours.reset(seed=5)
    differences = [np.abs(theirs.astype(float) - own).mean()]
    for action in drives(5, 90):
        theirs, reward, terminated, _, _ = official.step(action)
        own, our_reward, our_end, _, _ = ours.step(action)
        assert (our_reward, our_end) == (reward, terminated)
        differences.append(np.abs(theirs.astype(float) - own).mean())
    assert official.car is not None and ours._game.car is not None
    assert tuple(ours._game.car.hull.position) == tuple(official.car.hull.position)
    assert ours._game.tile_visited_count == official.tile_visited_count > 5
    assert max(differences) < 1.0
    assert np.mean(differences) < 0.4


def test_flat_colours_match_the_official_picture() -> None:
    """Check grass, grass squares, road and the black strip, which make up most of any picture."""
    official, ours = CarRacing(), CarRacingEnv(colour="rgb")
    official.reset(seed=5)
    ours.reset(seed=5)
    for action in drives(5, 60):
        theirs, *_ = official.step(action)
        own, *_ = ours.step(action)
    for colour in ([100, 202, 100], [100, 228, 100], [100, 100, 100], [0, 0, 0]):
        there, here = (theirs == colour).all(axis=2), (own == colour).all(axis=2)
        assert there.sum() > 50
        assert (there & here).sum() > 0.95 * there.sum()


def test_render_returns_gymnasiums_picture() -> None:
    official, ours = CarRacing(render_mode="rgb_array"), CarRacingEnv(render_mode="rgb_array")
    assert ours.render() is None
    official.reset(seed=2)
    ours.reset(seed=2)
    for action in drives(2, 20):
        official.step(action)
        ours.step(action)
    np.testing.assert_array_equal(ours.render(), official.render())
    assert CarRacingEnv().render() is None


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ({}, (96, 96)),
        ({"size": 84}, (84, 84)),
        ({"size": 64, "colour": "rgb", "supersample": 4}, (64, 64, 3)),
        ({"state": "vector"}, (36,)),
    ],
)
def test_shapes(options: dict[str, Any], shape: tuple[int, ...]) -> None:
    env = CarRacingEnv(**options)
    observation, info = env.reset(seed=1)
    assert observation.shape == shape == env.config.observation_shape
    assert observation in env.observation_space
    assert info == {"frames": 0, "tiles": env._game.tile_visited_count}
    again = env.step(np.array([0, 1, 0], np.float32))[0]
    assert again in env.observation_space
    assert not np.shares_memory(observation, again)


def test_grey_is_the_weighted_mean_of_the_colours() -> None:
    grey, rgb = (
        CarRacingEnv(indicators=False, supersample=1),
        CarRacingEnv(indicators=False, supersample=1, colour="rgb"),
    )
    left, right = grey.reset(seed=3)[0], rgb.reset(seed=3)[0]
    np.testing.assert_array_equal(left, (right @ [0.299, 0.587, 0.114] + 0.5).astype(np.uint8))


def test_without_indicators_ground_fills_the_strip() -> None:
    shown, bare = CarRacingEnv(), CarRacingEnv(indicators=False)
    shown.reset(seed=1)
    bare.reset(seed=1)
    for _ in range(60):
        with_strip = shown.step(np.zeros(3, np.float32))[0]
        without = bare.step(np.zeros(3, np.float32))[0]
    np.testing.assert_array_equal(with_strip[:84], without[:84])
    assert (with_strip[85] == 0).all()
    assert (without[84:] > 0).all()


def test_two_value_actions_match_three_value_actions() -> None:
    three, two = CarRacingEnv(state="vector"), CarRacingEnv(state="vector", action_form="two")
    three.reset(seed=1)
    two.reset(seed=1)
    for steer, push in [(0.1, 0.8)] * 30 + [(-0.5, -0.3)] * 10:
        right = three.step(np.array([steer, max(push, 0), max(-push, 0)]))
        left = two.step(np.array([steer, push]))
        np.testing.assert_array_equal(left[0], right[0])
        assert left[1] == right[1]


def test_discrete_actions_match_gymnasium() -> None:
    official, ours = CarRacing(continuous=False), CarRacingEnv(action_form="discrete", state="vector")
    official.reset(seed=1)
    ours.reset(seed=1)
    for action in [3] * 20 + [1, 2, 4, 0]:
        assert ours.step(action)[1] == official.step(action)[1]
    assert official.car is not None
    assert ours._game.car.hull.angle == official.car.hull.angle  # pyright: ignore[reportOptionalMemberAccess]
    with pytest.raises(HotloopError, match="action is 5: give a whole number from 0 to 4"):
        ours.step(5)


def test_action_repeat_sums_rewards_and_draws_the_last_frame() -> None:
    once, four = CarRacingEnv(), CarRacingEnv(action_repeat=4)
    once.reset(seed=1)
    four.reset(seed=1)
    for action in drives(1, 10):
        rewards = 0.0
        for _ in range(4):
            observation, reward, *_ = once.step(action)
            rewards += reward
        together = four.step(action)
        np.testing.assert_array_equal(together[0], observation)
        assert together[1] == rewards
    assert together[4]["frames"] == 40


def test_frame_limit_truncates_within_an_action_repeat() -> None:
    env = CarRacingEnv(state="vector", max_frames=10, action_repeat=4)
    env.reset(seed=1)
    ends = [env.step(np.zeros(3))[2:] for _ in range(3)]
    assert [each[:2] for each in ends] == [(False, False), (False, False), (False, True)]
    assert ends[-1][2]["frames"] == 10
    with pytest.raises(HotloopError, match="after the end of an episode: call reset first"):
        env.step(np.zeros(3))
    env.reset()
    env.step(np.zeros(3))


def test_leaving_the_field_is_terminated() -> None:
    env = CarRacingEnv(state="vector", max_frames=5000)
    env.reset(seed=1)
    env._game.car.hull.position = (400.0, 0.0)  # pyright: ignore[reportOptionalMemberAccess]
    _, reward, terminated, truncated, info = env.step(np.zeros(3))
    assert (reward, terminated, truncated, info["lap_finished"]) == (-100.0, True, False, False)


def test_vector_state_describes_the_road() -> None:
    env = CarRacingEnv(state="vector")
    numbers, _ = env.reset(seed=1)
    assert numbers[8:12].tolist() == [1, 1, 1, 1]
    assert abs(numbers[12]) < 0.2
    assert numbers[14] > 0.95
    assert (numbers[17::2] > 0).all()
    for _ in range(300):
        numbers, *_ = env.step(np.array([1.0, 0.3, 0.0]))
    assert numbers[8:12].sum() < 4


def test_driver_finishes_laps() -> None:
    env = CarRacingEnv(state="vector")
    numbers, _ = env.reset(seed=3)
    total, over = 0.0, False
    while not over:
        numbers, reward, terminated, truncated, info = env.step(drive(numbers))
        total += reward
        over = terminated or truncated
    assert info["lap_finished"]
    assert total > 900


def test_domain_randomize_changes_colours() -> None:
    env = CarRacingEnv(colour="rgb", domain_randomize=True)
    first, second = env.reset(seed=1)[0], env.reset()[0]
    kept = env.reset(options={"randomize": False})[0]
    colours = [tuple(picture[40, 10]) for picture in (first, second, kept)]
    assert colours[0] != colours[1]
    assert colours[1] == colours[2]


@pytest.mark.parametrize(
    "options",
    [{}, {"colour": "rgb", "size": 64}, {"state": "vector"}, {"action_form": "two"}, {"action_form": "discrete"}],
)
def test_gymnasiums_checker(options: dict[str, Any]) -> None:
    env = gymnasium.make(hotloop.training.envs.CARRACING_ID, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Gymnasium warns that two of its own three actions are not symmetric.
        warnings.filterwarnings("ignore", message=".*symmetric and normalized space.*")
        # The numbers have no bounds: a spinning car may turn at any speed.
        warnings.filterwarnings("ignore", message=".*Box observation space (minimum|maximum) value is -?infinity.*")
        check_env(env.unwrapped)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"state": "pixels"}, "state is 'pixels': give one of visual, vector"),
        ({"size": 100}, "size is 100: give one of 64, 84, 96"),
        ({"colour": "blue"}, "colour is 'blue': give one of grey, rgb"),
        ({"supersample": 3}, "supersample is 3: give one of 1, 2, 4"),
        ({"supersample": True}, "supersample is True"),
        ({"action_form": "four"}, "action_form is 'four': give one of three, two, discrete"),
        ({"action_repeat": 0}, "action_repeat is 0: give a whole number of at least 1"),
        ({"max_frames": 1.5}, "max_frames is 1.5"),
        ({"lap_complete_percent": 95}, "lap_complete_percent is 95: give a number from 0 to 1"),
        ({"grey": True}, "CarRacing has no option 'grey': there are state, size, colour"),
        ({"render_mode": "human"}, "render_mode is 'human': give rgb_array, or None"),
    ],
)
def test_invalid_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(HotloopError, match=message):
        CarRacingEnv(**options)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        ([0.0, 0.0], "give 3 finite numbers"),
        ([0.0, np.nan, 0.0], "give 3 finite numbers"),
        (1, "give 3 finite numbers"),
    ],
)
def test_invalid_actions(action: Any, message: str) -> None:
    env = CarRacingEnv()
    with pytest.raises(HotloopError, match="call reset first"):
        env.step(np.zeros(3))
    env.reset(seed=1)
    with pytest.raises(HotloopError, match=message):
        env.step(action)


def test_missing_box2d_is_a_clear_error() -> None:
    """Importing and configuring still work; only making an environment needs Box2D."""
    program = (
        "import sys; sys.modules['Box2D'] = None\n"
        "import gymnasium, hotloop.training.envs, hotloop.training.envs.carracing\n"
        "from hotloop.errors import DependencyMissing\n"
        "hotloop.training.envs.carracing.CarRacingConfig(state='vector')\n"
        "for make in (gymnasium.make, gymnasium.make_vec):\n"
        "    try: make('hotloop/CarRacing-v0')\n"
        "    except DependencyMissing as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert line.startswith("CarRacing needs Box2D and pygame, which are not both installed")
        assert line.endswith('pip install "hotloop[carracing]"')


def test_registering_loads_neither_numba_nor_box2d() -> None:
    program = (
        "import sys, gymnasium, hotloop.training.envs;"
        "assert not {'numba', 'torch', 'Box2D', 'pygame'} & set(sys.modules);"
        "env = gymnasium.make('hotloop/CarRacing-v0', state='vector');"
        "assert 'torch' not in sys.modules; print(env.observation_space.shape)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "(36,)\n"


def test_config_is_validated_on_creation() -> None:
    with pytest.raises(HotloopError, match="state is 'pixel'"):
        CarRacingConfig(state="pixel")


def test_score() -> None:
    row, column, pixels = stamp(-7, 96)
    assert pixels.dtype == np.uint8
    assert (row, column) == (87, 1)
    assert 0 < pixels.max() < 254
    assert stamp(-7, 96) is stamp(-7, 96)
    assert write("1").shape[1] < write("11").shape[1] < write("111").shape[1]


def test_shrinking_preserves_the_sum() -> None:
    first, weights = shrink(5, 7.0, 4.0)
    assert first == 1
    assert weights.tolist() == [[0.25, 0, 0, 0, 0], [0, 0.25, 0.25, 0.25, 0.25]]
