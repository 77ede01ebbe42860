"""Gymnasium's CarRacing, with unchanged physics but without its drawing of observations.

It also reads the track and the car into plain arrays, for drawing. Importing this module needs Box2D and pygame; if
they are missing, it raises an error that says how to install them.
"""

from __future__ import annotations

import os

import numpy as np
from gymnasium.error import DependencyNotInstalled
from numpy.typing import NDArray

from hotloop.errors import DependencyMissing
from hotloop.training.envs.carracing import memory_layout as layout
from hotloop.training.envs.carracing.memory_layout import CarShape, Field, Scene

# Otherwise importing pygame prints a line to stdout, which would corrupt JSON output.
os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
try:
    from gymnasium.envs.box2d import car_dynamics, car_racing
except (DependencyNotInstalled, ImportError) as missing:
    raise DependencyMissing(
        f"CarRacing needs Box2D and pygame, which are not both installed ({missing.__cause__ or missing}): "
        'pip install "hotloop[carracing]"'
    ) from None

FIELD = Field(half=car_racing.PLAYFIELD, square=car_racing.GRASS_DIM)
HULL_COLOUR = (204, 0, 0)
SHRINKING_LOSS = 2
"""The official picture's colours are darker by this much, as its scaling from 1000×800 to 96×96 rounds down twice."""

GREY = np.array([0.299, 0.587, 0.114])
"""Weights of red, green and blue, as in OpenCV."""


class Game(car_racing.CarRacing):
    """The official game, which draws only in `render` and not in every step.

    Attributes:
        displayed_score: The score in the official picture, which is drawn before the 0.1 per frame is subtracted.
    """

    displayed_score = 0.0

    def _render(self, mode: str) -> NDArray[np.uint8] | bool | None:
        if mode != "state_pixels":
            return super()._render(mode)
        self.displayed_score = self.reward
        return None


def read_track(game: Game) -> NDArray[np.float64]:
    """Return the centre line, float64 [T, 3]: x, y and the angle of the normal to the right."""
    return np.array([(x, y, beta) for _, beta, x, y in game.track])


def read_scene(game: Game) -> Scene:
    """Return the static scene of this episode.

    From then on the game's tiles store their colours in `shades`; a second call returns the same array.
    """
    quads = np.array([quad for quad, _ in game.road_poly], np.float64)
    assert game.road is not None
    shades = game.road[0].color.base
    if shades is None:
        shades = np.array([tile.color for tile in game.road], np.float64)
    tiles, colours = [], []
    count = 0
    for _, colour in game.road_poly:
        if isinstance(colour, tuple):
            tiles.append(-1)
            colours.append(layout.KERB_WHITE if colour[1] else layout.KERB_RED)
        else:
            tiles.append(count)
            colours.append(layout.ROAD + count % 3)
            count += 1
    for tile, own in zip(game.road, shades, strict=True):
        tile.color = own
    # `render` takes a tile's colour from `road_poly`.
    game.road_poly = [
        (quad, colour if tile < 0 else shades[tile]) for (quad, colour), tile in zip(game.road_poly, tiles, strict=True)
    ]
    centres = quads.mean(axis=1)
    return Scene(
        quads=quads,
        centres=centres,
        colours=np.array(colours, np.uint8),
        tiles=np.array(tiles, np.int64),
        shades=shades,
        road_red=float(game.road_color[0]),
        radius=float(np.sqrt(((quads - centres[:, None]) ** 2).sum(axis=2).max())),
    )


def read_shape(game: Game) -> CarShape:
    """Return the polygons of the car. They are the same in every episode."""
    assert game.car is not None
    parts = [fixture.shape.vertices for fixture in game.car.hull.fixtures]
    hull = np.zeros((len(parts), max(map(len, parts)), 2))
    for own, part in zip(hull, parts, strict=True):
        own[: len(part)] = part
    return CarShape(
        hull=hull,
        corners=np.array([len(part) for part in parts], np.int64),
        wheel=np.array(game.car.wheels[0].fixtures[0].shape.vertices, np.float64),
        rim_half_width=car_dynamics.WHEEL_W * car_dynamics.SIZE,
        rim_radius=car_dynamics.WHEEL_R * car_dynamics.SIZE,
    )


def read_car(game: Game, into: NDArray[np.float64]) -> None:
    """Write the numbers of the car into float64 [32]; `memory_layout` defines them."""
    car = game.car
    assert car is not None
    hull, wheels = car.hull, car.wheels
    at, speed = hull.position, hull.linearVelocity
    numbers = [game.t, at.x, at.y, hull.angle, speed.x, speed.y, hull.angularVelocity, wheels[0].joint.angle]
    for wheel in wheels:
        at = wheel.position
        numbers += (at.x, at.y, wheel.angle, wheel.phase, wheel.omega, 1.0 if wheel.tiles else 0.0)
    into[:] = numbers


def palette_of(game: Game, channels: int) -> NDArray[np.uint8]:
    """Return the colours by number, uint8 [17, C], as they appear in the official picture."""
    colours = np.zeros((layout.COLOURS, 3))
    colours[layout.GROUND], colours[layout.GRASS] = game.bg_color, game.grass_color
    for shade in range(3):
        colours[layout.ROAD + shade] = np.floor(game.road_color + 0.01 * shade * 255)
    colours[layout.KERB_WHITE], colours[layout.KERB_RED] = 255, (255, 0, 0)
    colours[layout.RIM], colours[layout.HULL] = car_dynamics.WHEEL_WHITE, HULL_COLOUR
    colours[layout.SPEED_BAR], colours[layout.FRONT_BAR], colours[layout.REAR_BAR] = 255, (0, 0, 255), (51, 0, 255)
    colours[layout.STEER_BAR], colours[layout.YAW_BAR] = (0, 255, 0), (255, 0, 0)
    colours = np.maximum(np.floor(colours) - SHRINKING_LOSS, 0)
    if channels == 1:
        colours = (colours @ GREY)[:, None] + 0.5
    return colours.astype(np.uint8)
