"""The cost of cold caches: a small agent acts and learns after each of several interruptions.

`profiling/diagnosis/pricing.py` estimates it: code that moves more memory than the caches hold slows down the code
after it, and that time is not on the lines that cause it. Each row compares the time of two steps and one update of
DQN right after an interruption with the time without one. Pure computation (a Python loop, a busy wait) should make no
difference.
"""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable
from pathlib import Path

import gymnasium
import numpy as np
import torch
from measure import Row, Times, estimate, main, ratio_of
from torch import nn

from hotloop.clock import now_ns

BATCH, MS, KEPT_OBJECTS = 64, 1e6, 200_000
NOTHING = "after nothing"


class Agent:
    """A DQN of the usual small size on CartPole."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.q = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
        self.optimiser = torch.optim.Adam(self.q.parameters(), 1e-3)
        self.env = gymnasium.make("CartPole-v1")
        self.obs, _ = self.env.reset(seed=0)
        self.states, self.targets = torch.randn(BATCH, 4), torch.randn(BATCH, 1)
        self.actions = torch.randint(2, (BATCH, 1))

    def work(self) -> None:
        """Two steps and one update."""
        for _ in range(2):
            with torch.no_grad():
                action = int(self.q(torch.from_numpy(self.obs)[None]).argmax())
            self.obs, _, terminated, truncated, _ = self.env.step(action)
            if terminated or truncated:
                self.obs, _ = self.env.reset()
        loss = (self.q(self.states).gather(1, self.actions) - self.targets).pow(2).mean()
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()


def interruptions(agent: Agent, folder: Path) -> dict[str, Callable[[], object]]:
    """Return the interruptions by name."""
    blocks = {megabytes: np.ones((2, megabytes << 20), np.uint8) for megabytes in (1, 4, 16, 64)}
    frames = [np.ones(4 * 96 * 96, np.float32) for _ in range(64)]
    alive = [{"number": number} for number in range(KEPT_OBJECTS)]

    def save() -> None:
        state = {"q": agent.q.state_dict(), "optimiser": agent.optimiser.state_dict()}
        torch.save(state, folder / "agent.pt")

    def wait() -> None:
        until = now_ns() + 1_000_000
        while now_ns() < until:
            pass

    copies = {
        f"after copying {size} MB": lambda block=block: np.copyto(block[0], block[1]) for size, block in blocks.items()
    }
    return {
        NOTHING: lambda: None,
        "after a Python loop": lambda: sum(number * 2 for number in range(10_000)),
        "after a busy wait of 1 ms": wait,
        **copies,
        "after np.stack of 64 stacks of frames": lambda: np.stack(frames),
        "after torch.save": save,
        f"after gc.collect() of {KEPT_OBJECTS:,} objects": lambda: (gc.collect(), alive)[0],
    }


def run(quick: bool) -> list[Row]:
    """Measure all interruptions in turn, in blocks of a few repetitions."""
    rounds, repeats = (6, 3) if quick else (60, 10)
    agent = Agent()
    with tempfile.TemporaryDirectory() as folder:
        before = interruptions(agent, Path(folder))
        itself, work = ({name: np.empty(rounds) for name in before} for _ in range(2))
        for call in before.values():
            block(agent, call, 2)
        for turn in range(rounds):
            for name, call in before.items():
                itself[name][turn], work[name][turn] = block(agent, call, repeats)
    return [row(name, itself, work) for name in before if name != NOTHING]


def block(agent: Agent, before: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Return the times of the interruption and of the work after it, in ns."""
    spent = np.zeros(2)
    for _ in range(repeats):
        begin = now_ns()
        before()
        between = now_ns()
        agent.work()
        spent += between - begin, now_ns() - between
    return tuple(spent / repeats)


def row(name: str, itself: dict[str, Times], work: dict[str, Times]) -> Row:
    """One comparison: above 1 is faster than without an interruption."""
    found = estimate(ratio_of, work[NOTHING], work[name])
    ours, peer = np.median(work[name]) / MS, np.median(work[NOTHING]) / MS
    label = f"two steps and an update {name} ({float(f'{np.median(itself[name]) / MS:.2g}'):g} ms)"
    return Row(label, float(ours), float(peer), NOTHING, "ms", found.value, found.low, found.high)


if __name__ == "__main__":
    main(run, __doc__)
