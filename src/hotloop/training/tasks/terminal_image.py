"""Pictures of a game as text, for a terminal: two pixels a character, one above the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

TEXT_WIDTH = 64


def as_text(draw: Callable[[], Any]) -> Callable[[], str]:
    """Return a function that draws a picture as text: two pixels a character, one above the other."""

    def text() -> str:
        from PIL import Image

        picture = Image.fromarray(draw())
        height = TEXT_WIDTH * picture.height // picture.width // 2 * 2
        pixels = np.asarray(picture.resize((TEXT_WIDTH, height), Image.Resampling.BOX))
        lines = []
        for above, below in zip(pixels[::2], pixels[1::2], strict=True):
            cells = [
                f"\x1b[38;2;{a};{b};{c}m\x1b[48;2;{d};{e};{g}m▀"
                for (a, b, c), (d, e, g) in zip(above, below, strict=True)
            ]
            lines.append("".join(cells) + "\x1b[0m")
        return "\n".join(lines)

    return text
