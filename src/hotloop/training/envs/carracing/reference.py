"""Reference implementation of the kernels in plain Python, for tests: every polygon, sample by sample, no culling.

Where a result depends on the order of floating-point operations, the order is that of the kernels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from hotloop.training.envs.carracing import memory_layout as at
from hotloop.training.envs.carracing.memory_layout import CarShape, Field, Scene, View

Point = tuple[float, float]
Polygon = list[Point]


def fill(canvas: np.ndarray, polygon: Polygon, colour: int, grow: float) -> None:
    """Colour the samples whose centre is in a convex polygon, widened by `grow` on either side."""
    height, width = canvas.shape
    edges = [sorted(edge, key=lambda end: end[1]) for edge in zip(polygon, polygon[1:] + polygon[:1], strict=True)]
    for row in range(height):
        crossings = [
            x + (row + 0.5 - y) * ((end_x - x) / (end_y - y))
            for (x, y), (end_x, end_y) in edges
            if y - 0.5 <= row < end_y - 0.5
        ]
        if crossings:
            for column in range(width):
                if min(crossings) - grow - 0.5 <= column < max(crossings) + grow - 0.5:
                    canvas[row, column] = colour


def colour_in(canvas: np.ndarray, fine: int, palette: np.ndarray) -> np.ndarray:
    """Return the picture, uint8 [S, S, C]: each pixel is the mean of its samples, halves rounded up."""
    size = len(canvas) // fine
    picture = np.empty((size, size, palette.shape[1]), np.uint8)
    for row in range(size):
        for column in range(size):
            samples = canvas[row * fine : (row + 1) * fine, column * fine : (column + 1) * fine].ravel()
            for channel in range(palette.shape[1]):
                total = sum(int(palette[sample, channel]) for sample in samples)
                picture[row, column, channel] = (total + len(samples) // 2) // len(samples)
    return picture


def cover(picture: np.ndarray, box: tuple[float, float, float, float], paint: np.ndarray) -> None:
    """Paint a rectangle; pixels are blended by the part that is covered."""
    left, top, right, bottom = box
    size = len(picture)
    for row in range(size):
        for column in range(size):
            tall = min(bottom, row + 1.0) - max(top, float(row))
            wide = min(right, column + 1.0) - max(left, float(column))
            if tall > 0 and wide > 0:
                for channel in range(picture.shape[2]):
                    under = float(picture[row, column, channel])
                    mixed = under + tall * wide * (float(paint[channel]) - under)
                    picture[row, column, channel] = int(mixed + 0.5)


class Camera:
    """Maps points of the world to the picture."""

    def __init__(self, car: np.ndarray, side: float) -> None:
        time, angle = float(car[at.TIME]), float(car[at.ANGLE])
        zoom = at.FIRST_ZOOM * max(1.0 - time, 0.0) + at.LAST_ZOOM * min(time, 1.0)
        self.eye = (float(car[at.X]), float(car[at.Y]))
        self.right, self.down = zoom * side / at.WINDOW_W, zoom * side / at.WINDOW_H
        self.cos, self.sin = math.cos(angle), math.sin(angle)
        self.middle = (at.EYE_X * side / at.WINDOW_W, at.EYE_Y * side / at.WINDOW_H)

    def place(self, x: float, y: float) -> Point:
        """Return a point in samples right and down."""
        dx, dy = x - self.eye[0], y - self.eye[1]
        return (
            self.middle[0] + dx * (self.cos * self.right) + dy * (self.sin * self.right),
            self.middle[1] + dx * (self.sin * self.down) + dy * (-self.cos * self.down),
        )

    def polygon(self, points: Iterable[Sequence[float]]) -> Polygon:
        """Return all points of a polygon."""
        return [self.place(float(x), float(y)) for x, y in points]


def square(x: float, y: float, side: float) -> Polygon:
    """Return the corners of a square of the world."""
    return [(x, y), (x + side, y), (x + side, y + side), (x, y + side)]


def on_body(x: float, y: float, angle: float, points: Iterable[Sequence[float]]) -> Polygon:
    """Return points of a body, in the world."""
    c, s = math.cos(angle), math.sin(angle)
    return [(x + c * px - s * py, y + s * px + c * py) for px, py in points]


def polygons(field: Field, scene: Scene, shape: CarShape, car: np.ndarray) -> list[tuple[Polygon, int]]:
    """Return all polygons in drawing order, in metres, with their colours."""
    found = [(square(-field.half, -field.half, 2 * field.half), at.GROUND)]
    pitch = 2 * field.square
    for i in range(int(field.half / field.square)):
        for j in range(int(field.half / field.square)):
            found.append((square(pitch * i - field.half, pitch * j - field.half, field.square), at.GRASS))
    for quad, colour, tile in zip(scene.quads, scene.colours, scene.tiles, strict=True):
        visited = tile >= 0 and scene.shades[tile, 0] == scene.road_red
        found.append(([(float(x), float(y)) for x, y in quad], at.ROAD if visited else int(colour)))
    for wheel in range(4):
        own = car[at.WHEELS + at.WHEEL_NUMBERS * wheel :]
        where = (float(own[at.WHEEL_X]), float(own[at.WHEEL_Y]), float(own[at.WHEEL_ANGLE]))
        found.append((on_body(*where, shape.wheel.tolist()), at.TYRE))
        found += [(on_body(*where, rim), at.RIM) for rim in rims(shape, float(own[at.WHEEL_PHASE]))]
    where = (float(car[at.X]), float(car[at.Y]), float(car[at.ANGLE]))
    for part, corners in zip(shape.hull, shape.corners, strict=True):
        found.append((on_body(*where, part[:corners].tolist()), at.HULL))
    return found


def rims(shape: CarShape, phase: float) -> list[Polygon]:
    """Return the light part of a wheel in the wheel's coordinates; an empty list if it is hidden."""
    ends = []
    for angle in (phase, phase + at.RIM_ANGLE):
        hidden = math.sin(angle) > 0
        ends.append((hidden, float(np.sign(math.cos(angle))) if hidden else math.cos(angle)))
    if ends[0][0] and ends[1][0]:
        return []
    wide, near, far = shape.rim_half_width, shape.rim_radius * ends[0][1], shape.rim_radius * ends[1][1]
    return [[(-wide, near), (wide, near), (wide, far), (-wide, far)]]


