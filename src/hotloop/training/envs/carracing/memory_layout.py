"""The arrays that describe a scene, and the indices that classes, kernels and reference share.

The scene is what Gymnasium's CarRacing would draw in its 1000×800 window: the road and its kerbs, which change only
when a tile is visited, and 32 numbers of the car, which change with every frame.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

WINDOW_W, WINDOW_H = 1000, 800
"""Size of the official window. Layout constants are in its pixels."""

EYE_X, EYE_Y = WINDOW_W / 2, WINDOW_H * 3 / 4
"""Position of the car in the window; y points down."""

FIRST_ZOOM, LAST_ZOOM = 0.6, 16.2
"""Window pixels per metre, at the start of an episode and from one second on."""

GROW = 0.5
"""Window pixels by which the official polygons are wider on either side, because they include an outline."""

RIM_ANGLE = 1.2
"""Angle of the light part of a wheel, radians."""

MIN_SHOWN = 1e-4
"""Smaller indicators are not drawn."""

TIME, X, Y, ANGLE, SPEED_X, SPEED_Y, YAW_RATE, STEERING = range(8)
"""Indices into the numbers of a car, float64 [32]: seconds since the reset, the hull, the front wheels' angle."""

WHEELS, WHEEL_NUMBERS = 8, 6
WHEEL_X, WHEEL_Y, WHEEL_ANGLE, WHEEL_PHASE, WHEEL_SPEED, WHEEL_ON_ROAD = range(WHEEL_NUMBERS)
"""From index 8 on, six numbers for each of the four wheels."""

CAR_NUMBERS = WHEELS + 4 * WHEEL_NUMBERS

COLOURS = 17
NOTHING, GROUND, GRASS, ROAD, ROAD_1, ROAD_2, KERB_WHITE, KERB_RED, TYRE, RIM, HULL = range(11)
STRIP, SPEED_BAR, FRONT_BAR, REAR_BAR, STEER_BAR, YAW_BAR = range(11, COLOURS)
"""Colour numbers. Pictures are drawn with one such byte per sample and coloured at the end."""

LOOK_AHEAD, LOOK_AHEAD_TILES = 10, 2
"""Number of centre line points ahead in the `vector` state, and the tiles (of 3.5 m) between two of them."""

VECTOR_NUMBERS = 16 + 2 * LOOK_AHEAD


class View(NamedTuple):
    """Resolution of a picture."""

    size: int
    """Side in pixels."""
    fine: int
    """Samples along each side of a pixel: 1, 2 or 4."""
    indicators: bool


class Scene(NamedTuple):
    """The static part of an episode's picture."""

    quads: np.ndarray
    """float64 [P, 4, 2]: road and kerbs in drawing order, metres."""
    centres: np.ndarray
    """float64 [P, 2]: their centres, for culling."""
    colours: np.ndarray
    """uint8 [P]: their colour numbers."""
    tiles: np.ndarray
    """int64 [P]: the tile of a piece of road; -1 for a kerb."""
    shades: np.ndarray
    """float64 [T, 3]: the colours of the tiles. Gymnasium's tiles hold views of it and change it when visited."""
    road_red: float
    """The red of a tile that was visited."""
    radius: float
    """Largest distance of a corner from its quad's centre."""


class CarShape(NamedTuple):
    """The polygons of the car, in the coordinates of their own body, metres."""

    hull: np.ndarray
    """float64 [Q, V, 2]: parts of the hull, padded with zeros."""
    corners: np.ndarray
    """int64 [Q]: number of vertices of each part."""
    wheel: np.ndarray
    """float64 [4, 2]: the same for all wheels."""
    rim_half_width: float
    rim_radius: float


class Field(NamedTuple):
    """The field on which the track lies, and the squares of lighter grass on it."""

    half: float
    """Half its side, metres."""
    square: float
    """Side of a grass square."""


class Brush(NamedTuple):
    """Working memory for drawing."""

    canvas: np.ndarray
    """uint8 [S·fine, S·fine]: a colour's number for each sample."""
    left: np.ndarray
    """float64 [S·fine]: left end of the polygon in each row."""
    right: np.ndarray
    """float64 [S·fine]: right end of the polygon in each row."""
    corners: np.ndarray
    """float64 [8, 2]: vertices of the current polygon, in samples."""
