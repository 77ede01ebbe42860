"""Check that slow.py and fixed.py compute the same flood-fill features on games under way.

Run it with `python check.py`; it ends with exit code 1 and the first difference if they do not.
"""

import sys

import fixed
import slow
import torch
from snake import VectorSnake


def main():
    torch.manual_seed(0)
    env = VectorSnake(64, slow.SIZE, seed=0)
    env.reset()
    for step in range(60):
        env.step(torch.randint(3, (64,)))
        a, b = slow.flood_features(env), fixed.flood_features(env)
        if not torch.equal(a, b):
            sys.exit(f"features differ at step {step}: {a[a != b][:5]} against {b[a != b][:5]}")
    print("60 steps of 64 games: the features are equal")


if __name__ == "__main__":
    main()
