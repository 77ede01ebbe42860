"""Super Mario Bros., or our own `runner`, behind Gymnasium's `Env`: one level, one life, single grey frames."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from hotloop.errors import HotloopError
from hotloop.spans import span
from hotloop.training.envs.nes import memory_layout
from hotloop.training.envs.nes.config import ACTIONS, RANDOM, build, one_of, parse_level
from hotloop.training.envs.nes.emulator import Emulator, mask_of
from hotloop.training.envs.nes.rom import find_rom, is_runner
from hotloop.training.envs.nes.start_states import (
    CARTRIDGE_LEVELS,
    RUNNER_LEVELS,
    SPACING,
    begin_level,
    load_routes,
    places_along,
)

Array = NDArray[Any]
RENDER_MODES = ("rgb_array",)
FASTEST = 4
"""Pixels a frame that can be run; a larger change of position is a jump of the game's, and is counted as this much."""

SURVIVE = 20
"""Steps for which the player must live on for a state to be kept: in some places death is certain already."""


class MarioEnv(gymnasium.Env[Array, Any]):
    """A level of a side-scroller on an NES.

    Observations are single frames: stacking them is left to replay, which then keeps each frame once. Each is fresh
    memory. There can be one in a process, as there can be one emulator.

    Args:
        render_mode: "rgb_array" or None. What `render` returns is the console's picture, 240×224.
        options: The fields of `MarioConfig`: rom, rom_unchecked, level, actions, skip, size, start, begin_share,
            patience, max_steps, noops, sticky, rewards.
    """

    metadata: dict[str, Any] = {"render_modes": list(RENDER_MODES), "render_fps": 15}  # noqa: RUF012 as Gymnasium has it

    def __init__(self, *, render_mode: str | None = None, **options: Any) -> None:
        self.config = config = build(options)
        if render_mode is not None:
            one_of("render_mode", render_mode, RENDER_MODES)
        rom = find_rom(config.rom, unchecked=config.rom_unchecked)
        self._runner = is_runner(rom)
        self.levels = RUNNER_LEVELS if self._runner else CARTRIDGE_LEVELS
        if config.level != RANDOM:
            one_of("level", config.level, self.levels)
        if config.start == "route" and not self._runner:
            raise HotloopError("start is 'route', and routes are known for runner only: give 'begin' or 'reached'")
        # Only now, as numba compiles.
        from hotloop.training.envs.nes.preprocess import Shrinker

        self.render_mode = render_mode
        self.observation_space = spaces.Box(0, 255, (config.size, config.size), np.uint8)
        self.action_space = spaces.Discrete(len(ACTIONS[config.actions]))
        self._emulator = Emulator(rom)
        self._masks = [mask_of(*buttons) for buttons in ACTIONS[config.actions]]
        self._earlier = self._emulator.pixels.copy()
        self._shrink = Shrinker(self._earlier.shape, config.size)
        self._begins: dict[str, bytes] = {}
        self._places: dict[str, list[bytes]] = {}
        self._level = config.level
        self._x = self._furthest = self._steps = self._frames = self._waiting = self._action = 0
        self._candidate: tuple[bytes, int] | None = None
        self._over: bool | None = None
        self._console, self._drawing = span("env.emulator"), span("env.observe")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: Of the level, the place, the no-ops and the repeated actions; without it the random numbers go on.
            options: `{"level": "1-2"}` for this level, `{"state": ...}` to go on from what `save` returned; the latter
                does not say which level it is, so give both unless it is the level of the configuration.
        """
        super().reset(seed=seed)
        options = options or {}
        self._level = self._choose_level(options.get("level", self.config.level))
        state = options.get("state")
        if state is None:
            state = self._choose_place()
        elif self.config.start == "reached":
            self._find_begin()  # before the state is loaded: the console is needed for it
        self._emulator.load(state)
        self._emulator.press(self._masks[0])
        noops = int(self.np_random.integers(self.config.noops + 1)) if self.config.noops else 0
        self._emulator.run(1 + noops)
        where = memory_layout.look(self._emulator.ram)
        self._x = self._furthest = where.x
        self._candidate = None
        self._steps = self._waiting = self._action = 0
        self._frames = 1 + noops
        self._over = False
        pixels = self._emulator.pixels
        return self._shrink(pixels, pixels), self._info(where)

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
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
        with self._console:
            emulator.press(mask)
            if config.skip > 1:
                emulator.run(config.skip - 1)
                np.copyto(self._earlier, emulator.pixels)
            emulator.run()
        self._steps += 1
        self._frames += config.skip
        where = memory_layout.look(emulator.ram)
        reward, cause = self._judge(where)
        terminated = cause is not None
        truncated = not terminated and 0 < config.max_steps <= self._steps
        self._over = terminated or truncated
        with self._drawing:
            pixels = emulator.pixels
            observation = self._shrink(pixels, self._earlier if config.skip > 1 else pixels)
        info = self._info(where)
        if self._over:
            info["cause"] = cause or "limit"
            info["flag"] = where.flag
        elif config.start == "reached":
            self._keep_place(where)
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
        """Give up the emulator, so that another environment can have one."""
        self._emulator.close()
        self._over = None

    def _judge(self, where: memory_layout.Where) -> tuple[float, str | None]:
        """Return the reward of a step, and why the episode ends, if it does."""
        rewards, most = self.config.rewards, FASTEST * self.config.skip
        reward = rewards.progress * min(max(where.x - self._x, -most), most)
        self._x = where.x
        if where.flag:
            self._furthest = max(self._furthest, where.x)
            return reward + rewards.flag, "flag"
        if where.dead:
            return reward + rewards.death, "death"
        if where.x > self._furthest:
            self._furthest, self._waiting = where.x, 0
            return reward, None
        self._waiting += 1
        if self._waiting >= self.config.patience:
            return reward + rewards.deadlock, "deadlock"
        return reward, None

    def _info(self, where: memory_layout.Where) -> dict[str, Any]:
        info: dict[str, Any] = memory_layout.details(self._emulator.ram)
        info.update(x=where.x, distance=self._furthest, level=self._level, steps=self._steps, frames=self._frames)
        return info

    def _choose_level(self, level: object) -> str:
        if level == RANDOM:
            return self.levels[int(self.np_random.integers(len(self.levels)))]
        one_of("level", level, self.levels)
        return str(level)

    def _choose_place(self) -> bytes:
        """Return the state that an episode of this level begins with."""
        level, begin = self._level, self._find_begin()
        if self.config.start == "begin":
            return begin
        if self.config.begin_share and self.np_random.random() < self.config.begin_share:
            return begin
        if level not in self._places:
            self._places[level] = places_along(self._emulator, begin, load_routes()[level])
        places = self._places[level]
        return places[int(self.np_random.integers(len(places)))]

    def _find_begin(self) -> bytes:
        """Return the state at the beginning of this level; where places are kept as they are reached, the first."""
        level = self._level
        if level not in self._begins:
            self._begins[level] = begin_level(self._emulator, *parse_level(level), runner=self._runner)
            if self.config.start == "reached":
                self._places[level] = [self._begins[level]]
        return self._begins[level]

    def _keep_place(self, where: memory_layout.Where) -> None:
        """Keep the state if the player stands further along than in any that is kept, and then lives on for a while."""
        places = self._places[self._level]
        if self._candidate is not None:
            state, step = self._candidate
            if self._steps - step >= SURVIVE:
                places.append(state)
                self._candidate = None
        elif where.x >= len(places) * SPACING and memory_layout.is_standing(self._emulator.ram):
            self._candidate = (self._emulator.save(), self._steps)
