"""The kernels of CarRacing give the same results as their plain-Python reference."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

pytest.importorskip("Box2D")

from hotloop.training.envs.carracing import kernels, memory_layout, raster, reference
from hotloop.training.envs.carracing.config import CarRacingConfig
from hotloop.training.envs.carracing.game import FIELD, palette_of, read_scene, read_shape, read_track
from hotloop.training.envs.carracing.memory_layout import View
from hotloop.training.envs.carracing.observation import new_brush, new_game

COORDINATES = st.one_of(
    st.floats(-30, 60, allow_nan=False),
    st.integers(-60, 120).map(lambda n: n / 2),  # on centres and borders of samples
)


@functools.cache
def world_of(seed: int) -> tuple[Any, np.ndarray, np.ndarray]:
    game = new_game(CarRacingConfig())
    game.reset(seed=seed)
    return (FIELD, read_scene(game), read_shape(game)), read_track(game), palette_of(game, 3)


def convex(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the convex hull of points, in order (Andrew's monotone chain)."""
    found: list[tuple[float, float]] = []
    for way in (sorted(set(points)), sorted(set(points), reverse=True)):
        half: list[tuple[float, float]] = []
        for x, y in way:
            while len(half) > 1 and (
                (half[-1][0] - half[-2][0]) * (y - half[-2][1]) - (half[-1][1] - half[-2][1]) * (x - half[-2][0]) <= 0
            ):
                half.pop()
            half.append((x, y))
        found += half[:-1]
    return found


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(COORDINATES, COORDINATES), min_size=3, max_size=8), st.sampled_from([0.0, 0.1, 0.5]))
def test_fill(points: list[tuple[float, float]], grow: float) -> None:
    polygon = convex(points)
    if len(polygon) < 3:
        return
    brush, expected = new_brush(24), np.zeros((24, 24), np.uint8)
    brush.canvas[:] = 0
    brush.corners[: len(polygon)] = polygon
    raster.fill(brush, len(polygon), 7, grow)
    reference.fill(expected, polygon, 7, grow)
    np.testing.assert_array_equal(brush.canvas, expected)


def test_fill_covers_the_samples_whose_centre_is_inside() -> None:
    brush = new_brush(6)
    brush.canvas[:] = 0
    brush.corners[:3] = [(0.0, 0.0), (4.0, 0.0), (0.0, 4.0)]
    raster.fill(brush, 3, 1, 0.0)
    assert brush.canvas.tolist() == [
        [1, 1, 1, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0],
    ]


@settings(max_examples=100, deadline=None)
@given(st.tuples(*[COORDINATES] * 8))
def test_adjacent_polygons_neither_overlap_nor_leave_gaps(ends: tuple[float, ...]) -> None:
    """Cut a quad in two: the halves together are the whole."""
    whole = convex([(ends[0], ends[1]), (ends[2], ends[3]), (ends[4], ends[5]), (ends[6], ends[7])])
    if len(whole) != 4:
        return
    halves = [[whole[0], whole[1], whole[2]], [whole[0], whole[2], whole[3]]]
    counts = np.zeros((24, 24), np.int64)
    for polygon in halves:
        brush = new_brush(24)
        brush.canvas[:] = 0
        brush.corners[:3] = polygon
        raster.fill(brush, 3, 1, 0.0)
        counts += brush.canvas
    brush = new_brush(24)
    brush.canvas[:] = 0
    brush.corners[:4] = whole
    raster.fill(brush, 4, 1, 0.0)
    np.testing.assert_array_equal(counts, brush.canvas)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([1, 2, 4]), st.sampled_from([1, 3]), st.integers(0, 2**31))
