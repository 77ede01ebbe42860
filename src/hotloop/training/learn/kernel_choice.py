"""Chooses the fastest kernel by a short measurement.

Which kernel is fastest depends on the machine, the network and the number of updates per call. The measurement uses
copies of the learner and random data: the learner and its random generators are not changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from hotloop.clock import now_ns
from hotloop.errors import HotloopError
from hotloop.training.learn.dqn.learner import DQN, DQNConfig, Transitions, supported_kernels
from hotloop.training.learn.frame_dqn.learner import FrameDQN, FrameDQNConfig, supported_frame_kernels
from hotloop.training.learn.ppo.learner import PPO, PPOConfig, Rollout, supported_ppo_kernels
from hotloop.training.learn.sac.learner import SAC, SACConfig, supported_sac_kernels

ROUNDS = 15
LONG_CALL_S, FEW_ROUNDS = 0.1, 3
"""Calls that take longer than this are measured fewer times."""
COMPILED = "compile"
MAX_MESSAGE = 200
"""Characters of a compiler's error message that are kept: it can be pages long."""
Measurable = DQN | FrameDQN | PPO | SAC


@dataclass(frozen=True, slots=True)
class Choice:
    """The fastest kernel, and the seconds per update, or per part of one, of all measured kernels."""

    kernel: str
    update_s: dict[str, float]
    left_out: dict[str, str] = field(default_factory=dict)
    """Kernels that cannot be used on this machine, and why."""


def choose_kernel(learner: Measurable, updates_per_call: int = 8, candidates: Sequence[str] | None = None) -> Choice:
    """Measure the kernels that can run this learner's network and return the fastest.

    Args:
        learner: It is not changed: call its `use` with the result.
        updates_per_call: Number of updates per call of `update`.
        candidates: Kernels to measure; None for all but "compile", which takes more than seconds to be ready.
    """
    if candidates is None:
        candidates = [name for name in _supported(learner) if name != COMPILED]
    calls: dict[str, Callable[[], object]] = {}
    left_out: dict[str, str] = {}
    for name in candidates:
        try:
            call = _trial(learner, name, updates_per_call)
            call()  # compiles
            calls[name] = call
        except Exception as error:
            # Only torch.compile depends on other programs, such as a C++ compiler. Other errors are bugs.
            if name != COMPILED or isinstance(error, HotloopError):
                raise
            left_out[name] = " ".join(str(error).split())[:MAX_MESSAGE]
    if not calls:
        raise HotloopError(f"kernel {COMPILED} cannot be used here ({left_out[COMPILED]}): choose another by --kernel")
    update_s = {name: seconds / updates_per_call for name, seconds in _median_seconds(calls).items()}
    return Choice(min(update_s, key=lambda name: update_s[name]), update_s, left_out)


