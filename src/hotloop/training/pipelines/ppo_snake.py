"""ppo-snake: proximal policy optimisation learns Snake from fresh rollouts. One iteration is `collect` and `learn`.

An iteration plays T steps in each of N games, estimates advantages, and makes several passes over the T·N steps in
minibatches. An episode that is truncated bootstraps from the value of its last observation; a terminated one ends.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from hotloop.phases import Phase
from hotloop.training.run.config_checks import (
    require,
    require_device,
    require_positive,
    require_seed,
    require_share,
    torch_threads,
)
from hotloop.training.run.counts import Counts, Episodes
from hotloop.training.run.options import Options
from hotloop.training.run.phase_timer import Laps
from hotloop.training.run.warm_up import learner_compiled_ahead, settle_kernel
from hotloop.training.state_checks import take_like
from hotloop.training.tasks import snake
from hotloop.training.tasks.game import training_seeds

if TYPE_CHECKING:
    from hotloop.training.envs.snake import SnakeVectorEnv
    from hotloop.training.learn import Acted, PPOUpdated
    from hotloop.training.run.checkpoint import Groups
    from hotloop.training.run.recording import Recording
    from hotloop.training.run.result import Result
    from hotloop.training.run.resume import Saved
    from hotloop.training.run.training_run import TrainingRun


@dataclass(frozen=True, slots=True)
class Config:
    """ppo-snake. The defaults are the preset `fast`."""

    seed: int = 0
    """Of the networks, the games and the minibatches."""
    envs: int = 256
    """Games played side by side."""
    board: int = 10
    """Cells along a side."""
    features: snake.Features = "enhanced"
    """What the agent sees: 10, 13, 18 or 23 numbers, or the board itself."""
    actions: snake.Actions = "relative"
    """Three turns relative to the head, or four directions."""
    max_steps: int = 1000
    """Steps until an episode is truncated."""
    tail_free: bool = False
    """May the head enter the cell that the tail is about to leave?"""
    reward_food: float = 10.0
    reward_death: float = -100.0
    reward_step: float = -0.01
    reward_shaping: float = 0.5
    """Times the change of distance to the food, over the board's side."""
    reward_timeout: float = -5.0
    network: Literal["mlp", "cnn"] = "mlp"
    """mlp for numbers, cnn for --features grid."""
    hidden: tuple[int, ...] = (128, 128)
    """Units of the hidden layers."""
    rollout: int = 64
    """Steps in each game between updates."""
    epochs: int = 4
    """Passes over a rollout."""
    minibatch: int = 256
    """Steps of one update."""
    gamma: float = 0.998
    gae_lambda: float = 0.97
    policy_lr: float = 3e-4
    value_lr: float = 1e-3
    clip: float = 0.2
    """How far the probability of an action may move."""
    entropy: float = 0.01
    """Weight of the entropy."""
    max_grad_norm: float = 0.5
    """Largest norm of a gradient; 0: any."""
    reward_scale: float = 1.0
    """Rewards are multiplied with this for the learner, not in what is reported."""
    kernel: Literal["auto", "torch", "numba"] = "auto"
    """How updates are computed; auto measures and takes the fastest."""
    device: str = "cpu"
    threads: int = 1
    """Of torch. Small networks are fastest on one."""

    def __post_init__(self) -> None:
        """Refuse what cannot be trained."""
        require_seed(self)
        require_positive(self, "envs", "rollout", "epochs", "minibatch", "policy_lr", "value_lr", "clip", "threads")
        require_positive(self, "reward_scale")
        require_share(self, "gamma", "gae_lambda")
        require(self.max_grad_norm >= 0, self, "max_grad_norm", "0 or more")
        steps = self.envs * self.rollout
        require(steps % self.minibatch == 0, self, "minibatch", f"a divisor of envs × rollout, {steps}")
        fitting = "cnn" if self.features == "grid" else "mlp"
        require(self.network == fitting, self, "network", f"{fitting}, for --features {self.features}")
        require(
            bool(self.hidden) and min(self.hidden) > 0, self, "hidden", "units of each hidden layer, such as 128 128"
        )

    @property
    def updates_per_iteration(self) -> int:
        """Optimiser steps of an iteration."""
        return self.epochs * self.envs * self.rollout // self.minibatch


