"""Whole visual SAC training on CarRacing, decisions a second: ours, Stable-Baselines3, and the study.

The study and Stable-Baselines3 see 96×96 grey frames, four of them, through Gymnasium's environment, and do one update
of batch 256 a step; so does our preset `faithful`. The preset `fast` does what learns best: its differences are in
docs/carracing.md. Each runs a few steps in turn, after it has begun to learn.
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
from measure import Row, estimate, interleave, main, ratio_of, say
from stable_baselines3 import SAC as SB3SAC
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack
from torch.nn import functional as f

from hotloop.training.learn.sac.networks import squash
from hotloop.training.learn.sac.state import SACRule, SACState
from hotloop.training.pipelines.sac_carracing import (
    FAITHFUL,
    Agent,
    Config,
    Training,
    actor_loss,
    collect,
    critic_loss,
    critic_target,
    learn,
    move_target,
    temperature_gradient,
)
from hotloop.training.run.counts import Counts, Episodes
from hotloop.training.run.phase_timer import Laps
from hotloop.training.tasks import carracing
from hotloop.training.tasks.carracing import learner_config, make_replay
from hotloop.training.tasks.game import FrameStacks, training_seeds

BATCH, STARTS, GAMMA = 256, 300, 0.99
STUDY, SB3 = "the study", "Stable-Baselines3"
ASKED = {("faithful", STUDY): 2.0, ("fast", SB3): 15.0}
AT_ONCE = {"faithful": 2, "fast": 32, STUDY: 2, SB3: 2}
"""Decisions in a block."""
Step = Callable[[], object]


def run(quick: bool) -> list[Row]:
    """Measure everything this bench shows."""
    torch.set_num_threads(2)
    say("sac_training: filling buffers")
    variants = {
        "faithful": ours(replace(FAITHFUL, learning_starts=STARTS, buffer=5_000, kernel="lean")),
        "fast": ours(replace(Config(), learning_starts=STARTS, buffer=5_000, kernel="lean")),
        STUDY: study(),
        SB3: sb3(),
    }
    for step in variants.values():
        step()
    say("sac_training: training")
    times = interleave(variants, 2 if quick else 12, calls=1)
    each = {name: taken / AT_ONCE[name] for name, taken in times.items()}
    rows = []
    for preset in ("faithful", "fast"):
        for peer in (STUDY, SB3):
            ratio = estimate(ratio_of, each[peer], each[preset])
            mine, theirs = (float(np.median(each[name])) for name in (preset, peer))
            rows.append(
                Row(f"training, preset {preset} ({1e9 / mine:.1f} decisions/s)", mine / 1e6, theirs / 1e6,
                    f"{peer} ({1e9 / theirs:.2f}/s)", "ms", ratio.value, ratio.low, ratio.high,
                    ASKED.get((preset, peer), 0.0))
            )  # fmt: skip
    return rows


def ours(config: Config) -> Step:
    """Return some decisions of sac-carracing, past the start of learning."""
    env = carracing.make_env(config, config.envs, config.workers, config.patience)
    frames, _ = env.reset(seed=training_seeds(0, config.envs, np.uint32))
    training = Training(
        config, env, make_replay(config, frames, config.buffer), Agent(config), np.random.default_rng(0), frames,
        FrameStacks(frames, config.stack), Counts(), Episodes(config.envs), None,
    )  # fmt: skip
    timed = Laps()
    while training.counts.env_steps < config.first_update - config.envs:
        collect(training, timed)
    rounds = AT_ONCE["fast" if config.envs > 1 else "faithful"] // config.envs

    def step() -> None:
        for _ in range(rounds):
            collect(training, timed)
            learn(training, timed)

    return step


class Seen(gym.Wrapper[Any, Any, Any, Any]):
    """Grey frames and two-number actions, as the study has them."""

    def __init__(self, channel_last: bool) -> None:
        super().__init__(gym.make("CarRacing-v3"))
        self.channel_last = channel_last
        self.action_space = gym.spaces.Box(-1, 1, (2,), np.float32)
        self.observation_space = gym.spaces.Box(0, 255, (96, 96, 1) if channel_last else (96, 96), np.uint8)

    def step(self, action: Any) -> Any:
        steer, pedal = (float(each) for each in action)
        rgb, *others = self.env.step(np.array([steer, max(pedal, 0.0), max(-pedal, 0.0)]))
        return (self._grey(rgb), *others)

    def reset(self, **options: Any) -> Any:
        rgb, info = self.env.reset(**options)
        return self._grey(rgb), info

    def _grey(self, rgb: np.ndarray) -> np.ndarray:
        grey = np.rint(rgb @ carracing.GREY).astype(np.uint8)
        return grey[..., None] if self.channel_last else grey


def study() -> Step:
    """Return some steps of the study's loop: float32 stacks in a deque, a batch from lists, five encoders."""
    rule = SACRule(critic_target, critic_loss, actor_loss, temperature_gradient, move_target)
    state = SACState(learner_config(FAITHFUL), rule, 0, "cpu")
    critics = [(state.critics.eyes[k], state.critics.bodies[k]) for k in range(2)]
    targets = [(state.target.eyes[k], state.target.bodies[k]) for k in range(2)]
    optimisers = [torch.optim.Adam([*eye.parameters(), *body.parameters()], lr=3e-4) for eye, body in critics]
    actor_optimiser = torch.optim.Adam(state.policy.parameters(), lr=3e-4)
    log_alpha = torch.zeros(1, requires_grad=True)
    alpha_optimiser = torch.optim.Adam([log_alpha], lr=3e-4)

    def see(eye: Any, x: torch.Tensor) -> torch.Tensor:
        for conv in eye.convs:
            x = f.relu(conv(x))
        return x.view(x.size(0), -1)

    def value(critic: Any, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return critic[1](see(critic[0], obs), action)

    def draw(obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, log_std = state.policy(see(state.policy.eye, obs))
        action, log_prob = squash(mean, log_std, torch.randn_like(mean))
        return action, log_prob.unsqueeze(1)

    def descend(optimiser: Any, loss: torch.Tensor) -> None:
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

    def update(rows: list[Any]) -> None:
        columns = zip(*random.sample(rows, BATCH), strict=True)
        obs, action, reward, next_obs, done = (torch.FloatTensor(np.array(each)) for each in columns)
        reward, done, alpha = reward.unsqueeze(1), done.unsqueeze(1), log_alpha.exp().detach()
        with torch.no_grad():
            next_action, next_log_prob = draw(next_obs)
            next_q = torch.min(*(value(each, next_obs, next_action) for each in targets)) - alpha * next_log_prob
            goal = reward + (1 - done) * GAMMA * next_q
        for critic, optimiser in zip(critics, optimisers, strict=True):
            descend(optimiser, f.mse_loss(value(critic, obs, action), goal))
        new_action, log_prob = draw(obs)
        q = torch.min(*(value(each, obs, new_action) for each in critics))
        descend(actor_optimiser, (alpha * log_prob - q).mean())
        descend(alpha_optimiser, -(log_alpha * (log_prob - 2).detach()).mean())
        with torch.no_grad():
            for theirs, own in zip(state.target.parameters(), state.critics.parameters(), strict=True):
                theirs.data.copy_(0.005 * own.data + 0.995 * theirs.data)

    scaled = gym.wrappers.RescaleObservation(
        gym.wrappers.DtypeObservation(Seen(channel_last=False), np.float32), np.float32(0), np.float32(1)
    )
    env = gym.wrappers.FrameStackObservation(scaled, 4)
    rows: deque[Any] = deque(maxlen=100_000)
    obs, _ = env.reset(seed=0)

    def step(learns: bool = True) -> None:
        nonlocal obs
        for _ in range(AT_ONCE[STUDY] if learns else 1):
            with torch.no_grad():
                action = draw(torch.FloatTensor(obs).unsqueeze(0))[0][0].cpu().numpy()
            next_obs, reward, terminated, truncated, _ = env.step(action)
            rows.append((obs, action, reward, next_obs, float(terminated)))
            obs = env.reset()[0] if terminated or truncated else next_obs
            if learns:
                update(rows)  # type: ignore[arg-type]

    for _ in range(STARTS):
        step(learns=False)
    return step


def sb3() -> Step:
    """Return some steps of Stable-Baselines3's SAC with its own CNN."""
    env = VecFrameStack(DummyVecEnv([lambda: Seen(channel_last=True)]), 4)
    model = SB3SAC(
        "CnnPolicy", env, buffer_size=5_000, learning_starts=STARTS, batch_size=BATCH, train_freq=1, gradient_steps=1,
        device="cpu", seed=0,
    )  # fmt: skip
    model.learn(STARTS)

    def step() -> None:
        model.learn(AT_ONCE[SB3], reset_num_timesteps=False)

    return step


if __name__ == "__main__":
    main(run, __doc__)
