"""The Mario environment on `runner`, full steps at skip 4 and grey 84×84, compared with the emulator core and nes-py.

All play the same stretch of the same level by the same buttons, on one core, in one process, in turn: the core allows
one emulator per process. The bare core presses buttons and runs frames without reading them. nes-py has its usual
wrappers: skip with the maximum of the last two frames, grey, resized by OpenCV. It conflicts with stable-retro's
requirements, so it is skipped with a message unless it was installed manually.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
from measure import Row, Times, estimate, interleave, main, ratio_of, say

from hotloop.training.envs.nes import memory_layout
from hotloop.training.envs.nes.config import SIMPLE
from hotloop.training.envs.nes.emulator import mask_of
from hotloop.training.envs.nes.mario import MarioEnv
from hotloop.training.envs.nes.rom import RUNNER
from hotloop.training.envs.nes.start_states import START_LIMIT, load_routes

LEVEL = "1-1"
STEPS = 60
"""Steps per block: a quarter of the level."""

SKIP = 4
ASKED = 0.85
ASKED_OF_PEER = 4.0
CORE, PEER = "the bare core", "nes-py with the usual wrappers"
MASKS = [mask_of(*buttons) for buttons in SIMPLE]
BITS = {"A": 1, "B": 2, "SELECT": 4, "START": 8, "UP": 16, "DOWN": 32, "LEFT": 64, "RIGHT": 128}
"""Of the byte that nes-py takes for the buttons."""


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
    """Compare the environment at one frame size with the core."""
    say(f"nes: {size}×{size}")
    env = MarioEnv(level=LEVEL, size=size, skip=SKIP)
    asked = {CORE: ASKED, PEER: ASKED_OF_PEER} if size == 84 else {CORE: 0.0}
    try:
        variants = {"ours": whole(env), CORE: bare(env)}
        peer = nes_py(size) if PEER in asked else None
        if peer is not None:
            variants[PEER] = peer
        times = interleave(variants, rounds, calls=1)
    finally:
        env.close()
    name = f"a step of {SKIP} frames, grey {size}×{size}"
    return [beside(name, times["ours"], times[each], each, asked[each]) for each in times if each != "ours"]


def whole(env: MarioEnv) -> Callable[[], object]:
    """Steps of the environment, including the reset."""
    actions = [int(each) for each in load_routes()[LEVEL][:STEPS]]

    def play() -> None:
        env.reset()
        for action in actions:
            env.step(action)

    return play


def bare(env: MarioEnv) -> Callable[[], object]:
    """The same frames by the core alone, from the same state."""
    env.reset()
    emulator, begin = env._emulator, env._level_starts[LEVEL]
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


def nes_py(size: int) -> Callable[[], object] | None:
    """The same steps by nes-py from the same position; None, with a message, if it is missing or fails."""
    try:
        import cv2
        from nes_py import NESEnv

        env = NESEnv(str(RUNNER))
        begin_there(env)
    except ImportError as missing:
        say(f"nes: {missing.name} is not installed: nes-py is left out")
        return None
    except Exception as error:  # it is old and may fail with newer libraries
        say(f"nes: nes-py does not work here ({type(error).__name__}: {error}): left out")
        return None
    held = [sum(BITS[each] for each in SIMPLE[int(action)]) for action in load_routes()[LEVEL][:STEPS]]

    def play() -> None:
        env.reset()
        env.step(0)
        for buttons in held:
            for _ in range(SKIP - 1):
                earlier = env.step(buttons)[0]
            earlier = earlier.copy()  # the next frame is drawn over it
            grey = cv2.cvtColor(np.maximum(earlier, env.step(buttons)[0]), cv2.COLOR_RGB2GRAY)
            cv2.resize(grey, (size, size), interpolation=cv2.INTER_AREA)

    return play


def begin_there(env: Any) -> None:
    """Start the level in nes-py, and make its `reset` return to this state."""
    env.reset()
    for frame in range(START_LIMIT):
        if memory_layout.is_playing(env.ram):
            env._backup()
            return
        pressed = env.ram[memory_layout.MODE] == memory_layout.MODE_TITLE and frame % 16 >= 12
        env.step(BITS["START"] if pressed else 0)
    raise RuntimeError(f"the level did not begin within {START_LIMIT} frames")


def beside(name: str, ours: Times, peer: Times, peer_name: str, asked: float) -> Row:
    """One row: µs a step."""
    found = estimate(ratio_of, peer, ours)
    return Row(
        name=name,
        ours=float(np.median(ours)) / STEPS / 1e3,
        peer=float(np.median(peer)) / STEPS / 1e3,
        peer_name=peer_name,
        unit="µs",
        ratio=found.value,
        low=found.low,
        high=found.high,
        asked=asked,
    )


if __name__ == "__main__":
    main(run, __doc__)