FAITHFUL = Config(features="flood", reward_death=-10.0, rollout=8, epochs=10, minibatch=64, gamma=0.99, gae_lambda=0.95)
PRESETS: dict[str, tuple[Config, str]] = {
    "fast": (Config(), "the default: learns best per minute"),
    "faithful": (FAITHFUL, "the study's: 8 steps of 256 games, 10 epochs, minibatches of 64"),
}


class Agent:
    """A policy and a value function."""

    def __init__(self, config: Config) -> None:
        from hotloop.training.learn import PPO, PPOConfig

        self.observation_shape, actions = snake.spaces(config)
        names = ("hidden", "minibatch", "epochs", "policy_lr", "value_lr", "clip", "entropy", "max_grad_norm")
        shape = PPOConfig(self.observation_shape, actions, **{name: getattr(config, name) for name in names})
        kernel = "torch" if config.kernel == "auto" else config.kernel
        self.learner = PPO(shape, seed=config.seed, kernel=kernel, device=config.device)

    def act(self, obs: np.ndarray) -> np.ndarray:
        """Return the likeliest actions, int64 [N], for observations [N, ...]."""
        return self.learner.greedy(obs)

    def explore(self, obs: np.ndarray, episodes: int, rng: np.random.Generator) -> Acted:
        """Return actions drawn from the policy, with their log-probabilities and the values of the observations."""
        return self.learner.act(obs, rng)


class Steps(NamedTuple):
    """What an iteration collects, [T, N, ...] each."""

    obs: np.ndarray
    action: np.ndarray
    log_prob: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    value: np.ndarray
    next_value: np.ndarray
    """Of the true next observation: of an episode's last where one ended."""

    @classmethod
    def empty(cls, rollout: int, obs: np.ndarray) -> Steps:
        """Make room for T steps of observations such as these [N, ...]."""
        shape = (rollout, len(obs))
        real = [np.empty(shape, np.float32) for _ in range(4)]
        flags = [np.empty(shape, np.bool_) for _ in range(2)]
        seen = np.empty((rollout, *obs.shape), obs.dtype)
        return cls(seen, np.empty(shape, np.int64), real[0], real[1], flags[0], flags[1], real[2], real[3])


@dataclass(slots=True)
class Training:
    """Everything that changes while training: what a checkpoint holds."""

    config: Config
    env: SnakeVectorEnv
    agent: Agent
    steps: Steps
    """Filled anew in each iteration; nothing of it outlives one."""
    rng: np.random.Generator
    obs: np.ndarray
    """[N, ...]: what the games show now."""
    counts: Counts
    episodes: Episodes
    updated: PPOUpdated | None = None
    """Metrics of the last iteration's updates."""

    def scalars(self) -> dict[str, float | None]:
        """Return the losses, entropy, divergence and how often the clipping held."""
        names = ("policy_loss", "value_loss", "entropy", "kl", "clip_fraction")
        return {name: None if self.updated is None else float(getattr(self.updated, name)) for name in names}

    def evaluate(self, episodes: int) -> dict[str, float | None]:
        """Play greedy games that choose the best checkpoint: of seeds that neither training nor a test has."""
        return snake.play_episodes(self.agent.act, self.config, episodes, choosing=True).summary()

    def state(self) -> tuple[Groups, dict[str, Any]]:
        """Return everything that a checkpoint needs."""
        groups = {
            "learner": self.agent.learner.tensors(),
            "env": self.env.get_state() | {"obs": self.obs},
            "episodes": self.episodes.state(),
        }
        return groups, {"rng": self.rng.bit_generator.state}

    def restore(self, saved: Saved) -> None:
        """Go on from a checkpoint."""
        env = saved.group("env")
        (self.obs,) = take_like(env, obs=self.obs)
        self.env.set_state(env)
        self.agent.learner.load(saved.group("learner"))
        self.episodes.restore(saved.group("episodes"))
        self.rng.bit_generator.state = saved.random_state()
        self.counts = saved.counts


