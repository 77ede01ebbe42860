"""Whole DQN training on Snake, transitions a second: ours, Stable-Baselines3 on the study's environment, and the study.

All three do the same work: 256 games, MLP 128-128, Adam 1e-3, plain DQN, 8 (the study's later schedule) or 64 (its
original) updates of batch 64 a vector step. Each runs a few vector steps in turn, after it has begun to learn.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from measure import Row, Times, estimate, interleave, main, ratio_of, say
from snake_study import StudySnake
from stable_baselines3 import DQN as SB3DQN
from stable_baselines3.common.vec_env import VecEnv
from torch import nn

from hotloop.training.pipelines.dqn_snake import FAITHFUL, Agent, Training, collect, learn, make_replay
from hotloop.training.run.counts import Counts, Episodes
from hotloop.training.run.phase_timer import Laps
from hotloop.training.tasks import snake
from hotloop.training.tasks.game import training_seeds

GAMES, BATCH, BUFFER = 256, 64, 100_000
WARM = 12
"""Vector steps before anything is timed: kernels compile, and replay holds enough to learn from."""
STUDY, SB3 = "the study", "Stable-Baselines3 on the study's games"
ASKED = {(8, SB3): 8.0, (8, "flood"): 40.0, (64, SB3): 6.0, (64, "flood"): 10.0}
Step = Callable[[], object]


def run(quick: bool) -> list[Row]:
    """Measure everything this bench shows."""
    torch.set_num_threads(1)
    rows = []
    for updates in (8, 64):
        rounds = 2 if quick else (20 if updates == 8 else 10)
        for features in ("basic", "flood"):
            say(f"training: {features}, {updates} updates a vector step")
            rows += compare(features, updates, rounds)
    return rows


def compare(features: str, updates: int, rounds: int) -> list[Row]:
    """One schedule with one set of features."""
    variants = {"ours": ours(features, updates), STUDY: study(features == "flood", updates)}
    if features == "basic":
        variants[SB3] = sb3(updates)
    for step in variants.values():
        for _ in range(WARM):
            step()
    times = interleave(variants, rounds, calls=1)
    return [
        beside(f"training, {features}, {updates} updates a step", times["ours"] / OURS_AT_ONCE, times[peer], peer,
               ASKED.get((updates, peer), ASKED.get((updates, features), 0.0) if peer == STUDY else 0.0))
        for peer in variants if peer != "ours"
    ]  # fmt: skip


def beside(name: str, own: Times, theirs: Times, peer: str, asked: float) -> Row:
    """Make the row of a comparison, in µs a transition."""
    ratio = estimate(ratio_of, theirs, own)
    return Row(
        f"{name} ({GAMES / np.median(own) * 1e9:,.0f} transitions/s)", float(np.median(own)) / GAMES / 1e3,
        float(np.median(theirs)) / GAMES / 1e3, f"{peer} ({GAMES / np.median(theirs) * 1e9:,.0f}/s)", "µs",
        ratio.value, ratio.low, ratio.high, asked,
    )  # fmt: skip


OURS_AT_ONCE = 10


def ours(features: Any, updates: int) -> Step:
    """Return a few vector steps of dqn-snake, its faithful preset."""
    config = replace(FAITHFUL, features=features, updates_per_step=updates, kernel="numba")
    env = snake.make_env(config, config.envs)
    obs, _ = env.reset(seed=training_seeds(0, config.envs))
    replay, rng = make_replay(config, obs, BUFFER), np.random.default_rng(0)
    training = Training(config, env, replay, Agent(config), rng, obs, Counts(), Episodes(config.envs))
    timed = Laps()

    def step() -> None:
        for _ in range(OURS_AT_ONCE):
            collect(training, timed)
            learn(training, timed)

    return step


class StudyVecEnv(VecEnv):
    """The study's games as Stable-Baselines3 wants them."""

    def __init__(self) -> None:
        self.games = StudySnake(GAMES)
        space = gym.spaces.Box(-np.inf, np.inf, (10,), np.float32)
        super().__init__(GAMES, space, gym.spaces.Discrete(3))

    def reset(self) -> np.ndarray:
        return self.games.reset(seed=0).numpy().astype(np.float32)

    def step_async(self, actions: np.ndarray) -> None:
        self.actions = torch.from_numpy(np.asarray(actions, np.int64))

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        obs, rewards, terminated, truncated = self.games.step(self.actions)
        shown = obs.numpy().astype(np.float32)
        done = (terminated | truncated).numpy()
        infos: list[dict[str, Any]] = [{"terminal_observation": shown[i]} if done[i] else {} for i in range(GAMES)]
        return shown, rewards.numpy().astype(np.float32), done, infos

    def close(self) -> None: ...

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [None] * GAMES

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None: ...

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        return [None] * GAMES

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * GAMES


def sb3(updates: int) -> Step:
    """Return one vector step of Stable-Baselines3's DQN."""
    model = SB3DQN(
        "MlpPolicy", StudyVecEnv(), learning_rate=1e-3, buffer_size=BUFFER, learning_starts=2_000, batch_size=BATCH,
        train_freq=1, gradient_steps=updates, target_update_interval=1_000, max_grad_norm=1.0,
        policy_kwargs={"net_arch": [128, 128]}, device="cpu", seed=0,
    )  # fmt: skip
    begun = False

    def step() -> None:
        nonlocal begun
        model.learn(GAMES, reset_num_timesteps=not begun)
        begun = True

    return step


def study(flood: bool, updates: int) -> Step:
    """Return one vector step as the study does it: transitions pushed one by one, batches made of lists."""
    torch.manual_seed(0)
    games, generator = StudySnake(GAMES, flood=flood), random.Random(0)
    inputs = 13 if flood else 10
    net, target = (_mlp(inputs) for _ in range(2))
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3)
    memory: deque[tuple[Any, ...]] = deque(maxlen=BUFFER)
    states = games.reset(seed=0).float()

    def update() -> None:
        s, a, r, s2, d = zip(*generator.sample(memory, BATCH), strict=True)
        now, later = torch.from_numpy(np.stack(s)), torch.from_numpy(np.stack(s2))
        actions, rewards, ended = torch.tensor(a), torch.tensor(r), torch.tensor(d, dtype=torch.float32)
        with torch.no_grad():
            goal = rewards + 0.99 * (1 - ended) * target(later).max(1).values
        loss = nn.functional.smooth_l1_loss(net(now).gather(1, actions[:, None])[:, 0], goal)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimiser.step()

    def step() -> None:
        nonlocal states
        with torch.no_grad():
            actions = net(states).argmax(1)
        explore = torch.rand(GAMES) < 0.05
        actions[explore] = torch.randint(0, 3, (int(explore.sum()),))
        later, rewards, terminated, truncated = games.step(actions)
        later, done = later.float(), terminated | truncated
        for i in range(GAMES):
            memory.append(
                (states[i].cpu().numpy(), actions[i].item(), rewards[i].item(), later[i].cpu().numpy(), done[i].item())
            )
        states = later
        if len(memory) >= 2_000:
            for _ in range(updates):
                update()

    return step


def _mlp(inputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 3))


if __name__ == "__main__":
    main(run, __doc__)
