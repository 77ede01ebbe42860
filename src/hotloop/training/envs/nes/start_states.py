"""Makes the console states at which episodes start: at the beginning of a level and along it.

No state is shipped, because states depend on the version of the core. The beginning of a level is reached through the
title screen, later states by playing a route, a list of actions that is known to reach the flag.
"""

from __future__ import annotations

import json

from hotloop.errors import HotloopError
from hotloop.training.envs.nes import memory_layout
from hotloop.training.envs.nes.config import SIMPLE
from hotloop.training.envs.nes.emulator import Emulator, mask_of
from hotloop.training.envs.nes.rom import RUNNER

ROUTES = RUNNER.with_suffix(".routes.json")
ROUTE_SKIP = 4
"""Number of frames for which an action of a route is held."""

SPACING = 128
"""Pixels between start states along a level."""

START_LIMIT = 3000
"""Number of frames within which a level must start."""

RUNNER_LEVELS = tuple(f"1-{stage}" for stage in range(1, 5))
CARTRIDGE_LEVELS = tuple(f"{world}-{stage}" for world in range(1, 9) for stage in range(1, 5))
LONGER_WORLDS = (1, 2, 4, 7)
"""In these worlds of the cartridge an extra area before the second level shifts the area numbers by one."""


def start_level(emulator: Emulator, world: int, stage: int, runner: bool) -> bytes:
    """Power on, select a level on the title screen and start it; return the state at its first frame."""
    area = stage + (not runner and stage > 1 and world in LONGER_WORLDS)
    emulator.load(emulator.power_on)
    start, no_buttons = mask_of("START"), mask_of()
    ram = emulator.ram
    for frame in range(START_LIMIT):
        pressed = ram[memory_layout.MODE] == memory_layout.MODE_TITLE and frame % 16 >= 12
        emulator.press(start if pressed else no_buttons)
        if frame > 8:  # By then the game has cleared its memory.
            ram[memory_layout.WORLD], ram[memory_layout.STAGE], ram[memory_layout.AREA] = world - 1, stage - 1, area - 1
        emulator.run()
        if memory_layout.is_playing(ram):
            emulator.press(no_buttons)
            return emulator.save()
    raise HotloopError(f"level {world}-{stage} did not begin within {START_LIMIT} frames: is this the right cartridge?")


def load_routes() -> dict[str, str]:
    """Return the routes of `runner` by level. Each digit is an action of `SIMPLE`, held for `ROUTE_SKIP` frames."""
    return json.loads(ROUTES.read_text())["routes"]


def states_along_route(emulator: Emulator, first_state: bytes, route: str) -> list[bytes]:
    """Play a route from the start of a level; return states on the ground, about `SPACING` pixels apart."""
    masks = [mask_of(*buttons) for buttons in SIMPLE]
    emulator.load(first_state)
    states, next_x = [first_state], memory_layout.read_status(emulator.ram).x + SPACING
    for action in route:
        emulator.press(masks[int(action)])
        emulator.run(ROUTE_SKIP)
        status = memory_layout.read_status(emulator.ram)
        if status.dead or status.flag:
            break
        if status.x >= next_x and memory_layout.is_standing(emulator.ram):
            states.append(emulator.save())
            next_x = status.x + SPACING
    return states
