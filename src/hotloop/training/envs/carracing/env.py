"""CarRacing behind Gymnasium's `Env`: the official game and physics, seen through a renderer of our own."""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from hotloop.errors import HotloopError
from hotloop.spans import span
from hotloop.training.envs.carracing.config import ACTION_FORMS, CarRacingConfig, build

Array = NDArray[Any]
RENDER_MODES = ("rgb_array",)


class CarRacingEnv(gymnasium.Env[Array, Any]):
    """One car on one track. With a seed it drives the same track, by the same physics, as Gymnasium's CarRacing-v3.

    Observations are single frames: stacking them is left to replay, which then keeps each frame once. Each is fresh
    memory.

    Args:
        render_mode: "rgb_array" or None. What `render` returns is Gymnasium's own picture, 600×400.
        options: The fields of `CarRacingConfig`: state, size, colour, supersample, indicators, action_form,
            action_repeat, max_frames, patience, lap_complete_percent, domain_randomize.
    """

    metadata: dict[str, Any] = {"render_modes": list(RENDER_MODES), "render_fps": 50}  # noqa: RUF012 as Gymnasium has it

    def __init__(self, *, render_mode: str | None = None, **options: Any) -> None:
        self.config = build(options)
        check_render_mode(render_mode)
        # Only now, as it needs Box2D and compiles the kernels.
        from hotloop.training.envs.carracing.observation import Sight, new_game

        self.render_mode = render_mode
        self.observation_space = observation_space(self.config)
        self.action_space = action_space(self.config)
        self._game = new_game(self.config, render_mode)
        self._sight = Sight(self._game, self.config)
        self._numbers = 0 if self.config.action_form == "discrete" else ACTION_FORMS[self.config.action_form]
        self._frames = self._tiles = self._last_tile = 0
        self._over: bool | None = None
        self._physics, self._drawing = span("env.physics"), span("env.render")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Begin an episode on a new track; without a seed the random numbers go on.

        Args:
            seed: Of the track.
            options: Gymnasium's own: `{"randomize": False}` keeps the colours of `domain_randomize`.
        """
        super().reset(seed=seed)
        self._game.reset(seed=seed, options=options)
        self._sight.begin()
        self._frames = self._tiles = self._last_tile = 0
        self._over = False
        return self._sight.look(), self._info()

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Drive for `action_repeat` frames, fewer if the episode ends; the reward is their sum.

        Returns:
            Observation after the last frame, reward, terminated, truncated, and an info with `frames` of the episode so
            far, `tiles` visited, and at the end `lap_finished`.
        """
        if self._over is not False:
            raise HotloopError("step was called before reset, or after the end of an episode: call reset first")
        control = self._control(action)
        reward, terminated, truncated, told = 0.0, False, False, {}
        with self._physics:
            for _ in range(self.config.action_repeat):
                _, gained, terminated, _, told = self._game.step(control)
                reward += float(gained)
                self._frames += 1
                truncated = not terminated and (self._frames >= self.config.max_frames or self._is_stuck())
                if terminated or truncated:
                    break
        self._over = terminated or truncated
        with self._drawing:
            observation = self._sight.look()
        return observation, reward, terminated, truncated, self._info() | told

    def render(self) -> Any:
        """Return Gymnasium's own picture, uint8 [400, 600, 3], or None without a render mode."""
        if self.render_mode is None or self._over is None:
            return None
        return self._game.render()

    def close(self) -> None:
        """Give up the game. It has no window."""
        self._game.close()

    def _is_stuck(self) -> bool:
        """Say whether there was no new tile for longer than `patience` allows."""
        if self._game.tile_visited_count != self._tiles:
            self._tiles, self._last_tile = self._game.tile_visited_count, self._frames
        return 0 < self.config.patience <= self._frames - self._last_tile

    def _info(self) -> dict[str, Any]:
        return {"frames": self._frames, "tiles": self._game.tile_visited_count}

    def _control(self, action: Any) -> Any:
        """Turn an action of this form into one that Gymnasium's game takes."""
        if self._numbers == 0:
            if not self.action_space.contains(action):
                raise HotloopError(f"action is {action!r}: give a whole number from 0 to 4")
            return action
        # Plain floats: numpy's clip of three numbers would take as long as all other work on them.
        wanted = np.asarray(action, np.float64).tolist()
        if not isinstance(wanted, list) or len(wanted) != self._numbers or not all(map(math.isfinite, wanted)):
            raise HotloopError(f"action is {action!r}: give {self._numbers} finite numbers")
        steer = min(max(wanted[0], -1.0), 1.0)
        gas, brake = (wanted[1], wanted[2]) if self._numbers == 3 else (wanted[1], -wanted[1])
        return np.array([steer, min(max(gas, 0.0), 1.0), min(max(brake, 0.0), 1.0)])


def observation_space(config: CarRacingConfig) -> spaces.Box:
    """What the agent sees."""
    if config.state == "vector":
        return spaces.Box(-np.inf, np.inf, config.observation_shape, np.float32)
    return spaces.Box(0, 255, config.observation_shape, np.uint8)


def action_space(config: CarRacingConfig) -> spaces.Space[Any]:
    """What the agent does."""
    if config.action_form == "discrete":
        return spaces.Discrete(ACTION_FORMS["discrete"])
    if config.action_form == "two":
        return spaces.Box(-1.0, 1.0, (2,), np.float32)
    return spaces.Box(np.array([-1, 0, 0], np.float32), np.ones(3, np.float32))


def check_render_mode(mode: str | None) -> None:
    """Refuse a render mode that there is not."""
    if mode is not None and mode not in RENDER_MODES:
        raise HotloopError(f"render_mode is {mode!r}: give {', '.join(RENDER_MODES)}, or None")