def bars(car: np.ndarray) -> list[tuple[int, tuple[float, float, float, float]]]:
    """Return the visible indicators: colour, and two corners in pixels of the window."""
    wide, high = at.WINDOW_W / 40, at.WINDOW_H / 40
    upright = [(at.SPEED_BAR, 5, 0.02 * math.sqrt(car[at.SPEED_X] ** 2 + car[at.SPEED_Y] ** 2))]
    for wheel in range(4):
        turning = 0.01 * float(car[at.WHEELS + at.WHEEL_NUMBERS * wheel + at.WHEEL_SPEED])
        upright.append((at.FRONT_BAR if wheel < 2 else at.REAR_BAR, 7 + wheel, turning))
    sideways = [(at.STEER_BAR, 20, -10.0 * float(car[at.STEERING])), (at.YAW_BAR, 30, -0.8 * float(car[at.YAW_RATE]))]
    low = at.WINDOW_H - high
    return [
        (colour, (where * wide, low - high * value, (where + 1) * wide, low))
        for colour, where, value in upright
        if abs(value) > at.MIN_SHOWN
    ] + [
        (colour, (where * wide, at.WINDOW_H - 4 * high, (where + value) * wide, at.WINDOW_H - 2 * high))
        for colour, where, value in sideways
        if abs(value) > at.MIN_SHOWN
    ]


def draw(view: View, world: tuple[Field, Scene, CarShape], car: np.ndarray, palette: np.ndarray) -> np.ndarray:
    """Return the picture of a frame without its score, uint8 [S, S, C]."""
    side = view.size * view.fine
    canvas = np.full((side, side), at.NOTHING, np.uint8)
    camera = Camera(car, float(side))
    for polygon, colour in polygons(*world, car):
        fill(canvas, camera.polygon(polygon), colour, at.GROW * side / at.WINDOW_W)
    picture = colour_in(canvas, view.fine, palette)
    if view.indicators:
        cover(picture, (0.0, view.size * 0.875, float(view.size), float(view.size)), palette[at.STRIP])
        right, down = view.size / at.WINDOW_W, view.size / at.WINDOW_H
        for colour, (x, y, other_x, other_y) in bars(car):
            left, top = math.floor(min(x, other_x)) * right, math.floor(min(y, other_y)) * down
            end, bottom = (math.floor(max(x, other_x)) + 1) * right, (math.floor(max(y, other_y)) + 1) * down
            cover(picture, (left, top, end, bottom), palette[colour])
    return picture


def vector_state(track: np.ndarray, car: np.ndarray, half_field: float) -> np.ndarray:
    """Return the 36 numbers of the `vector` state, float32."""
    x, y, angle = float(car[at.X]), float(car[at.Y]), float(car[at.ANGLE])
    ahead, right = np.array([-math.sin(angle), math.cos(angle)]), np.array([math.cos(angle), math.sin(angle)])
    speed = np.array([car[at.SPEED_X], car[at.SPEED_Y]])
    near = int(np.argmin((track[:, 0] - x) ** 2 + (track[:, 1] - y) ** 2))
    beta = float(track[near, 2])
    bend = track[(near + 1) % len(track), 2] - track[near - 1, 2]
    contacts = [car[at.WHEELS + at.WHEEL_NUMBERS * wheel + at.WHEEL_ON_ROAD] for wheel in range(4)]
    aside = (np.array([x, y]) - track[near, :2]) @ np.array([math.cos(beta), math.sin(beta)])
    found = [x / half_field, y / half_field, math.cos(angle), math.sin(angle)]
    found += [speed @ ahead / 50, speed @ right / 50, car[at.YAW_RATE] / 5, car[at.STEERING] / 0.4, *contacts]
    found += [aside / 10, math.sin(angle - beta), math.cos(angle - beta), math.atan2(math.sin(bend), math.cos(bend))]
    for k in range(1, at.LOOK_AHEAD + 1):
        to = track[(near + at.LOOK_AHEAD_TILES * k) % len(track), :2] - [x, y]
        found += [to @ right / 50, to @ ahead / 50]
    return np.array(found, np.float32)
