"""Find a way to the flag of each level by beam search with saved states, and write the actions down.

Usage: route.py OUT.json [LEVEL ...]. Needs hotloop[nes]. A way found shows that the level can be finished; the routes
also give the environment its places along a level (`start="route"`). Run it again whenever the game has changed.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from hotloop.training.envs.nes import memory_layout
from hotloop.training.envs.nes.config import SIMPLE, parse_level
from hotloop.training.envs.nes.emulator import Emulator, mask_of
from hotloop.training.envs.nes.rom import RUNNER
from hotloop.training.envs.nes.start_states import ROUTE_SKIP, RUNNER_LEVELS, start_level

HOLD = 2
"""Steps for which a choice is held."""

CHOICES = (4, 3, 2, 0, 6)
"""Run and jump, run, jump, wait, back: numbers in `SIMPLE`."""

ABOUT = "By level, an action of SIMPLE for each step of 4 frames from the first frame of the level to the flag."
WIDTH = 24
DEPTH = 400


@dataclass(frozen=True)
class Node:
    """A place reached."""

    state: bytes
    route: str
    x: int
    cell: tuple[int, int, int]


def search(emulator: Emulator, level: str, width: int = WIDTH) -> str | None:
    """Return a route to the flag, or None."""
    masks = [mask_of(*buttons) for buttons in SIMPLE]
    begin = start_level(emulator, *parse_level(level), runner=True)
    beam = [Node(begin, "", 0, (0, 0, 0))]
    for depth in range(DEPTH):
        found: dict[tuple[int, int, int], Node] = {}
        for node in beam:
            for choice in CHOICES:
                emulator.load(node.state)
                emulator.press(masks[choice])
                route, ram = node.route, emulator.ram
                for _ in range(HOLD):
                    emulator.run(ROUTE_SKIP)
                    route += str(choice)
                    status = memory_layout.read_status(ram)
                    if status.flag:
                        return route
                cell = (status.x // 12, int(ram[memory_layout.Y]) // 12, int(ram[memory_layout.FLOAT_STATE]))
                if not status.dead and (cell not in found or status.x > found[cell].x):
                    found[cell] = Node(emulator.save(), route, status.x, cell)
        beam = sorted(found.values(), key=lambda node: -node.x)[:width]
        if not beam:
            return None
        if depth % 20 == 0:
            print(f"{level}: step {depth * HOLD}, x {beam[0].x}", file=sys.stderr, flush=True)
    return None


def main() -> None:
    """Search each level; those that were not asked for are kept as they are."""
    out = Path(sys.argv[1])
    routes: dict[str, str] = json.loads(out.read_text())["routes"] if out.exists() else {}
    emulator = Emulator(RUNNER)
    for level in sys.argv[2:] or RUNNER_LEVELS:
        route = search(emulator, level) or search(emulator, level, 3 * WIDTH)
        if route is None:
            raise SystemExit(f"no way to the flag of {level} was found")
        print(f"{level}: the flag in {len(route)} steps", file=sys.stderr)
        routes[level] = route
        out.write_text(
            json.dumps({"schema": 1, "about": ABOUT, "routes": dict(sorted(routes.items()))}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