def test_colour_in(fine: int, channels: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    palette = rng.integers(0, 256, (17, channels), dtype=np.uint8)
    canvas = rng.integers(0, 17, (6 * fine, 6 * fine), dtype=np.uint8)
    picture = np.empty((6, 6, channels), np.uint8)
    raster.colour_in(canvas, fine, palette, picture)
    np.testing.assert_array_equal(picture, reference.colour_in(canvas, fine, palette))


@settings(max_examples=100, deadline=None)
@given(st.tuples(*[st.floats(-3, 12, allow_nan=False)] * 4), st.integers(0, 2**31))
def test_cover(corners: tuple[float, ...], seed: int) -> None:
    rng = np.random.default_rng(seed)
    picture = rng.integers(0, 256, (9, 9, 3), dtype=np.uint8)
    expected, paint = picture.copy(), rng.integers(0, 256, 3, dtype=np.uint8)
    left, right = sorted(corners[:2])
    top, bottom = sorted(corners[2:])
    raster.cover(picture, (left, top, right, bottom), paint)
    reference.cover(expected, (left, top, right, bottom), paint)
    np.testing.assert_array_equal(picture, expected)


def test_cover_blends_partly_covered_pixels() -> None:
    picture = np.zeros((3, 3, 1), np.uint8)
    raster.cover(picture, (0.5, 1.0, 2.0, 2.25), np.array([200], np.uint8))
    assert picture[:, :, 0].tolist() == [[0, 0, 0], [100, 200, 0], [25, 50, 0]]


SPEEDS = st.tuples(*[st.floats(-100, 100)] * 3)
CARS = st.tuples(st.floats(0, 2), st.integers(0, 10_000), st.floats(-7, 7), SPEEDS, st.integers(0, 2**31))


def car_of(drawn: Any, track: np.ndarray) -> np.ndarray:
    """Make a car near the track with wheels around it; everything else is random."""
    time, where, angle, speeds, seed = drawn
    rng = np.random.default_rng(seed)
    car = np.zeros(memory_layout.CAR_NUMBERS)
    x, y = track[where % len(track), :2] + rng.normal(0, 20, 2)
    car[: memory_layout.WHEELS] = (time, x, y, angle, speeds[0], speeds[1], speeds[2] / 20, rng.uniform(-0.4, 0.4))
    for wheel in range(4):
        own = memory_layout.WHEELS + memory_layout.WHEEL_NUMBERS * wheel
        dx, dy = rng.uniform(-2, 2, 2)
        on_road = rng.integers(0, 2)
        car[own : own + memory_layout.WHEEL_NUMBERS] = (
            x + dx,
            y + dy,
            angle,
            rng.uniform(-9, 9),
            rng.normal(0, 80),
            on_road,
        )
    return car


# No shrinking: the reference is slow.
@settings(max_examples=15, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(CARS, st.integers(0, 3), st.sampled_from([View(24, 1, True), View(32, 2, True), View(64, 1, False)]))
def test_draw(drawn: Any, seed: int, view: View) -> None:
    world, track, palette = world_of(seed)
    car = car_of(drawn, track)
    world[1].shades[:: 1 + seed] = world[1].road_red
    picture = np.empty((view.size, view.size, 3), np.uint8)
    kernels.draw(view, world, car, new_brush(view.size * view.fine), palette, picture)
    np.testing.assert_array_equal(picture, reference.draw(view, world, car, palette))


@settings(max_examples=100, deadline=None)
@given(CARS, st.integers(0, 3))
def test_vector_state(drawn: Any, seed: int) -> None:
    _, track, _ = world_of(seed)
    car = car_of(drawn, track)
    numbers = np.empty(memory_layout.VECTOR_NUMBERS, np.float32)
    kernels.write_vector_state(track, car, FIELD.half, numbers)
    np.testing.assert_allclose(numbers, reference.vector_state(track, car, FIELD.half), rtol=1e-5, atol=1e-6)


def test_vector_state_on_a_straight_track() -> None:
    """A track along y whose normal is x; the car is 2 m to its right and turned left by 0.1."""
    track = np.array([(0.0, 3.5 * k, 0.0) for k in range(100)])
    car = np.zeros(memory_layout.CAR_NUMBERS)
    car[memory_layout.X], car[memory_layout.Y], car[memory_layout.ANGLE] = 2.0, 35.0, 0.1
    car[memory_layout.SPEED_X], car[memory_layout.SPEED_Y] = -10 * math.sin(0.1), 10 * math.cos(0.1)
    numbers = np.empty(memory_layout.VECTOR_NUMBERS, np.float32)
    kernels.write_vector_state(track, car, 100.0, numbers)
    assert numbers[:2].tolist() == pytest.approx([0.02, 0.35])
    assert numbers[4:6].tolist() == pytest.approx([0.2, 0.0], abs=1e-7)
    assert numbers[12:16].tolist() == pytest.approx([0.2, math.sin(0.1), math.cos(0.1), 0.0])
    right = (-2 * math.cos(0.1) + 7 * math.sin(0.1)) / 50
    ahead = (2 * math.sin(0.1) + 7 * math.cos(0.1)) / 50
    assert numbers[16:18].tolist() == pytest.approx([right, ahead])


def test_every_piece_of_road_is_convex() -> None:
    """The rasteriser fills convex polygons only."""
    for seed in range(6):
        quads = world_of(seed)[0][1].quads
        sides = np.roll(quads, -1, axis=1) - quads
        following = np.roll(sides, -1, axis=1)
        turns = sides[:, :, 0] * following[:, :, 1] - sides[:, :, 1] * following[:, :, 0]
        assert ((turns >= 0).all(axis=1) | (turns <= 0).all(axis=1)).all()
