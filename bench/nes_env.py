"""The Mario environment on `runner`, whole steps at skip 4 and grey 84×84, beside the bare emulator core.

Both play the same stretch of the same level by the same buttons, on one core, in one process, in turn: the core allows
one emulator a process. The bare core presses buttons and runs frames, and nobody looks at them.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
from measure import Row, Times, estimate, interleave, main, ratio_of, say

from hotloop.envs.nes.config import SIMPLE
from hotloop.envs.nes.emulator import mask_of
from hotloop.envs.nes.mario import MarioEnv
from hotloop.envs.nes.starts import load_routes

LEVEL = "1-1"
STEPS = 60
"""Steps in a block: a quarter of the level."""

SKIP = 4
ASKED = 0.85
MASKS = [mask_of(*buttons) for buttons in SIMPLE]


def run(quick: bool) -> list[Row]:
    """Measure everything this bench shows."""
    rounds = 3 if quick else 40
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        return [*measure(84, rounds), *measure(128, rounds)]
    finally:
        os.sched_setaffinity(0, cores)


def measure(size: int, rounds: int) -> list[Row]:
    """The environment with pictures of a size, beside the core."""
    say(f"nes: {size}×{size}")
    env = MarioEnv(level=LEVEL, size=size, skip=SKIP)
    try:
        times = interleave({"ours": whole(env), "core": bare(env)}, rounds, calls=1)
    finally:
        env.close()
    return [
        beside(f"a step of {SKIP} frames, grey {size}×{size}", times["ours"], times["core"], ASKED if size == 84 else 0)
    ]


def whole(env: MarioEnv) -> Callable[[], object]:
    """Steps of the environment; the reset is part of it."""
    actions = [int(each) for each in load_routes()[LEVEL][:STEPS]]

    def play() -> None:
        env.reset()
        for action in actions:
            env.step(action)

    return play


def bare(env: MarioEnv) -> Callable[[], object]:
    """The same frames by the core alone, from the same state."""
    env.reset()
    emulator, begin = env._emulator, env._begins[LEVEL]
    masks = [MASKS[int(each)] for each in load_routes()[LEVEL][:STEPS]]
    press, step = emulator._core.set_button_mask, emulator._core.step

    def play() -> None:
        emulator.load(begin)
        press(MASKS[0], 0)
        step()
        for mask in masks:
            press(mask, 0)
            for _ in range(SKIP):
                step()

    return play


def beside(name: str, ours: Times, core: Times, asked: float) -> Row:
    """One row: µs a step."""
    found = estimate(ratio_of, core, ours)
    return Row(
        name=name,
        ours=float(np.median(ours)) / STEPS / 1e3,
        peer=float(np.median(core)) / STEPS / 1e3,
        peer_name="the bare core",
        unit="µs",
        ratio=found.value,
        low=found.low,
        high=found.high,
        asked=asked,
    )


if __name__ == "__main__":
    main(run, __doc__)
