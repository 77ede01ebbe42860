"""How often simple policies clear a level of `runner`: random, always right and jump, rhythmic jumps.

Each episode begins with 0 to 30 idle frames and repeats a quarter of its actions, both depending on the seed. A rhythm
is a number of steps running and jumping, then a number of steps running.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from contextlib import closing

import numpy as np

from hotloop.training.envs.nes.mario import MarioEnv

RUN, RUN_JUMP = 3, 4
RIGHTWARDS = (1, 2, 3, 4)
RHYTHMS = [(jump, run) for jump in (1, 2, 3, 4, 6, 8, 12, 16) for run in (1, 2, 4, 8)]
Policy = Callable[[int], int]


def episode(env: MarioEnv, policy: Policy, seed: int) -> tuple[bool, int]:
    """Play one episode; return whether it reached the flag, and the distance."""
    env.reset(seed=seed)
    step = 0
    while True:
        *_, terminated, truncated, info = env.step(policy(step))
        step += 1
        if terminated or truncated:
            return info["flag"], info["distance"]


def rhythm(jump: int, run: int) -> Policy:
    """Jump for some steps, run for some, and again."""
    return lambda step: RUN_JUMP if step % (jump + run) < jump else RUN


def main() -> None:
    """Play all policies, and print a line each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--level", default="1-1")
    parser.add_argument("--episodes", type=int, default=200, help="for each policy; a tenth of it for each rhythm")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    arguments = parser.parse_args()
    rng = np.random.default_rng(1)
    policies: dict[str, Policy] = {
        "random, 7 actions": lambda step: int(rng.integers(7)),
        "random, rightwards": lambda step: int(rng.choice(RIGHTWARDS)),
        "always right and jump": lambda step: RUN_JUMP,
        **{f"rhythm {jump} and {run}": rhythm(jump, run) for jump, run in RHYTHMS},
    }
    rows = []
    with closing(MarioEnv(level=arguments.level, noops=30, sticky=0.25)) as env:
        for name, policy in policies.items():
            count = arguments.episodes // (10 if name.startswith("rhythm") else 1)
            ends = [episode(env, policy, seed) for seed in range(count)]
            cleared, distance = sum(flag for flag, _ in ends), float(np.mean([x for _, x in ends]))
            furthest = max(x for _, x in ends)
            rows.append(
                {"policy": name, "episodes": count, "cleared": cleared, "distance": distance, "furthest": furthest}
            )
            if not arguments.json:
                print(
                    f"{name:24} {cleared:3} of {count} cleared, on average to x = {distance:.0f}, at best {furthest}",
                    flush=True,
                )
    if arguments.json:
        print(json.dumps({"schema": 1, "level": arguments.level, "policies": rows}, indent=1))


if __name__ == "__main__":
    main()
