"""Pictures of a board, for the agent and for people."""

from __future__ import annotations

import numpy as np
import pytest

from hotloop.training.envs.ricochet import RicochetEnv, RicochetVectorEnv, raster, reference, render
from hotloop.training.envs.ricochet.raster import CENTRE, LINE, PAPER, ROBOTS, STARS, WALL

BOARD = """
+--+--+--+--+
|A  .  .  a |
+  +--+--+  +
|. |.  . |. |
+  +  +  +  +
|. |.  . |B |
+  +--+--+  +
|.  .  .  . |
+--+--+--+--+
"""


def test_pixels() -> None:
    picture, _ = RicochetEnv(size=4, robots=2, observation="rgb").reset(
        seed=1, options={"puzzles": reference.pack([reference.parse(BOARD)])}
    )
    assert (picture.shape, picture.dtype) == ((128, 128, 3), np.uint8)
    # A cell is 32 pixels, walls are 6 wide in the middle and 3 at the border.
    points = {
        (16, 16): ROBOTS[0],
        (80, 112): ROBOTS[1],
        (16, 112): STARS[0],
        (64, 64): CENTRE,
        (48, 16): PAPER,
        (48, 4): PAPER,
        (96, 8): LINE,
        (0, 64): WALL,
        (2, 64): WALL,
        (127, 5): WALL,
        (3, 40): PAPER,
        (60, 29): WALL,
        (60, 34): WALL,
        (60, 28): PAPER,
        (60, 35): CENTRE,
        (29, 40): WALL,
        (34, 40): WALL,
        (16, 27): ROBOTS[0],
        (16, 30): PAPER,
    }
    for (y, x), colour in points.items():
        assert picture[y, x].tolist() == list(colour), (y, x)
    # Where walls meet there is no gap.
    assert (picture[29:35, 29:35] == WALL).all()
    # The edge of a disc is smooth: a mix of its colour and the paper's.
    edge = {tuple(pixel) for pixel in picture[16, 26:30].tolist()} - {tuple(ROBOTS[0].tolist()), PAPER}
    assert len(edge) >= 1


def test_robot_is_drawn_on_top_of_the_goal() -> None:
    env = RicochetEnv(size=4, robots=2, observation="rgb")
    env.reset(seed=1, options={"puzzles": reference.pack([reference.parse(BOARD)])})
    picture, _, solved, _, _ = env.step(1)
    assert solved
    assert picture[16, 112].tolist() == ROBOTS[0].tolist()
    assert picture[16, 16].tolist() == list(PAPER)


@pytest.mark.parametrize("size", range(4, 17))
def test_cells_fill_the_picture(size: int) -> None:
    sheet = raster.canvas(size, 128)
    widths = set(np.diff(sheet.edges).tolist())
    assert (sheet.edges[0], sheet.edges[-1]) == (0, 128)
    assert widths <= {128 // size, 128 // size + 1}
    assert sheet.star[0, 0].max() == sheet.disc[0, 0].max() == 255


def test_robots_have_different_colours() -> None:
    env = RicochetVectorEnv(8, observation="rgb")
    pictures, _ = env.reset(seed=1)
    for picture, cells in zip(pictures, env.puzzles().robots, strict=True):
        colours = [picture[8 * (cell >> 4) + 4, 8 * (cell & 15) + 4].tolist() for cell in cells.astype(int)]
        assert colours == ROBOTS.tolist()


@pytest.mark.parametrize(("size", "side"), [(4, 128), (9, 288), (16, 512)])
def test_every_board_is_rendered(size: int, side: int) -> None:
    env = RicochetVectorEnv(3, size=size, render_mode="rgb_array")
    env.reset(seed=1)
    frames = env.render()
    assert frames is not None
    assert [frame.shape for frame in frames] == [(side, side, 3)] * 3
    np.testing.assert_array_equal(frames[1], render.draw(env.puzzles(), 1))
    assert RicochetVectorEnv(3).render() is None


def test_single_board_is_rendered() -> None:
    env = RicochetEnv(size=5, render_mode="ansi")
    env.reset(seed=1)
    text = env.render()
    assert len(text.splitlines()) == 11
    assert all(text.count(letter) == 1 for letter in "ABCD")
