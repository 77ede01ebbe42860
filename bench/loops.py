"""The loops of the correction benchmark: small, with different hot spots and span granularity.

Each `make_*` returns one iteration as a function. Those without spans of their own are recorded by the hooks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from update import make_update

from hotloop.spans import count, span

Iteration = Callable[[], object]


@dataclass(frozen=True, slots=True)
class LoopCase:
    """A loop to record."""

    title: str
    make: Callable[[], Iteration]
    hooks: bool = False
    """Whether it is recorded by the zero-code hooks instead of its own spans."""


def _mlp(inputs: int, width: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, outputs))


def make_numpy_env() -> Iteration:
    """A vectorised numpy environment and a tiny policy: three spans in some 100 µs."""
    torch.manual_seed(1)
    net, state, generator = _mlp(8, 32, 2), np.zeros((64, 8), np.float32), np.random.default_rng(1)

    def iteration() -> None:
        nonlocal state
        with span("policy.act"), torch.no_grad():
            action = net(torch.from_numpy(state)).argmax(1).numpy()
        with span("env.step"):
            count("env_steps", 64)
            push = np.where(action == 1, 0.1, -0.1).astype(np.float32)[:, None]
            state = 0.97 * state + push + 0.01 * generator.standard_normal((64, 8), np.float32)
        with span("replay.store"):
            state.copy()

    return iteration


def make_dqn_update() -> Iteration:
    """One DQN update with ten spans."""
    update = make_update(span)

    def iteration() -> None:
        update()
        count("env_steps")

    return iteration


def make_ppo_rollout() -> Iteration:
    """Sixteen steps of an actor-critic in a numpy environment, then one update: fine spans below coarse ones."""
    torch.manual_seed(1)
    actor, critic = _mlp(8, 64, 4), _mlp(8, 64, 1)
    optimiser = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=3e-4)
    state = torch.zeros(32, 8)

    def iteration() -> None:
        nonlocal state
        kept = []
        with span("rollout"):
            for _ in range(16):
                with span("policy.act"), torch.no_grad():
                    action = torch.distributions.Categorical(logits=actor(state)).sample()
                with span("env.step"):
                    count("env_steps", 32)
                    kept.append(state)
                    state = 0.9 * state + 0.1 * action[:, None]
        with span("update"):
            batch = torch.cat(kept)
            with span("net.forward"):
                loss = critic(batch).pow(2).mean() + actor(batch).logsumexp(1).mean()
            with span("loss.backward"):
                optimiser.zero_grad()
                loss.backward()
            with span("optimiser.step"):
                optimiser.step()

    return iteration


def make_python_env() -> Iteration:
    """An environment in pure Python, where the loop and the recorder compete for the GIL."""
    board = [[0] * 16 for _ in range(16)]
    at = [0, 0]

    def iteration() -> None:
        with span("env.step"):
            count("env_steps")
            at[0], at[1] = (at[0] + 5) % 16, (at[1] + 3) % 16
            board[at[0]][at[1]] ^= 1
        with span("env.features"):
            for row in range(16):
                sum(board[row][column] * (row + column) for column in range(16))

    return iteration


def make_sac_update() -> Iteration:
    """One SAC update of medium size: few spans, long operations."""
    torch.manual_seed(1)
    actor, critic, target = _mlp(17, 256, 12), _mlp(23, 256, 1), _mlp(23, 256, 1)
    optimisers = [torch.optim.Adam(net.parameters(), lr=3e-4) for net in (actor, critic)]
    store = torch.randn(8192, 17)

    def act(obs: torch.Tensor) -> torch.Tensor:
        mean, log_std = actor(obs).chunk(2, 1)
        return torch.tanh(mean + log_std.clamp(-5, 2).exp() * torch.randn_like(mean))

    def iteration() -> None:
        with span("replay.sample"):
            count("env_steps")
            obs = store[torch.randint(0, 8192, (256,))]
        with span("critic"):
            with torch.no_grad():
                goal = 0.99 * target(torch.cat([obs, act(obs)], 1))
            loss = (critic(torch.cat([obs, act(obs).detach()], 1)) - goal).pow(2).mean()
            optimisers[1].zero_grad()
            loss.backward()
            optimisers[1].step()
        with span("actor"):
            loss = -critic(torch.cat([obs, act(obs)], 1)).mean()
            optimisers[0].zero_grad()
            loss.backward()
            optimisers[0].step()
        with span("target.sync"), torch.no_grad():
            for slow, fast in zip(target.parameters(), critic.parameters(), strict=True):
                slow.lerp_(fast, 0.005)

    return iteration


def make_cartpole() -> Iteration:
    """Gymnasium's CartPole with a small policy and no spans: everything is recorded by hooks."""
    torch.manual_seed(1)
    env, net = gym.make("CartPole-v1"), _mlp(4, 64, 2)
    obs, _ = env.reset(seed=1)

    def iteration() -> None:
        nonlocal obs
        with torch.no_grad():
            action = int(net(torch.from_numpy(obs)).argmax())
        obs, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            obs, _ = env.reset()

    return iteration


LOOPS = (
    LoopCase("numpy environment, tiny policy", make_numpy_env),
    LoopCase("DQN update, ten spans", make_dqn_update),
    LoopCase("PPO rollout and update", make_ppo_rollout),
    LoopCase("environment in pure Python", make_python_env),
    LoopCase("SAC update", make_sac_update),
    LoopCase("CartPole, hooks only", make_cartpole, hooks=True),
)
