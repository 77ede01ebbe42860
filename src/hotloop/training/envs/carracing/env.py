"""CarRacing behind Gymnasium's `Env`: the official game and physics with our own, faster renderer."""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from hotloop.errors import HotloopError
from hotloop.spans import span
from hotloop.training.envs.carracing.config import ACTION_FORMS, CarRacingConfig
from hotloop.training.envs.gym_types import Info, Observations
from hotloop.training.envs.validate import build_config, check_render_mode

Action = np.ndarray | np.integer | int
"""Two or three numbers, or the number of a discrete action."""

RENDER_MODES = ("rgb_array",)


class CarRacingEnv(gymnasium.Env[np.ndarray, Action]):
    """One car on one track. Track and physics are those of Gymnasium's CarRacing-v3 with the same seed.

    Observations are single frames in newly allocated arrays. Stacking is left to the replay buffer, which then stores
    each frame once.

    Args:
        render_mode: "rgb_array" or None. `render` returns Gymnasium's own picture, 600×400.
        options: The fields of `CarRacingConfig`: state, size, colour, supersample, indicators, action_form,
            action_repeat, max_frames, patience, lap_complete_percent, domain_randomize.
    """

    metadata = {"render_modes": list(RENDER_MODES), "render_fps": 50}  # noqa: RUF012 as Gymnasium has it

    def __init__(self, *, render_mode: str | None = None, **options: Any) -> None:
        self.config = build_config("CarRacing", CarRacingConfig, options)
        check_render_mode(render_mode, RENDER_MODES)
        # Imported here because it needs Box2D and compiles the kernels.
        from hotloop.training.envs.carracing.observation import Observer, new_game

        self.render_mode = render_mode
        self.observation_space = observation_space(self.config)
        self.action_space = action_space(self.config)
        self._game = new_game(self.config, render_mode)
        self._observer = Observer(self._game, self.config)
        self._numbers = 0 if self.config.action_form == "discrete" else ACTION_FORMS[self.config.action_form]
        self._frames = self._tiles = self._last_tile = 0
        self._over: bool | None = None
        self._physics, self._drawing = span("env.physics"), span("env.render")

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Observations, Info]:
        """Start an episode on a new track; without a seed the random stream continues.

        As in Gymnasium, `options={"randomize": False}` keeps the colours of `domain_randomize`.
        """
        super().reset(seed=seed)
        self._game.reset(seed=seed, options=options)
        self._observer.start_episode()
        self._frames = self._tiles = self._last_tile = 0
        self._over = False
        return self._observer.observe(), self._info()

    def step(self, action: Action) -> tuple[Observations, float, bool, bool, Info]:
        """Drive for `action_repeat` frames, fewer if the episode ends; the reward is their sum.

        Returns:
            Observation after the last frame, reward, terminated, truncated, and an info with the number of `frames` and
            of visited `tiles` in the episode, and at its end `lap_finished`.
        """
        if self._over is not False:
            raise HotloopError("step was called before reset, or after the end of an episode: call reset first")
        control = self._to_control(action)
        reward, terminated, truncated, game_info = 0.0, False, False, {}
        with self._physics:
            for _ in range(self.config.action_repeat):
                _, frame_reward, terminated, _, game_info = self._game.step(control)
                reward += float(frame_reward)
                self._frames += 1
                truncated = not terminated and (self._frames >= self.config.max_frames or self._is_stuck())
                if terminated or truncated:
                    break
        self._over = terminated or truncated
        with self._drawing:
            observation = self._observer.observe()
        return observation, reward, terminated, truncated, self._info() | game_info

    def render(self) -> NDArray[np.uint8] | None:
        """Return Gymnasium's own picture, uint8 [400, 600, 3], or None without a render mode."""
        if self.render_mode is None or self._over is None:
            return None
        picture = self._game.render()
        assert isinstance(picture, np.ndarray)
        return picture

    def close(self) -> None:
        """Close the game."""
        self._game.close()

    def _is_stuck(self) -> bool:
        """Return whether there was no new tile for `patience` frames."""
        if self._game.tile_visited_count != self._tiles:
            self._tiles, self._last_tile = self._game.tile_visited_count, self._frames
        return 0 < self.config.patience <= self._frames - self._last_tile

    def _info(self) -> Info:
        return {"frames": self._frames, "tiles": self._game.tile_visited_count}

    def _to_control(self, action: Action) -> NDArray[np.float64] | int:
        if self._numbers == 0:
            if not self.action_space.contains(action):
                raise HotloopError(f"action is {action!r}: give a whole number from 0 to 4")
            return int(action)
        # Plain floats: numpy's clip of three numbers would take as long as everything else here.
        numbers = np.asarray(action, np.float64).tolist()
        if not isinstance(numbers, list) or len(numbers) != self._numbers or not all(map(math.isfinite, numbers)):
            raise HotloopError(f"action is {action!r}: give {self._numbers} finite numbers")
        steer = min(max(numbers[0], -1.0), 1.0)
        gas, brake = (numbers[1], numbers[2]) if self._numbers == 3 else (numbers[1], -numbers[1])
        return np.array([steer, min(max(gas, 0.0), 1.0), min(max(brake, 0.0), 1.0)])


def observation_space(config: CarRacingConfig) -> spaces.Box:
    """Return the observation space of one car."""
    if config.state == "vector":
        return spaces.Box(-np.inf, np.inf, config.observation_shape, np.float32)
    return spaces.Box(0, 255, config.observation_shape, np.uint8)


def action_space(config: CarRacingConfig) -> spaces.Discrete | spaces.Box:
    """Return the action space of one car."""
    if config.action_form == "discrete":
        return spaces.Discrete(ACTION_FORMS["discrete"])
    if config.action_form == "two":
        return spaces.Box(-1.0, 1.0, (2,), np.float32)
    return spaces.Box(np.array([-1, 0, 0], np.float32), np.ones(3, np.float32))
