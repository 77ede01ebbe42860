"""Kernels that draw a frame and compute the `vector` state. `reference` is the same in plain Python.

The drawing order is Gymnasium's: field, grass, road and kerbs, wheels, hull, indicators. Polygons out of sight are
culled by their centre, so of some 400 polygons about 40 are transformed and filled.
"""

from __future__ import annotations

import math

import numpy as np

from hotloop.training.envs.carracing import memory_layout as layout
from hotloop.training.envs.carracing.memory_layout import Brush, CarShape, Field, Scene, View
from hotloop.training.envs.carracing.raster import colour_in, cover, fill
from hotloop.training.envs.numba_tools import borrow, kernel

Camera = tuple[float, float, float, float, float, float, float, float]
"""Eye x, y in metres; samples right and down per metre along x and y; position of the eye in samples."""


@kernel
def make_camera(car: np.ndarray, side: float) -> Camera:
    """Return the camera: the car is in the middle, three quarters down, heading up; it zooms in within a second."""
    time = car[layout.TIME]
    zoom = layout.FIRST_ZOOM * max(1.0 - time, 0.0) + layout.LAST_ZOOM * min(time, 1.0)
    right, down = zoom * side / layout.WINDOW_W, zoom * side / layout.WINDOW_H
    c, s = math.cos(car[layout.ANGLE]), math.sin(car[layout.ANGLE])
    at_x, at_y = layout.EYE_X * side / layout.WINDOW_W, layout.EYE_Y * side / layout.WINDOW_H
    return car[layout.X], car[layout.Y], c * right, s * right, s * down, -c * down, at_x, at_y


@kernel
def project(camera: Camera, x: float, y: float) -> tuple[float, float]:
    """Return the position of a point of the world in the picture, in samples right and down."""
    eye_x, eye_y, right_x, right_y, down_x, down_y, at_x, at_y = camera
    dx, dy = x - eye_x, y - eye_y
    return at_x + dx * right_x + dy * right_y, at_y + dx * down_x + dy * down_y


@kernel
def fill_square(brush: Brush, camera: Camera, box: tuple[float, float, float], colour: int, grow: float) -> None:
    """Fill a square of the world: x and y of a corner, side."""
    x, y, side = box
    brush.corners[0, 0], brush.corners[0, 1] = project(camera, x, y)
    brush.corners[1, 0], brush.corners[1, 1] = project(camera, x + side, y)
    brush.corners[2, 0], brush.corners[2, 1] = project(camera, x + side, y + side)
    brush.corners[3, 0], brush.corners[3, 1] = project(camera, x, y + side)
    fill(brush, 4, colour, grow)


@kernel
def draw_field(brush: Brush, camera: Camera, field: Field, grow: float) -> None:
    """Fill the ground and those grass squares that may be visible. They alternate with ground in both directions."""
    brush.canvas[:] = layout.NOTHING
    fill_square(brush, camera, (-field.half, -field.half, 2 * field.half), layout.GROUND, grow)
    eye_x, eye_y, right_x, right_y, down_x, down_y, at_x, at_y = camera
    side = float(brush.canvas.shape[0])
    turn = right_x * down_y - right_y * down_x
    low_x, high_x, low_y, high_y = np.inf, -np.inf, np.inf, -np.inf
    for corner in range(4):
        right, down = side * (corner & 1) - at_x, side * (corner >> 1) - at_y
        x, y = eye_x + (right * down_y - down * right_y) / turn, eye_y + (down * right_x - right * down_x) / turn
        low_x, high_x, low_y, high_y = min(low_x, x), max(high_x, x), min(low_y, y), max(high_y, y)
    pitch, most = 2 * field.square, int(field.half / field.square) - 1
    for i in range(max(math.floor((low_x + field.half) / pitch), 0), math.floor((high_x + field.half) / pitch) + 1):
        if i > most:
            break
        for j in range(max(math.floor((low_y + field.half) / pitch), 0), math.floor((high_y + field.half) / pitch) + 1):
            if j > most:
                break
            fill_square(
                brush, camera, (pitch * i - field.half, pitch * j - field.half, field.square), layout.GRASS, grow
            )


