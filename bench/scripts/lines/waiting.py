"""A loop that waits: for a simulator that sleeps, a queue, a pipe, a lock, and a process that must end."""

from __future__ import annotations

import os
import queue
import select
import subprocess
import sys
import threading
import time

from loop_clock import Clock

clock = Clock(__file__)


class SlowSimulator:
    """A simulator elsewhere, which answers after a while."""

    def reset(self) -> int:
        return 0

    def step(self, action: int) -> tuple[int, float, bool, bool, dict]:
        with clock.part("env.step", own=False):
            time.sleep(0.004)
        return action, 0.0, False, False, {}


def answer_late(asked: queue.Queue, answers: queue.Queue, pipe: int) -> None:
    """Answer each request after a while: by the queue, then by the pipe."""
    while (request := asked.get()) is not None:
        time.sleep(0.003)
        answers.put(request)
        time.sleep(0.002)
        os.write(pipe, b"!")


def main(seconds: float) -> None:
    env = SlowSimulator()
    state = env.reset()
    asked, answers, woken = queue.Queue(), queue.Queue(), threading.Event()
    reading, writing = os.pipe()
    helper = threading.Thread(target=answer_late, args=(asked, answers, writing))
    helper.start()
    for step in clock.steps(seconds):
        state, *_ = env.step(step)
        asked.put(state)
        with clock.part("queue", own=False):
            state = answers.get()
        with clock.part("pipe"):
            select.select([reading], [], [])
            os.read(reading, 1)
        with clock.part("event", own=False):
            woken.wait(0.0025)
        with clock.part("compute"):
            total = 0
            for i in range(60_000):
                total += i ^ state
        with clock.part("sleep", own=False):
            time.sleep(0.0015)
        with clock.part("process"):
            if step % 8 == 0:
                subprocess.run(["true"], check=True)
    asked.put(None)
    helper.join()


if __name__ == "__main__":
    main(float(sys.argv[1]))
    clock.report()
