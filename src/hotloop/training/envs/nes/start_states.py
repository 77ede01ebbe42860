"""Where episodes begin: states of the console at the beginning of a level, and along it.

No state is shipped, for they depend on the version of the core: the beginning of a level is reached through the title
screen, places along it by playing a route, a list of actions that is known to reach the flag.
"""

from __future__ import annotations

import json
from pathlib import Path

from hotloop.errors import HotloopError
from hotloop.training.envs.nes import memory_layout
from hotloop.training.envs.nes.config import SIMPLE
from hotloop.training.envs.nes.emulator import Emulator, mask_of
from hotloop.training.envs.nes.rom import RUNNER

ROUTES = RUNNER.with_suffix(".routes.json")
ROUTE_SKIP = 4
"""Frames for which an action of a route is held."""

SPACING = 128
"""Pixels between places."""

START_LIMIT = 3000
"""Frames within which a level must have begun."""

RUNNER_LEVELS = tuple(f"1-{stage}" for stage in range(1, 5))
CARTRIDGE_LEVELS = tuple(f"{world}-{stage}" for world in range(1, 9) for stage in range(1, 5))
LONGER_WORLDS = (1, 2, 4, 7)
"""In these worlds of the cartridge the second level has an area of its own before it, which is counted as one."""


def begin_level(emulator: Emulator, world: int, stage: int, runner: bool) -> bytes:
    """Switch the console on, choose a level on the title screen and start it; return the state at its first frame."""
    area = stage + (not runner and stage > 1 and world in LONGER_WORLDS)
    emulator.load(emulator.power_on)
    start, nothing = mask_of("START"), mask_of()
    ram = emulator.ram
    for frame in range(START_LIMIT):
        pressed = ram[memory_layout.MODE] == memory_layout.MODE_TITLE and frame % 16 >= 12
        emulator.press(start if pressed else nothing)
        if frame > 8:  # the game has cleared its memory by then
            ram[memory_layout.WORLD], ram[memory_layout.STAGE], ram[memory_layout.AREA] = world - 1, stage - 1, area - 1
        emulator.run()
        if memory_layout.is_playing(ram):
            emulator.press(nothing)
            return emulator.save()
    raise HotloopError(f"level {world}-{stage} did not begin within {START_LIMIT} frames: is this the right cartridge?")


def load_routes(path: Path = ROUTES) -> dict[str, str]:
    """Return the routes of `runner`: by level, a digit for each step of `ROUTE_SKIP` frames, an action of `SIMPLE`."""
    return json.loads(path.read_text())["routes"]


def places_along(emulator: Emulator, begin: bytes, route: str) -> list[bytes]:
    """Play a route from the beginning of a level; return states where the player stood, some `SPACING` pixels apart."""
    masks = [mask_of(*buttons) for buttons in SIMPLE]
    emulator.load(begin)
    places, next_x = [begin], memory_layout.look(emulator.ram).x + SPACING
    for action in route:
        emulator.press(masks[int(action)])
        emulator.run(ROUTE_SKIP)
        where = memory_layout.look(emulator.ram)
        if where.dead or where.flag:
            break
        if where.x >= next_x and memory_layout.is_standing(emulator.ram):
            places.append(emulator.save())
            next_x = where.x + SPACING
    return places