def _median_seconds(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Measure calls in turns, so that a slow moment of the machine affects all of them."""
    begin = now_ns()
    for call in calls.values():
        call()
    rounds = FEW_ROUNDS if (now_ns() - begin) / 1e9 > LONG_CALL_S * len(calls) else ROUNDS
    times = {name: np.empty(rounds) for name in calls}
    for i in range(rounds):
        for name, call in calls.items():
            begin = now_ns()
            call()
            times[name][i] = (now_ns() - begin) / 1e9
    return {name: float(np.median(of)) for name, of in times.items()}


def _supported(learner: Measurable) -> list[str]:
    if isinstance(learner, DQN):
        return supported_kernels(learner.config, learner.device)
    if isinstance(learner, FrameDQN):
        return supported_frame_kernels(learner.config, learner.device)
    if isinstance(learner, SAC):
        return supported_sac_kernels(learner.config, learner.device)
    return supported_ppo_kernels(learner.config, learner.device)


def _trial(learner: Measurable, kernel: str, updates: int) -> Callable[[], object]:
    """Copy the learner; return a call that does some updates with the copy."""
    rng = np.random.default_rng(0)
    if isinstance(learner, DQN):
        dqn = DQN(learner.config, kernel=kernel, device=learner.device)
        dqn.load(learner.tensors())
        batch = random_dqn_batch(learner.config, updates, rng)
        return lambda: dqn.update(batch)
    if isinstance(learner, FrameDQN):
        # With gradient accumulation it is enough to measure one part of the batch.
        whole = learner.config
        part = replace(whole, batch=whole.batch // whole.accumulate, accumulate=1)
        frame_dqn = FrameDQN(part, kernel=kernel, device=learner.device)
        frame_dqn.load(learner.tensors())
        frames = random_frame_batch(part, updates, rng)
        return lambda: frame_dqn.update(frames)
    if isinstance(learner, SAC):
        sac = SAC(learner.config, kernel=kernel, device=learner.device)
        sac.load(learner.tensors())
        steps = random_sac_batch(learner.config, updates, rng)
        return lambda: sac.update(steps)
    ppo = PPO(learner.config, kernel=kernel, device=learner.device)
    ppo.load(learner.tensors())
    rollout = random_rollout(learner.config, rng)
    order = rng.permutation(len(rollout.action)).reshape(-1, learner.config.minibatch)[:updates]
    order = np.ascontiguousarray(np.resize(order, (updates, learner.config.minibatch)))
    return lambda: ppo._kernel.update(rollout, order)


def random_dqn_batch(config: DQNConfig, updates: int, rng: np.random.Generator) -> Transitions:
    """Random transitions for some updates of DQN."""
    rows, shape = updates * config.batch, config.shape
    obs, next_obs = (_observations(shape.observation, rows, rng) for _ in range(2))
    numbers = rng.standard_normal((2, rows), dtype=np.float32)
    discount = np.where(numbers[1] > 2, np.float32(0), np.float32(0.99))
    return Transitions(obs, rng.integers(shape.actions, size=rows), numbers[0], next_obs, discount)


def random_sac_batch(config: SACConfig, updates: int, rng: np.random.Generator) -> Transitions:
    """Random transitions for some updates of SAC."""
    rows, shape = updates * config.batch, config.shape
    obs, next_obs = (_observations(shape.observation, rows, rng) for _ in range(2))
    action = rng.uniform(-1, 1, (rows, shape.actions)).astype(np.float32)
    reward = rng.standard_normal(rows, dtype=np.float32)
    return Transitions(obs, action, reward, next_obs, np.full(rows, 0.99, np.float32))


def random_frame_batch(config: FrameDQNConfig, updates: int, rng: np.random.Generator) -> Transitions:
    """Random transitions for some updates of DQN on frames."""
    rows, shape = updates * config.batch, config.shape
    obs, next_obs = rng.integers(256, size=(2, rows, *shape.observation), dtype=np.uint8)
    numbers = rng.standard_normal((2, rows), dtype=np.float32)
    discount = np.where(numbers[1] > 2, np.float32(0), np.float32(0.95))
    weight = rng.random(rows, dtype=np.float32)
    return Transitions(obs, rng.integers(shape.actions, size=rows), numbers[0], next_obs, discount, weight)


def random_rollout(config: PPOConfig, rng: np.random.Generator) -> Rollout:
    """A random rollout of 8 minibatches for PPO."""
    rows = 8 * config.minibatch
    numbers = rng.standard_normal((2, rows), dtype=np.float32)
    log_prob = np.full(rows, -np.log(config.actions), dtype=np.float32)
    action = rng.integers(config.actions, size=rows)
    return Rollout(_observations(config.observation, rows, rng), action, log_prob, numbers[0], numbers[1])


def _observations(shape: tuple[int, ...], rows: int, rng: np.random.Generator) -> np.ndarray:
    if len(shape) == 3:
        return rng.integers(2, size=(rows, *shape), dtype=np.uint8)
    return rng.standard_normal((rows, *shape), dtype=np.float32)
