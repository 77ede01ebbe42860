"""CarRacing, whole steps with a 96×96 observation, on one core: ours, Gymnasium's, EnvPool's, and the physics alone.

Ours and Gymnasium's drive the same tracks by the same actions, those of a scripted driver, beginning after the second
in which the camera zooms in; EnvPool, which has other tracks, gets the same actions. Resets are included. The
process is pinned to one core for all but the last rows. All times are for one step of one car.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.envs.box2d.car_racing import CarRacing
from measure import Row, Times, against_limit, estimate, interleave, main, ratio_of, say

from hotloop.training.envs.carracing import CarRacingEnv, CarRacingVectorEnv
from hotloop.training.envs.carracing.centre_line_driver import drive
from hotloop.training.envs.carracing.game import Game

LIMIT_US = 1e6 / 4000
FRAMES, SETTLE = 700, 60
"""Length of an episode, shorter than any lap; frames before timing starts."""

OUR_STEPS, POOL_STEPS, THEIR_STEPS = 200, 20, 10
"""Steps per block, so that all blocks take a few hundredths of a second."""

CARS = 8
SEED = 3
NAME = "a step"


def run(quick: bool) -> list[Row]:
    """Measure everything this bench shows."""
    rounds = 3 if quick else 40
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        rows = one_core(rounds)
    finally:
        os.sched_setaffinity(0, cores)
    return rows + both_cores(rounds)


def one_core(rounds: int) -> list[Row]:
    """Compare ours with the others, and our options with each other."""
    say("carracing: one core")
    variants: dict[str, Callable[[], object]] = {
        "rgb": ours(colour="rgb"),
        "rgb, 1x": ours(colour="rgb", supersample=1),
        "grey": ours(),
        "numbers": ours(state="vector"),
        "physics": physics(),
        "Gymnasium": gymnasiums(),
    }
    pool = envpool(threads=1)
    if pool is not None:
        variants["EnvPool"] = pool
    times = interleave(variants, rounds, calls=1)
    for name in times:
        times[name] = times[name] / {"Gymnasium": THEIR_STEPS, "EnvPool": POOL_STEPS * CARS}.get(name, OUR_STEPS)
    own = times["rgb"]
    rows = [against_limit(f"{NAME}, RGB, one core", estimate(lambda t: float(np.median(t)) / 1e3, own), LIMIT_US, "µs")]
    rows.append(beside(f"{NAME}, RGB, one core", own, times["Gymnasium"], "Gymnasium CarRacing-v3", asked=25))
    if pool is not None:
        rows.append(beside(f"{NAME}, RGB, one core", own, times["EnvPool"], "EnvPool CarRacing-v3", asked=3.5))
    rows.append(beside(f"{NAME}, RGB, one core", own, times["physics"], "its physics alone"))
    for name in ("rgb, 1x", "grey", "numbers"):
        rows.append(beside(f"{NAME}, {name}, one core", times[name], times["Gymnasium"], "Gymnasium CarRacing-v3"))
    return rows


def both_cores(rounds: int) -> list[Row]:
    """Compare cars in worker processes with cars in this one, and with EnvPool with as many threads."""
    count = len(os.sched_getaffinity(0))
    say(f"carracing: {count} cores")
    here, spread = cars(workers=0), cars(workers=count)
    variants = {"here": here[0], "workers": spread[0]}
    pool = envpool(threads=count)
    if pool is not None:
        variants["EnvPool"] = pool
    times = {name: each / (POOL_STEPS * CARS) for name, each in interleave(variants, rounds, calls=1).items()}
    name = f"{NAME}, RGB, {CARS} cars, {count} workers"
    rows = [beside(name, times["workers"], times["here"], "no workers")]
    if pool is not None:
        rows.append(beside(name, times["workers"], times["EnvPool"], f"EnvPool, {count} threads"))
    for _, env in (here, spread):
        env.close()
    return rows


def beside(name: str, own: Times, peer: Times, peer_name: str, asked: float = 0.0) -> Row:
    """Create the row that compares ours with a peer's."""
    ratio = estimate(ratio_of, peer, own)
    return Row(
        name, float(np.median(own)) / 1e3, float(np.median(peer)) / 1e3, peer_name, "µs",
        ratio.value, ratio.low, ratio.high, asked,
    )  # fmt: skip


def recorded() -> np.ndarray:
    """Return the driver's actions on the track of the seed, float32 [FRAMES, 3]."""
    env = CarRacingEnv(state="vector")
    numbers, _ = env.reset(seed=SEED)
    actions = []
    for _ in range(FRAMES):
        actions.append(drive(numbers))
        numbers, *_ = env.step(actions[-1])
    return np.array(actions)


def repeated(env: Any, steps: int) -> Callable[[], object]:
    """Return a function that plays this many steps, repeating the recorded episode."""
    actions = recorded()
    env.reset(seed=SEED)
    turn = 0

    def play(count: int = steps) -> None:
        nonlocal turn
        for _ in range(count):
            if turn == FRAMES:
                env.reset(seed=SEED)
                turn = 0
            env.step(actions[turn])
            turn += 1

    play(SETTLE)
    return play


def ours(**options: Any) -> Callable[[], object]:
    """Many steps of ours."""
    return repeated(CarRacingEnv(**options), OUR_STEPS)


def physics() -> Callable[[], object]:
    """Many steps of Gymnasium's game without rendering: a lower bound for any renderer."""
    return repeated(Game(), OUR_STEPS)


def gymnasiums() -> Callable[[], object]:
    """A few steps of Gymnasium's own."""
    return repeated(CarRacing(), THEIR_STEPS)


def cars(workers: int) -> tuple[Callable[[], object], CarRacingVectorEnv]:
    """Some vector steps of ours."""
    env = CarRacingVectorEnv(CARS, workers=workers, colour="rgb")
    env.reset(seed=SEED)
    actions = np.repeat(recorded()[:, None], CARS, axis=1)
    return turns(lambda each: env.step(each), actions), env


def envpool(threads: int) -> Callable[[], object] | None:
    """Some steps of EnvPool's cars, or None if it is not installed."""
    try:
        import envpool as pool
    except ImportError:
        say("  EnvPool is not installed: no row for it")
        return None
    env = pool.make_gymnasium("CarRacing-v3", num_envs=CARS, num_threads=threads)
    env.reset()
    return turns(lambda each: env.step(each), np.repeat(recorded()[:, None], CARS, axis=1))


def turns(step: Callable[[Any], object], actions: np.ndarray) -> Callable[[], object]:
    """Return a function that plays some vector steps."""
    turn = 0

    def play(count: int = POOL_STEPS) -> None:
        nonlocal turn
        for _ in range(count):
            step(actions[turn % FRAMES])
            turn += 1

    play(SETTLE)
    return play


if __name__ == "__main__":
    main(run, __doc__)
