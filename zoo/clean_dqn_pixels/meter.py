"""Command line and step counting of a training script.

Counting starts after the warm-up (buffers full, first updates done), so that two versions of a script
are compared in their steady state.
"""

import argparse
import json
import sys
import time


def parse_args() -> argparse.Namespace:
    """Read the flags that every script of this folder has."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=8.0, help="how long to train after the warm-up")
    parser.add_argument("--steps", type=int, default=0, help="train for this many environment steps instead")
    parser.add_argument("--turns", action="store_true", help="train that long each time a line comes in, until the end")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


class Meter:
    """Counts environment steps after the warm-up and says when the budget is spent."""

    def __init__(self, args: argparse.Namespace, warmup: int):
        self.args = args
        self.warmup_left = warmup
        self.env_steps = 0
        self.seconds = 0.0
        self.start = 0.0

    def more(self, steps: int) -> bool:
        """Count `steps` environment steps; False once the budget is spent."""
        if self.warmup_left > 0:
            self.warmup_left -= steps
            self.start = time.perf_counter()
            return self.warmup_left > 0 or not self.args.turns or self.next_turn()
        self.env_steps += steps
        self.seconds = time.perf_counter() - self.start
        if self.args.steps:
            return self.env_steps < self.args.steps
        return self.seconds < self.args.seconds or (self.args.turns and self.next_turn())

    def next_turn(self) -> bool:
        """Report what this turn did and wait for the next; False if there is none."""
        self.report()
        if not sys.stdin.readline():
            return False
        self.env_steps, self.seconds, self.start = 0, 0.0, time.perf_counter()
        return True

    def report(self) -> None:
        """Print the result as one line of JSON."""
        rate = self.env_steps / max(self.seconds, 1e-9)
        print(json.dumps({"env_steps": self.env_steps, "seconds": self.seconds, "env_steps_per_s": rate}), flush=True)