@kernel
def draw_road(brush: Brush, camera: Camera, scene: Scene, grow: float) -> None:
    """Fill the visible tiles and kerbs. A tile loses its shade when a wheel has touched it."""
    side = float(brush.canvas.shape[0])
    reach = scene.radius * max(math.hypot(camera[2], camera[3]), math.hypot(camera[4], camera[5])) + 1.0
    for p in range(len(scene.quads)):
        x, y = project(camera, scene.centres[p, 0], scene.centres[p, 1])
        if x < -reach or x > side + reach or y < -reach or y > side + reach:
            continue
        for k in range(4):
            brush.corners[k, 0], brush.corners[k, 1] = project(camera, scene.quads[p, k, 0], scene.quads[p, k, 1])
        colour = scene.colours[p]
        if scene.tiles[p] >= 0 and scene.shades[scene.tiles[p], 0] == scene.road_red:
            colour = layout.ROAD
        fill(brush, 4, colour, grow)


@kernel
def project_onto(brush: Brush, camera: Camera, body: tuple[float, float, float, float], k: int, at: np.ndarray) -> None:
    """Set corner k of the brush to a point of a body (x, y, cosine and sine of its angle)."""
    x, y, c, s = body
    brush.corners[k, 0], brush.corners[k, 1] = project(camera, x + c * at[0] - s * at[1], y + s * at[0] + c * at[1])


@kernel
def draw_car(brush: Brush, camera: Camera, shape: CarShape, car: np.ndarray, grow: float) -> None:
    """Fill the wheels, with the light part that turns with them, and the hull."""
    at = np.empty(2)
    for wheel in range(4):
        first = layout.WHEELS + layout.WHEEL_NUMBERS * wheel
        angle = car[first + layout.WHEEL_ANGLE]
        body = (car[first + layout.WHEEL_X], car[first + layout.WHEEL_Y], math.cos(angle), math.sin(angle))
        for k in range(4):
            project_onto(brush, camera, body, k, shape.wheel[k])
        fill(brush, 4, layout.TYRE, grow)
        shown, near, far = visible_rim(car[first + layout.WHEEL_PHASE])
        if shown:
            for k in range(4):
                at[0] = shape.rim_half_width if k == 1 or k == 2 else -shape.rim_half_width
                at[1] = shape.rim_radius * (near if k < 2 else far)
                project_onto(brush, camera, body, k, at)
            fill(brush, 4, layout.RIM, grow)
    body = (car[layout.X], car[layout.Y], math.cos(car[layout.ANGLE]), math.sin(car[layout.ANGLE]))
    for part in range(len(shape.hull)):
        for k in range(shape.corners[part]):
            project_onto(brush, camera, body, k, shape.hull[part, k])
        fill(brush, shape.corners[part], layout.HULL, grow)


@kernel
def visible_rim(phase: float) -> tuple[bool, float, float]:
    """Return whether the light part of a wheel is visible, and its two ends, in radii."""
    sine, far_sine = math.sin(phase), math.sin(phase + layout.RIM_ANGLE)
    if sine > 0 and far_sine > 0:
        return False, 0.0, 0.0
    near, far = math.cos(phase), math.cos(phase + layout.RIM_ANGLE)
    if sine > 0:
        near = np.sign(near)
    if far_sine > 0:
        far = np.sign(far)
    return True, near, far


@kernel
def draw_bar(picture: np.ndarray, palette: np.ndarray, colour: int, box: tuple[float, float, float, float]) -> None:
    """Paint a rectangle given by two corners in window pixels, both inclusive."""
    x, y, other_x, other_y = box
    right, down = picture.shape[1] / layout.WINDOW_W, picture.shape[0] / layout.WINDOW_H
    left, top = math.floor(min(x, other_x)) * right, math.floor(min(y, other_y)) * down
    end, bottom = (math.floor(max(x, other_x)) + 1) * right, (math.floor(max(y, other_y)) + 1) * down
    cover(picture, (left, top, end, bottom), palette[colour])


@kernel
def draw_growing_bar(
    picture: np.ndarray, palette: np.ndarray, colour: int, at: int, value: float, upwards: bool
) -> None:
    """Paint an indicator that grows upwards, or to either side."""
    wide, high = layout.WINDOW_W / 40, layout.WINDOW_H / 40
    if abs(value) <= layout.MIN_SHOWN:
        return
    if upwards:
        box = (at * wide, layout.WINDOW_H - high - high * value, (at + 1) * wide, layout.WINDOW_H - high)
    else:
        box = (at * wide, layout.WINDOW_H - 4 * high, (at + value) * wide, layout.WINDOW_H - 2 * high)
    draw_bar(picture, palette, colour, box)


