"""Images as text for a terminal: two pixels per character, one above the other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

TEXT_WIDTH = 64


def as_text(draw: Callable[[], np.ndarray | None]) -> Callable[[], str]:
    """Return a function that renders as text: two pixels per character, one above the other."""

    def text() -> str:
        from PIL import Image

        drawn = draw()
        assert drawn is not None
        picture = Image.fromarray(drawn)
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
