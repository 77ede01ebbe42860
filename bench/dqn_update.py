"""A DQN update of a small network: the overhead of a framework, and how much a fused kernel removes.

All do the same: MLP 128-128, 10 inputs, 3 actions, batch 64, Huber, gradient norm clipped at 1, Adam; all but
Stable-Baselines3, which does not have it, with double Q-learning (a third forward pass of the online network). Each has
its batch at hand, except Stable-Baselines3, whose `train` samples it itself; 8 updates a call; one thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is imported

import gymnasium
import numpy as np
import torch
from measure import Estimate, Row, Times, against_limit, estimate, interleave, main, number, ratio_of, say

from hotloop.training.learn import DQN, DQNConfig, QRule, QShape
from hotloop.training.learn.dqn.learner import random_dqn_batch
from hotloop.training.pipelines.dqn_snake import move_target, q_loss

RULE = QRule(q_loss, move_target, numba=True)

INPUTS, ACTIONS, BATCH, UPDATES = 10, 3, 64, 8
HIDDEN = 128
LIMIT_MS, AIM_MS = 0.3, 0.15
CONFIG = DQNConfig(QShape((INPUTS,), ACTIONS, hidden=(HIDDEN, HIDDEN)), batch=BATCH, target_every=1000)

OURS = "hotloop, numba"


def flop() -> float:
    """Floating-point operations of an update's matrix products: three passes forward, two back."""
    layers = [INPUTS * HIDDEN, HIDDEN * HIDDEN, HIDDEN * ACTIONS]
    forward, weights, inputs = 3 * sum(layers), sum(layers), sum(layers[1:])
    return 2.0 * BATCH * (forward + weights + inputs)


class Still(gymnasium.Env):
    """An environment with the right shapes in which nothing happens."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (INPUTS,), np.float32)
    action_space = gymnasium.spaces.Discrete(ACTIONS)

    def reset(self, **options: Any) -> tuple[np.ndarray, dict]:
        super().reset(**options)
        return np.zeros(INPUTS, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        return np.zeros(INPUTS, np.float32), 0.0, False, False, {}


def sb3_update() -> Callable[[], object]:
    """Stable-Baselines3's own `train`, with its own replay buffer."""
    from stable_baselines3 import DQN as PeerDQN
    from stable_baselines3.common.logger import Logger

    model = PeerDQN(
        "MlpPolicy",
        Still(),
        learning_rate=1e-3,
        buffer_size=4096,
        batch_size=BATCH,
        max_grad_norm=1.0,
        policy_kwargs={"net_arch": [HIDDEN, HIDDEN]},
        device="cpu",
    )
    model.set_logger(Logger(folder=None, output_formats=[]))
    model._current_progress_remaining = 1.0
    rng = np.random.default_rng(0)
    for _ in range(4096):
        obs, following = rng.standard_normal((2, 1, INPUTS), dtype=np.float32)
        action, reward, done = rng.integers(ACTIONS, size=1), rng.standard_normal(1), rng.random(1) < 0.02
        model.replay_buffer.add(obs, following, action, reward, done, [{}])
    return lambda: model.train(UPDATES, BATCH)


def numpy_update(batch: Any) -> Callable[[], object]:
    """The kernel's reference implementation in plain NumPy."""
    from hotloop.training.learn.dqn import numba_reference
    from hotloop.training.learn.dqn.numba_kernel import FusedMLP

    kernel = DQN(CONFIG, RULE, kernel="numba")._kernel
    assert isinstance(kernel, FusedMLP)
    weighted = batch._replace(weight=np.ones(UPDATES * BATCH, np.float32))
    done, no_noise = [0], np.empty((0, 2, 0), np.float32)

    def update() -> None:
        numba_reference.update_many(kernel.vectors, weighted, kernel.net, kernel.numbers, no_noise, done[0])
        done[0] += UPDATES

    return update


def variants() -> dict[str, Callable[[], object]]:
    """Functions that do UPDATES updates, by name."""
    batch = random_dqn_batch(CONFIG, UPDATES, np.random.default_rng(0))

    def ours(kernel: str) -> Callable[[], object]:
        learner = DQN(CONFIG, RULE, kernel=kernel)
        return lambda: learner.update(batch)

    return {
        OURS: ours("numba"),
        "Stable-Baselines3, not double": sb3_update(),
        "eager torch": ours("torch"),
        "torch, fused Adam": ours("torch-fused"),
        "torch.compile of the whole update": ours("compile"),
        "plain NumPy": numpy_update(batch),
        "a large matrix product": large_product(),
    }


SIDE = 768


def large_product() -> Callable[[], object]:
    """A matrix product that shows the peak of one core."""
    a, b = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE)
    out = torch.empty(SIDE, SIDE)
    return lambda: torch.mm(a, b, out=out)


def _median(times: Times) -> float:
    return float(np.median(times))


def run(quick: bool) -> list[Row]:
    """Measure all of them side by side."""
    torch.set_num_threads(1)
    # Adam's moments of constant inputs become subnormal, which would slow down torch but not our kernel.
    torch.set_flush_denormal(True)
    say("compiling and measuring the updates ...")
    times = interleave(variants(), rounds=5 if quick else 60, calls=3 if quick else 12)
    core = times.pop("a large matrix product")
    ms = {name: taken / UPDATES / 1e6 for name, taken in times.items()}
    found = estimate(_median, ms[OURS])
    rows = [
        against_limit("a DQN update", found, LIMIT_MS, "ms"),
        against_limit("a DQN update, aim", found, AIM_MS, "ms"),
    ]
    for name, taken in ms.items():
        if name == OURS:
            continue
        ratio = estimate(ratio_of, taken, ms[OURS])
        rows.append(_row(f"a DQN update beside {name}", found, _median(taken), name, ratio))
    bound = core / (2.0 * SIDE**3) * flop() / 1e6
    ratio = estimate(ratio_of, bound, ms[OURS])
    name = f"{number(flop() / 1e6)} MFLOP at the speed of a large product"
    rows.append(_row("a DQN update beside its arithmetic", found, _median(bound), name, ratio))
    return rows


def _row(name: str, ours: Estimate, peer: float, peer_name: str, ratio: Estimate) -> Row:
    return Row(name, ours.value, peer, peer_name, "ms", ratio.value, ratio.low, ratio.high)


if __name__ == "__main__":
    main(run, __doc__)
