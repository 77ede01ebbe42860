"""Snake, 256 games, random actions, through `VectorEnv.step`: ours, the study's way, and EnvPool's if it is there.

One step is all 256 games, infos and resets included; 51.2 µs for it are 5 million steps of a game a second. Ours runs
on one thread. The actions are made beforehand.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from measure import Row, Times, against_limit, estimate, interleave, main, ratio_of, say
from snake_study import StudySnake

from hotloop.training.envs.snake import SnakeVectorEnv

GAMES, MANY_GAMES = 256, 4096
OUR_STEPS = 100
"""Steps of ours in a block, so that it lasts about as long as one of the study's."""

LIMIT_US = {"basic": GAMES / 5.0, "flood": GAMES / 1.5}
SETTLE = 200
"""Steps before the clock runs: by then the games are at different points of their episodes."""

PEER = "the study's way"


def run(quick: bool) -> list[Row]:
    """Measure everything this bench shows."""
    rounds = 3 if quick else 30
    rows = []
    for features in ("basic", "flood"):
        say(f"snake: {features}")
        rows += compare(features, rounds)
    say("snake: other features")
    rows += [larger_features(rounds)]
    say("snake: threads")
    rows += [threads(rounds)]
    say("snake: EnvPool")
    return rows + beside_envpool(rounds)


def compare(features: str, rounds: int) -> list[Row]:
    """Ours against the limit, the study and EnvPool, with one set of features."""
    variants = {"ours": ours(features), PEER: study(features == "flood")}
    torch.set_num_threads(1)  # the study's tensors are tiny: more threads only slow it down
    times = interleave(variants, rounds, calls=1)
    times["ours"] = times["ours"] / OUR_STEPS
    name = f"a step of {GAMES} games, {features}"
    shown = estimate(lambda own: float(np.median(own)) / 1e3, times["ours"])
    rows = [against_limit(name, shown, LIMIT_US[features], "µs")]
    return [*rows, beside(name, times["ours"], times[PEER], PEER)]


def beside_envpool(rounds: int) -> list[Row]:
    """Ours against EnvPool's Snake. Apart, and last: its threads keep both cores busy between its steps."""
    pool = envpool()
    if pool is None:
        return []
    times = interleave({"ours": ours("basic"), "EnvPool": pool}, rounds, calls=1)
    return [beside(f"a step of {GAMES} games, basic", times["ours"] / OUR_STEPS, times["EnvPool"], "EnvPool Snake-v1")]


def larger_features(rounds: int) -> Row:
    """All features against the plain ones: what the floods and the tail cost."""
    times = interleave({"basic": ours("basic"), "enhanced": ours("enhanced")}, rounds, calls=1)
    enhanced, basic = times["enhanced"] / OUR_STEPS, times["basic"] / OUR_STEPS
    return beside(f"a step of {GAMES} games, enhanced", enhanced, basic, "basic")


def threads(rounds: int) -> Row:
    """When two threads pay: the hand-over costs as much as a whole step of 256 games."""
    variants = {str(n): ours("flood", games=MANY_GAMES, threads=n, steps=5) for n in (1, 2)}
    times = interleave(variants, rounds, calls=1)
    return beside(f"a step of {MANY_GAMES:,} games, flood, 2 threads", times["2"] / 5, times["1"] / 5, "one thread")


def beside(name: str, own: Times, peer: Times, peer_name: str) -> Row:
    """Make the row that compares ours with a peer's."""
    ratio = estimate(ratio_of, peer, own)
    return Row(
        name, float(np.median(own)) / 1e3, float(np.median(peer)) / 1e3, peer_name, "µs",
        ratio.value, ratio.low, ratio.high,
    )  # fmt: skip


def ours(features: str, games: int = GAMES, threads: int = 1, steps: int = OUR_STEPS) -> Callable[[], object]:
    """Many steps of ours."""
    env = SnakeVectorEnv(games, features=features, threads=threads)
    actions = np.random.default_rng(1).integers(0, 3, (SETTLE, games))
    env.reset(seed=1)
    for each in actions:
        env.step(each)

    def play() -> None:
        for each in actions[:steps]:
            env.step(each)

    return play


def study(flood: bool) -> Callable[[], object]:
    """One step the study's way."""
    env = StudySnake(GAMES, flood=flood)
    env.reset(seed=1)
    actions = torch.randint(0, 3, (SETTLE, GAMES))
    turn = 0

    def play() -> None:
        nonlocal turn
        env.step(actions[turn % SETTLE])
        turn += 1

    for _ in range(20):
        play()
    return play


def envpool() -> Callable[[], object] | None:
    """One step of EnvPool's Snake, which shows a 12×12 grid, or None if it is not installed."""
    try:
        import envpool as pool
    except ImportError:
        say("  EnvPool is not installed: no row for it")
        return None
    env = pool.make_gymnasium("Snake-v1", num_envs=GAMES)
    env.reset()
    actions = np.random.default_rng(1).integers(0, 4, (SETTLE, GAMES)).astype(np.int32)
    turn = 0

    def play() -> None:
        nonlocal turn
        env.step(actions[turn % SETTLE])
        turn += 1

    return play


if __name__ == "__main__":
    main(run, __doc__)
