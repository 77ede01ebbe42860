"""Super Mario Bros., or our own `runner`, behind Gymnasium's `Env`: one level, one life, single grey frames."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from hotloop.errors import HotloopError
from hotloop.spans import span
from hotloop.training.envs.gym_types import Info
from hotloop.training.envs.nes import memory_layout
from hotloop.training.envs.nes.config import ACTIONS, RANDOM, MarioConfig, parse_level
from hotloop.training.envs.nes.emulator import Emulator, mask_of
from hotloop.training.envs.nes.rom import find_rom, is_runner
from hotloop.training.envs.nes.start_states import (
    CARTRIDGE_LEVELS,
    RUNNER_LEVELS,
    SPACING,
    load_routes,
    start_level,
    states_along_route,
)
from hotloop.training.envs.validate import build_config, check_choice

Array = NDArray[np.uint8]
RENDER_MODES = ("rgb_array",)
MAX_SPEED = 4
"""Fastest running speed, pixels per frame. A larger change of position (the game moves the player) is clipped to it."""

SURVIVAL_STEPS = 20
"""Steps that the player must survive after a state for it to be kept: in some states death is already certain."""


class MarioEnv(gymnasium.Env[Array, np.int64 | int]):
    """A level of a side-scroller on an NES. A process can have only one, as it can have only one emulator.

    Observations are single frames in newly allocated arrays. Stacking is left to the replay buffer, which then stores
    each frame once.

    Args:
        render_mode: "rgb_array" or None. `render` returns the console's picture, 240×224.
        options: The fields of `MarioConfig`: rom, rom_unchecked, level, actions, skip, size, start, begin_share,
            patience, max_steps, noops, sticky, rewards.
    """

    metadata = {"render_modes": list(RENDER_MODES), "render_fps": 15}  # noqa: RUF012 as Gymnasium has it

    def __init__(self, *, render_mode: str | None = None, **options: Any) -> None:
        self.config = config = build_config("Mario", MarioConfig, options)
        if render_mode is not None:
            check_choice("render_mode", render_mode, RENDER_MODES)
        rom = find_rom(config.rom, unchecked=config.rom_unchecked)
        self._runner = is_runner(rom)
        self.levels = RUNNER_LEVELS if self._runner else CARTRIDGE_LEVELS
        if config.level != RANDOM:
            check_choice("level", config.level, self.levels)
        if config.start == "route" and not self._runner:
            raise HotloopError("start is 'route', and routes are known for runner only: give 'begin' or 'reached'")
        # Imported here because it compiles kernels.
        from hotloop.training.envs.nes.preprocess import Shrinker

        self.render_mode = render_mode
        self.observation_space = spaces.Box(0, 255, (config.size, config.size), np.uint8)
        self.action_space = spaces.Discrete(len(ACTIONS[config.actions]))
        self._emulator = Emulator(rom)
        self._masks = [mask_of(*buttons) for buttons in ACTIONS[config.actions]]
        self._earlier = self._emulator.pixels.copy()
        self._shrink = Shrinker(self._earlier.shape, config.size)
        self._level_starts: dict[str, bytes] = {}
        self._start_states: dict[str, list[bytes]] = {}
        self._level = config.level
        self._x = self._furthest = self._steps = self._frames = self._stalled_steps = 0
        self._action: np.int64 | int = 0
        self._candidate: tuple[bytes, int] | None = None
        self._over: bool | None = None
        self._emulator_span, self._observe_span = span("env.emulator"), span("env.observe")

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Array, Info]:
        """Start an episode.

        The seed is that of the level, the start state, the no-ops and the repeated actions; without it the random
        stream continues. `options={"level": "1-2"}` selects a level, `{"state": ...}` continues from a state that
        `save` returned. A state does not include its level, so give both unless it is the configured level.
        """
        super().reset(seed=seed)
        options = options or {}
        self._level = self._choose_level(options.get("level", self.config.level))
        state = options.get("state")
        if state is None:
            state = self._choose_start()
        elif self.config.start == "reached":
            self._level_start()  # Uses the console, so it comes before the state is loaded.
        self._emulator.load(state)
        self._emulator.press(self._masks[0])
        noops = int(self.np_random.integers(self.config.noops + 1)) if self.config.noops else 0
        self._emulator.run(1 + noops)
        status = memory_layout.read_status(self._emulator.ram)
        self._x = self._furthest = status.x
        self._candidate = None
        self._steps = self._stalled_steps = self._action = 0
        self._frames = 1 + noops
        self._over = False
        pixels = self._emulator.pixels
        return self._shrink(pixels, pixels), self._info(status)

    def step(self, action: np.int64 | int) -> tuple[Array, float, bool, bool, Info]:
        """Hold the buttons of an action for `skip` frames.

        Returns:
            Observation, reward, terminated (death, flag or deadlock), truncated (`max_steps`), and an info with `x`,
            `y`, `distance` (furthest x), `time`, `coins`, `score`, `level`, `steps`, `frames`, and at the end `cause`
            and `flag`.
        """
        if self._over is not False:
            raise HotloopError("step was called before reset, or after the end of an episode: call reset first")
        config = self.config
        if config.sticky and self._steps and self.np_random.random() < config.sticky:
            action = self._action
        try:
            mask = self._masks[action] if action >= 0 else None
        except (IndexError, TypeError):
            mask = None
        if mask is None:
            raise HotloopError(f"action is {action!r}: give a whole number from 0 to {len(self._masks) - 1}")
        self._action = action
        emulator = self._emulator
        with self._emulator_span:
            emulator.press(mask)
            if config.skip > 1:
                emulator.run(config.skip - 1)
                np.copyto(self._earlier, emulator.pixels)
            emulator.run()
        self._steps += 1
        self._frames += config.skip
        status = memory_layout.read_status(emulator.ram)
        reward, cause = self._score_step(status)
        terminated = cause is not None
        truncated = not terminated and 0 < config.max_steps <= self._steps
        self._over = terminated or truncated
        with self._observe_span:
            pixels = emulator.pixels
            observation = self._shrink(pixels, self._earlier if config.skip > 1 else pixels)
        info = self._info(status)
        if self._over:
            info["cause"] = cause or "limit"
            info["flag"] = status.flag
        elif config.start == "reached":
            self._keep_reached_state(status)
        return observation, reward, terminated, truncated, info

    def save(self) -> bytes:
        """Return the state of the console, for `reset(options={"state": ...})`."""
        return self._emulator.save()

    def render(self) -> Array | None:
        """Return the console's last picture, uint8 [224, 240, 3], or None without a render mode."""
        if self.render_mode is None or self._over is None:
            return None
        return self._emulator.rgb()

    def close(self) -> None:
        """Release the emulator, so that another environment can have one."""
        self._emulator.close()
        self._over = None

    def _score_step(self, status: memory_layout.PlayerStatus) -> tuple[float, str | None]:
        rewards, limit = self.config.rewards, MAX_SPEED * self.config.skip
        reward = rewards.progress * min(max(status.x - self._x, -limit), limit)
        self._x = status.x
        if status.flag:
            self._furthest = max(self._furthest, status.x)
            return reward + rewards.flag, "flag"
        if status.dead:
            return reward + rewards.death, "death"
        if status.x > self._furthest:
            self._furthest, self._stalled_steps = status.x, 0
            return reward, None
        self._stalled_steps += 1
        if self._stalled_steps >= self.config.patience:
            return reward + rewards.deadlock, "deadlock"
        return reward, None

    def _info(self, status: memory_layout.PlayerStatus) -> Info:
        return {
            **memory_layout.details(self._emulator.ram),
            "x": status.x,
            "distance": self._furthest,
            "level": self._level,
            "steps": self._steps,
            "frames": self._frames,
        }

    def _choose_level(self, level: object) -> str:
        if level == RANDOM:
            return self.levels[int(self.np_random.integers(len(self.levels)))]
        check_choice("level", level, self.levels)
        return str(level)

    def _choose_start(self) -> bytes:
        level, begin = self._level, self._level_start()
        if self.config.start == "begin":
            return begin
        if self.config.begin_share and self.np_random.random() < self.config.begin_share:
            return begin
        if level not in self._start_states:
            self._start_states[level] = states_along_route(self._emulator, begin, load_routes()[level])
        states = self._start_states[level]
        return states[int(self.np_random.integers(len(states)))]

    def _level_start(self) -> bytes:
        """Return the state at the beginning of this level. With `reached`, it is also the first of the kept states."""
        level = self._level
        if level not in self._level_starts:
            self._level_starts[level] = start_level(self._emulator, *parse_level(level), runner=self._runner)
            if self.config.start == "reached":
                self._start_states[level] = [self._level_starts[level]]
        return self._level_starts[level]

    def _keep_reached_state(self, status: memory_layout.PlayerStatus) -> None:
        """Keep the state if the player is on the ground further than ever before, and survives the next steps."""
        states = self._start_states[self._level]
        if self._candidate is not None:
            state, step = self._candidate
            if self._steps - step >= SURVIVAL_STEPS:
                states.append(state)
                self._candidate = None
        elif status.x >= len(states) * SPACING and memory_layout.is_standing(self._emulator.ram):
            self._candidate = (self._emulator.save(), self._steps)
