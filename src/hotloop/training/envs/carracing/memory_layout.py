"""How a scene lies in memory: the numbers by which the classes, the kernels and their twins speak of it.

The scene is what Gymnasium's CarRacing would draw on its window of 1000×800, kept as plain arrays: the road and its
kerbs, which change only when a tile is visited, and 32 numbers of the car, which change with every frame.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

WINDOW_W, WINDOW_H = 1000, 800
"""The window of the official picture. All drawing is laid out in its pixels."""

EYE_X, EYE_Y = WINDOW_W / 2, WINDOW_H * 3 / 4
"""Where in the window the car stands, y counted down."""

FIRST_ZOOM, LAST_ZOOM = 0.6, 16.2
"""Pixels of the window for a metre, when an episode begins and from a second later on."""

GROW = 0.5
"""Pixels of the window by which the official polygons are wider on either side: they include their outline."""

RIM_ANGLE = 1.2
"""How much of a wheel's round is light, radians."""

LEAST_SHOWN = 1e-4
"""An indicator of less is left out."""

TIME, X, Y, ANGLE, SPEED_X, SPEED_Y, YAW_RATE, STEERING = range(8)
"""Places in the numbers of a car, float64 [32]: seconds since the reset, the hull, the front wheels' angle."""

WHEELS, WHEEL_NUMBERS = 8, 6
WHEEL_X, WHEEL_Y, WHEEL_ANGLE, WHEEL_PHASE, WHEEL_SPEED, WHEEL_ON_ROAD = range(WHEEL_NUMBERS)
"""From place 8 on, six numbers for each of the four wheels."""

CAR_NUMBERS = WHEELS + 4 * WHEEL_NUMBERS

(
    NOTHING, GROUND, GRASS, ROAD, ROAD_1, ROAD_2, KERB_WHITE, KERB_RED, TYRE, RIM, HULL,
    STRIP, SPEED_BAR, FRONT_BAR, REAR_BAR, STEER_BAR, YAW_BAR,
) = range(17)  # fmt: skip
"""Colours by number. Pictures are drawn in them, one byte a sample, and coloured at the end."""

COLOURS = 17

LOOK_AHEAD, LOOK_EVERY = 10, 2
"""Points of the centre line ahead that `vector` shows, and how many tiles of 3.5 m lie between two of them."""

VECTOR_NUMBERS = 16 + 2 * LOOK_AHEAD


class View(NamedTuple):
    """How large and how fine a picture is."""

    size: int
    """Pixels a side."""
    fine: int
    """Samples along the side of a pixel: 1, 2 or 4."""
    indicators: bool


class Scene(NamedTuple):
    """What stands still during an episode."""

    quads: np.ndarray
    """float64 [P, 4, 2]: road and kerbs in the order they are drawn, metres."""
    centres: np.ndarray
    """float64 [P, 2]: their centres, by which what is out of sight is left out."""
    colours: np.ndarray
    """uint8 [P]: their colours, as numbers."""
    tiles: np.ndarray
    """int64 [P]: the tile of a piece of road; -1 for a kerb."""
    shades: np.ndarray
    """float64 [T, 3]: the colours of the tiles. Gymnasium's tiles hold views of it and change it when visited."""
    road_red: float
    """The red of a tile that was visited."""
    radius: float
    """No quad reaches farther from its centre than this."""


class CarShape(NamedTuple):
    """The polygons of the car, in the coordinates of their own body, metres."""

    hull: np.ndarray
    """float64 [Q, V, 2]: padded with zeros."""
    corners: np.ndarray
    """int64 [Q]: how many vertices each of them has."""
    wheel: np.ndarray
    """float64 [4, 2]: one for all four."""
    rim_half_width: float
    rim_radius: float


class Field(NamedTuple):
    """The field on which the track lies, and the squares of lighter grass on it."""

    half: float
    """Half its side, metres. Beyond it there is nothing."""
    square: float
    """Side of a grass square."""


class Brush(NamedTuple):
    """What drawing needs and nobody keeps."""

    canvas: np.ndarray
    """uint8 [S·fine, S·fine]: a colour's number for each sample."""
    left: np.ndarray
    """float64 [S·fine]: where a polygon begins in each row."""
    right: np.ndarray
    """float64 [S·fine]: where it ends."""
    corners: np.ndarray
    """float64 [8, 2]: vertices of the polygon at hand, in samples."""
