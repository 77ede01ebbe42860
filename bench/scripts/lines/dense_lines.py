"""REINFORCE written densely: several statements on a line, calls over many lines, closures, lambdas and decorators."""

from __future__ import annotations

import functools
import math
import random
import sys

from loop_clock import Clock

clock = Clock(__file__)


def logged(fn):
    @functools.wraps(fn)
    def call(*args):
        call.calls += 1
        return fn(*args)

    call.calls = 0
    return call


class Ship:
    def reset(self):
        self.height, self.speed = 100.0, 0.0
        return self.height, self.speed

    def step(self, action):
        self.speed += 0.1 * action - 0.05; self.height += self.speed  # fmt: skip # noqa: E702
        return (self.height, self.speed), -abs(self.speed), self.height < 0, False, {}


@logged
def features(obs):
    return [math.sin(k * obs[0]) + math.cos(k * obs[1]) for k in range(300)]


def make_policy(rng):
    weights = [rng.gauss(0, 0.1) for _ in range(300)]
    score = lambda x: sum(w * v for w, v in zip(weights, x, strict=True))  # noqa: E731

    def act(x):
        def squash(value): return 1 / (1 + math.exp(-max(min(value, 30), -30)))  # fmt: skip

        return squash(score(x)) + squash(score(x[::-1]))

    def learn(x, gain):
        for i, v in enumerate(x): weights[i] += 1e-6 * gain * v; weights[i] *= 0.9999  # fmt: skip # noqa: E701, E702

    return act, learn


def main(seconds):
    rng, env = random.Random(1), Ship()
    (act, learn), obs = make_policy(rng), env.reset()
    for step in clock.steps(seconds):
        with clock.part("features", function="features"):
            x = features(obs)
        with clock.part("act", function="make_policy.<locals>.act"): p = act(x)  # fmt: skip # noqa: E701
        with clock.part("learn", function="make_policy.<locals>.learn"): learn(x, p); learn(x, 1.0)  # fmt: skip # noqa: E701, E702
        with clock.part("one line"):
            a = sorted(rng.random() for _ in range(200)); b = [v * v for v in a]; c = {v: i for i, v in enumerate(b)}  # fmt: skip # noqa: E501, E702
        with clock.part("many lines"):
            total = sum(
                map(
                    float.__mul__,
                    [rng.random() for _ in range(150)],
                    [math.sqrt(each) for each in c],
                )
            )  # fmt: skip
        obs, _, ended, *_ = env.step(int(total + p > step % 100))
        obs = env.reset() if ended else obs


if __name__ == "__main__":
    main(float(sys.argv[1]))
    clock.report()
