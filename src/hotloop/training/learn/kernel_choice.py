"""Choosing a kernel by a short measurement instead of by faith.

Which kernel is fastest depends on the machine, the network and how many updates are asked for at a time. The
trial runs on copies with made-up data: the learner, and every generator of random numbers, stay as they were.
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
LONG_S, FEW_ROUNDS = 0.1, 3
"""Calls that take longer than this are tried fewer times."""
COMPILED = "compile"
MOST_SAID = 200
"""Characters of what a compiler says that are repeated: it can say pages."""
Learner = DQN | FrameDQN | PPO | SAC


@dataclass(frozen=True, slots=True)
class Choice:
    """The fastest kernel, and what an update, or one of its parts, took with each that was tried."""

    kernel: str
    update_s: dict[str, float]
    left_out: dict[str, str] = field(default_factory=dict)
    """Those that cannot be used on this machine, and why."""


def choose_kernel(learner: Learner, updates_per_call: int = 8, candidates: Sequence[str] | None = None) -> Choice:
    """Measure the kernels that can run this learner's network and name the fastest.

    Args:
        learner: Is not changed: call its `use` with the answer.
        updates_per_call: How many updates one call of `update` will do.
        candidates: Kernels to try; None for all that are ready within seconds, which "compile" is not.
    """
    if candidates is None:
        candidates = [name for name in _supported(learner) if name != "compile"]
    calls: dict[str, Callable[[], object]] = {}
    left_out: dict[str, str] = {}
    for name in candidates:
        try:
            call = _trial(learner, name, updates_per_call)
            call()  # compiles
            calls[name] = call
        except Exception as error:
            # Only what torch.compile makes depends on programs of the machine, such as a C++ compiler.
            if name != COMPILED or isinstance(error, HotloopError):
                raise
            left_out[name] = " ".join(str(error).split())[:MOST_SAID]
    if not calls:
        raise HotloopError(f"kernel {COMPILED} cannot be used here ({left_out[COMPILED]}): choose another by --kernel")
    begin = now_ns()
    for call in calls.values():
        call()
    rounds = FEW_ROUNDS if (now_ns() - begin) / 1e9 > LONG_S * len(calls) else ROUNDS
    times = {name: np.empty(rounds) for name in calls}
    for i in range(rounds):
        for name, call in calls.items():
            begin = now_ns()
            call()
            times[name][i] = (now_ns() - begin) / 1e9 / updates_per_call
    update_s = {name: float(np.median(of)) for name, of in times.items()}
    return Choice(min(update_s, key=lambda name: update_s[name]), update_s, left_out)


def _supported(learner: Learner) -> list[str]:
    if isinstance(learner, DQN):
        return supported_kernels(learner.config, learner.device)
    if isinstance(learner, FrameDQN):
        return supported_frame_kernels(learner.config, learner.device)
    if isinstance(learner, SAC):
        return supported_sac_kernels(learner.config, learner.device)
    return supported_ppo_kernels(learner.config, learner.device)


def _trial(learner: Learner, kernel: str, updates: int) -> Callable[[], object]:
    """Make a copy of the learner and a call that does some updates with it."""
    rng = np.random.default_rng(0)
    if isinstance(learner, DQN):
        copy = DQN(learner.config, kernel=kernel, device=learner.device)
        copy.load(learner.tensors())
        batch = made_up_batch(learner.config, updates, rng)
        return lambda: copy.update(batch)
    if isinstance(learner, FrameDQN):
        # One part of a batch that is computed in several tells as much about all.
        whole = learner.config
        part = replace(whole, batch=whole.batch // whole.accumulate, accumulate=1)
        looker = FrameDQN(part, kernel=kernel, device=learner.device)
        looker.load(learner.tensors())
        frames = made_up_frames(part, updates, rng)
        return lambda: looker.update(frames)
    if isinstance(learner, SAC):
        critic = SAC(learner.config, kernel=kernel, device=learner.device)
        critic.load(learner.tensors())
        steps = made_up_steps(learner.config, updates, rng)
        return lambda: critic.update(steps)
    agent = PPO(learner.config, kernel=kernel, device=learner.device)
    agent.load(learner.tensors())
    rollout = made_up_rollout(learner.config, rng)
    order = rng.permutation(len(rollout.action)).reshape(-1, learner.config.minibatch)[:updates]
    order = np.ascontiguousarray(np.resize(order, (updates, learner.config.minibatch)))
    return lambda: agent._kernel.update(rollout, order)


def made_up_batch(config: DQNConfig, updates: int, rng: np.random.Generator) -> Transitions:
    """Random transitions for some updates of a learner."""
    rows, shape = updates * config.batch, config.shape
    obs, next_obs = (_observations(shape.observation, rows, rng) for _ in range(2))
    numbers = rng.standard_normal((2, rows), dtype=np.float32)
    discount = np.where(numbers[1] > 2, np.float32(0), np.float32(0.99))
    return Transitions(obs, rng.integers(shape.actions, size=rows), numbers[0], next_obs, discount)


def made_up_steps(config: SACConfig, updates: int, rng: np.random.Generator) -> Transitions:
    """Random transitions for some updates of a SAC learner."""
    rows, shape = updates * config.batch, config.shape
    obs, next_obs = (_observations(shape.observation, rows, rng) for _ in range(2))
    action = rng.uniform(-1, 1, (rows, shape.actions)).astype(np.float32)
    reward = rng.standard_normal(rows, dtype=np.float32)
    return Transitions(obs, action, reward, next_obs, np.full(rows, 0.99, np.float32))


def made_up_frames(config: FrameDQNConfig, updates: int, rng: np.random.Generator) -> Transitions:
    """Random transitions for some updates of a DQN over frames."""
    rows, shape = updates * config.batch, config.shape
    obs, next_obs = rng.integers(256, size=(2, rows, *shape.observation), dtype=np.uint8)
    numbers = rng.standard_normal((2, rows), dtype=np.float32)
    discount = np.where(numbers[1] > 2, np.float32(0), np.float32(0.95))
    weight = rng.random(rows, dtype=np.float32)
    return Transitions(obs, rng.integers(shape.actions, size=rows), numbers[0], next_obs, discount, weight)


def made_up_rollout(config: PPOConfig, rng: np.random.Generator) -> Rollout:
    """A random rollout for one epoch of a learner."""
    rows = 8 * config.minibatch
    numbers = rng.standard_normal((2, rows), dtype=np.float32)
    log_prob = np.full(rows, -np.log(config.actions), dtype=np.float32)
    action = rng.integers(config.actions, size=rows)
    return Rollout(_observations(config.observation, rows, rng), action, log_prob, numbers[0], numbers[1])


def _observations(shape: tuple[int, ...], rows: int, rng: np.random.Generator) -> np.ndarray:
    if len(shape) == 3:
        return rng.integers(2, size=(rows, *shape), dtype=np.uint8)
    return rng.standard_normal((rows, *shape), dtype=np.float32)
