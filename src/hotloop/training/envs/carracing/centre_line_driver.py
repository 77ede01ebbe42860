"""A scripted driver that follows the centre line and brakes for bends, using the `vector` state.

It gives benchmarks, picture comparisons and tests realistic episodes.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.typing import NDArray

from hotloop.training.envs.carracing.memory_layout import LOOK_AHEAD

UNIT = 50
"""Metres, or metres per second, that correspond to 1 in the `vector` state."""

AIM, TOP_SPEED, MIN_SPEED, BRAKING = 1, 90.0, 45.0, 150.0
"""The point ahead to steer for; speeds on a straight and in the sharpest bend; reduction in m/s per radian of bend."""


def drive(numbers: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return steer, gas and brake, float32 [3], for a `vector` observation, float32 [36]."""
    ahead = np.asarray(numbers[16:], np.float64).reshape(LOOK_AHEAD, 2) * UNIT
    bearings = [math.atan2(x, y) for x, y in ahead]
    speed = float(numbers[4]) * UNIT
    bend = max(abs(b - a) for a, b in itertools.pairwise(bearings[:8]))
    target_speed = max(TOP_SPEED - BRAKING * bend, MIN_SPEED)
    steer = 1.8 * bearings[AIM] + 0.3 * float(numbers[6])
    gas, brake = (target_speed - speed) / 20, (speed - target_speed) / 40
    limits = (-1.0, 1.0), (0.0, 0.6), (0.0, 0.5)
    return np.array([min(max(v, a), b) for v, (a, b) in zip((steer, gas, brake), limits, strict=True)], np.float32)
