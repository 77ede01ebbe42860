"""Two controllers with fixed periods, 5 ms and 10 ms: a profiler with equal steps would always see the same moment."""

from __future__ import annotations

import sys
import time
from time import perf_counter

from loop_clock import Clock

clock = Clock(__file__)


class Pendulum:
    """A pendulum that is stepped once a period."""

    def reset(self) -> float:
        self.angle, self.speed = 0.1, 0.0
        return self.angle

    def step(self, action: float) -> tuple[float, float, bool, bool, dict]:
        self.speed += 0.01 * self.angle + action
        self.angle += 0.01 * self.speed
        return self.angle, -abs(self.angle), False, False, {}


class Attitude:
    """The fast controller: 200 times a second."""

    period = 0.005

    def estimate(self, angle: float, until: float) -> float:
        while perf_counter() < until:
            angle += 1e-9
        return angle

    def control(self, env: Pendulum, begin: float) -> None:
        with clock.part("5 ms: estimate", function="Attitude.estimate"):
            angle = self.estimate(env.angle, begin + 0.0015)
        with clock.part("5 ms: plan"):
            while perf_counter() < begin + 0.0025:
                angle -= 1e-9
        env.step(-0.1 * angle)
        with clock.part("5 ms: rest", own=False):
            time.sleep(max(begin + self.period - perf_counter(), 0))


class Path:
    """The slow controller: 100 times a second."""

    period = 0.010

    def control(self, env: Pendulum, begin: float) -> None:
        with clock.part("10 ms: plan"):
            angle = env.angle
            while perf_counter() < begin + 0.006:
                angle -= 1e-9
        env.step(-0.1 * angle)
        with clock.part("10 ms: rest", own=False):
            time.sleep(max(begin + self.period - perf_counter(), 0))


def main(seconds: float) -> None:
    env = Pendulum()
    env.reset()
    for controller in (Attitude(), Path()):
        begin = perf_counter()
        for _ in clock.steps(seconds / 2):
            controller.control(env, begin)
            begin += controller.period * max(1, round((perf_counter() - begin) / controller.period))


if __name__ == "__main__":
    main(float(sys.argv[1]))
    clock.report()
