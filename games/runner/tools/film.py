"""Play the routes and write pictures of it: film.py OUT_DIR [LEVEL ...]. A GIF for each level, and the title as PNG.

Needs hotloop[nes] and Pillow.
"""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image

from hotloop.training.envs.nes.config import SIMPLE, parse_level
from hotloop.training.envs.nes.emulator import Emulator, mask_of
from hotloop.training.envs.nes.rom import RUNNER
from hotloop.training.envs.nes.start_states import ROUTE_SKIP, RUNNER_LEVELS, load_routes, start_level

EVERY = 4
"""Frames between two pictures: 15 a second."""

AFTERWARDS = 120
"""Frames to watch after the flag."""


def film(emulator: Emulator, level: str) -> list[Image.Image]:
    """Play a level; return its pictures."""
    masks = [mask_of(*buttons) for buttons in SIMPLE]
    emulator.load(start_level(emulator, *parse_level(level), runner=True))
    pictures = []
    for action in [*map(int, load_routes()[level]), *[0] * (AFTERWARDS // ROUTE_SKIP)]:
        emulator.press(masks[action])
        for _ in range(ROUTE_SKIP // EVERY):
            emulator.run(EVERY)
            pictures.append(Image.fromarray(emulator.rgb()))
    return pictures


def sheet(pictures: list[Image.Image]) -> Image.Image:
    """Put pictures below each other, for a palette that has the colours of all."""
    width, height = pictures[0].size
    whole = Image.new("RGB", (width, height * len(pictures)))
    for number, picture in enumerate(pictures):
        whole.paste(picture, (0, number * height))
    return whole


def main() -> None:
    """Write the title and the levels."""
    out = Path(sys.argv[1])
    emulator = Emulator(RUNNER)
    emulator.run(90)
    Image.fromarray(emulator.rgb()).resize((480, 448), Image.Resampling.NEAREST).save(
        out / "runner-title.png", optimize=True
    )
    for level in sys.argv[2:] or RUNNER_LEVELS:
        # One palette for all pictures, so that what stands still is stored once.
        pictures = film(emulator, level)
        palette = sheet(pictures[::10]).quantize(64, dither=Image.Dither.NONE)
        frames = [each.quantize(palette=palette, dither=Image.Dither.NONE) for each in pictures]
        path = out / f"runner-{level}.gif"
        frames[0].save(
            path, save_all=True, append_images=frames[1:], duration=1000 * EVERY // 60, loop=0, optimize=False
        )
        print(f"{path}: {len(frames)} pictures, {path.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