def collect(training: Training, timed: Laps) -> None:
    """Play T steps in every game."""
    steps, learner = training.steps, training.agent.learner
    for t in range(training.config.rollout):
        with timed("act"):
            acted = training.agent.explore(training.obs, training.counts.episodes, training.rng)
        with timed("env.step"):
            obs, reward, terminated, truncated, info = training.env.step(acted.action)
        with timed("rollout.store"):
            steps.obs[t], steps.action[t], steps.log_prob[t] = training.obs, acted.action, acted.log_prob
            steps.value[t], steps.reward[t] = acted.value, reward
            steps.terminated[t], steps.truncated[t] = terminated, truncated
        if truncated.any():
            with timed("act"):
                steps.next_value[t, truncated] = learner.value(info["final_obs"])[truncated]
        with timed("count", Phase.LOG):
            score = info["final_info"]["score"] if "final_info" in info else info["score"]
            ended = training.episodes.step(reward, terminated | truncated, score)
            training.counts.add(env_steps=len(reward), episodes=ended)
        training.obs = obs
    with timed("act"):
        following = np.concatenate([steps.value[1:], learner.value(training.obs)[None]])
        np.copyto(steps.next_value, following, where=~steps.truncated)


def learn(training: Training, timed: Laps) -> None:
    """Make the passes over what was collected."""
    from hotloop.training.learn import Rollout, gae

    config, steps = training.config, training.steps
    with timed("advantages", Phase.FORWARD):
        reward = steps.reward * np.float32(config.reward_scale)
        advantage = gae(
            reward, steps.value, steps.next_value, steps.terminated, steps.truncated, config.gamma, config.gae_lambda
        )
        rollout = Rollout(
            steps.obs.reshape(-1, *steps.obs.shape[2:]),
            steps.action.ravel(),
            steps.log_prob.ravel(),
            advantage.ravel(),
            (advantage + steps.value).ravel(),
        )
    with timed("learn.update", Phase.OPTIMISE):
        training.updated = training.agent.learner.update(rollout, training.rng)
    training.counts.add(updates=config.updates_per_iteration)


def train(config: Config, options: Options | None = None, recording: Recording | None = None) -> Result:
    """Train until a limit of the options is reached, or Ctrl-C.

    Args:
        config: What to learn, and how.
        options: How long, what to write, and where.
        recording: The recorder around the run, if there is one.
    """
    from hotloop.training.run.training_run import TrainingRun

    require_device(config.device)
    with (
        torch_threads(config.threads),
        nullcontext(Agent(config)) as agent,  # refuses what cannot be, before anything is written
        TrainingRun("ppo-snake", config, options or Options(), recording) as run,
    ):
        training = prepare(run, agent)
        run.begin(training)
        while run.going():
            collect(training, run.timed)
            learn(training, run.timed)
            run.after_step()
        return run.finish()


def prepare(run: TrainingRun, agent: Agent) -> Training:
    """Build everything, compile it and, where the configuration leaves it open, choose the kernel."""
    from hotloop.training.learn import supported_ppo_kernels

    config: Config = run.config
    supported = supported_ppo_kernels(agent.learner.config, agent.learner.device)
    with (
        learner_compiled_ahead("ppo-snake", config, "hotloop.training.learn.ppo.fused", supported),
        run.preparing("games"),
    ):
        env = snake.make_env(config, config.envs)
        obs, _ = env.reset(seed=training_seeds(config.seed, config.envs))
    with run.preparing("learner"):
        config = replace(config, kernel=settle_kernel(agent.learner, config.kernel, config.updates_per_iteration))
        agent.explore(obs, 0, np.random.default_rng(0))
    steps, rng = Steps.empty(config.rollout, obs), np.random.default_rng([config.seed])
    training = Training(config, env, agent, steps, rng, obs, Counts(), Episodes(config.envs))
    if run.checkpoint is not None:
        training.restore(run.checkpoint)
    return training