@kernel
def draw_indicators(picture: np.ndarray, palette: np.ndarray, car: np.ndarray) -> None:
    """Paint the strip below: speed, turning of the four wheels, steering, turning of the car."""
    size = picture.shape[0]
    cover(picture, (0.0, size * 0.875, float(size), float(size)), palette[layout.STRIP])
    speed = math.sqrt(car[layout.SPEED_X] ** 2 + car[layout.SPEED_Y] ** 2)
    draw_growing_bar(picture, palette, layout.SPEED_BAR, 5, 0.02 * speed, True)
    for wheel in range(4):
        colour = layout.FRONT_BAR if wheel < 2 else layout.REAR_BAR
        turning = 0.01 * car[layout.WHEELS + layout.WHEEL_NUMBERS * wheel + layout.WHEEL_SPEED]
        draw_growing_bar(picture, palette, colour, 7 + wheel, turning, True)
    draw_growing_bar(picture, palette, layout.STEER_BAR, 20, -10.0 * car[layout.STEERING], False)
    draw_growing_bar(picture, palette, layout.YAW_BAR, 30, -0.8 * car[layout.YAW_RATE], False)


@kernel
def draw(
    view: View,
    world: tuple[Field, Scene, CarShape],
    car: np.ndarray,
    brush: Brush,
    palette: np.ndarray,
    picture: np.ndarray,
) -> None:
    """Draw a frame without its score into `picture` uint8 [S, S, C]."""
    field, scene, shape = world
    scene = Scene(
        borrow(scene.quads),
        borrow(scene.centres),
        borrow(scene.colours),
        borrow(scene.tiles),
        borrow(scene.shades),
        scene.road_red,
        scene.radius,
    )
    shape = CarShape(
        borrow(shape.hull), borrow(shape.corners), borrow(shape.wheel), shape.rim_half_width, shape.rim_radius
    )
    brush = Brush(borrow(brush.canvas), borrow(brush.left), borrow(brush.right), borrow(brush.corners))
    car, palette, picture = borrow(car), borrow(palette), borrow(picture)
    side = float(view.size * view.fine)
    grow = layout.GROW * side / layout.WINDOW_W
    camera = make_camera(car, side)
    draw_field(brush, camera, field, grow)
    draw_road(brush, camera, scene, grow)
    draw_car(brush, camera, shape, car, grow)
    colour_in(brush.canvas, view.fine, palette, picture)
    if view.indicators:
        draw_indicators(picture, palette, car)


@kernel
def nearest_point(track: np.ndarray, x: float, y: float) -> int:
    """Return the index of the nearest centre line point. `track` is float64 [T, 3]: x, y, angle of the normal."""
    found, least = 0, np.inf
    for k in range(len(track)):
        far = (track[k, 0] - x) ** 2 + (track[k, 1] - y) ** 2
        if far < least:
            found, least = k, far
    return found


@kernel
def write_vector_state(track: np.ndarray, car: np.ndarray, half_field: float, out: np.ndarray) -> None:
    """Write the 36 numbers of the `vector` state into float32 [36]; docs/envs-carracing.md lists them."""
    c, s = math.cos(car[layout.ANGLE]), math.sin(car[layout.ANGLE])
    out[0], out[1], out[2], out[3] = car[layout.X] / half_field, car[layout.Y] / half_field, c, s
    out[4], out[5] = (
        (-s * car[layout.SPEED_X] + c * car[layout.SPEED_Y]) / 50,
        (c * car[layout.SPEED_X] + s * car[layout.SPEED_Y]) / 50,
    )
    out[6], out[7] = car[layout.YAW_RATE] / 5, car[layout.STEERING] / 0.4
    for wheel in range(4):
        out[8 + wheel] = car[layout.WHEELS + layout.WHEEL_NUMBERS * wheel + layout.WHEEL_ON_ROAD]
    near = nearest_point(track, car[layout.X], car[layout.Y])
    count = len(track)
    beta = track[near, 2]
    out[12] = (
        (car[layout.X] - track[near, 0]) * math.cos(beta) + (car[layout.Y] - track[near, 1]) * math.sin(beta)
    ) / 10
    off = car[layout.ANGLE] - beta
    out[13], out[14] = math.sin(off), math.cos(off)
    bend = track[(near + 1) % count, 2] - track[near - 1, 2]
    out[15] = math.atan2(math.sin(bend), math.cos(bend))
    for k in range(layout.LOOK_AHEAD):
        ahead = (near + layout.LOOK_AHEAD_TILES * (k + 1)) % count
        dx, dy = track[ahead, 0] - car[layout.X], track[ahead, 1] - car[layout.Y]
        out[16 + 2 * k], out[17 + 2 * k] = (c * dx + s * dy) / 50, (-s * dx + c * dy) / 50
