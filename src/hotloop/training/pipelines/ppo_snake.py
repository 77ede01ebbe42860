"""ppo-snake: proximal policy optimisation learns Snake from fresh rollouts. One iteration is `collect`, then `learn`.

An iteration plays T steps in each of N games, estimates advantages, and does several passes over the T·N steps in
minibatches. A truncated episode bootstraps from the value of its final observation, a terminated one does not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from hotloop.phases import Phase
from hotloop.training.run.config_checks import (
    require,
    require_positive,
    require_seed,
    require_share,
)
from hotloop.training.run.configuration import derive
from hotloop.training.run.counts import Counts, Episodes
from hotloop.training.run.options import Options
from hotloop.training.run.phase_timer import Laps
from hotloop.training.run.saved_training import common_state, restore_common
from hotloop.training.run.warm_up import learner_compiled_ahead, settle_kernel
from hotloop.training.state_checks import take_like
from hotloop.training.tasks import snake
from hotloop.training.tasks.game import training_seeds

if TYPE_CHECKING:
    from torch import Tensor

    from hotloop.json_types import Json
    from hotloop.training.envs.snake import SnakeVectorEnv
    from hotloop.training.learn import Acted, PPOConfig, PPORows, PPOUpdated
    from hotloop.training.learn.loss_terms import PPOLosses
    from hotloop.training.learn.networks import ActorCritic
    from hotloop.training.run.checkpoint import Groups
    from hotloop.training.run.recording import Recording
    from hotloop.training.run.result import Result
    from hotloop.training.run.saved_training import Saved
    from hotloop.training.run.training_run import TrainingRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(snake.GameOptions):
    """ppo-snake. The defaults are the preset `fast`."""

    seed: int = 0
    """Seed of the networks, the games and the order of minibatches."""
    envs: int = 256
    """Number of games played in parallel."""
    features: snake.Features = "enhanced"
    reward_death: float = -100.0
    rollout: int = 64
    """Steps per game and iteration."""
    epochs: int = 4
    """Passes over each rollout."""
    minibatch: int = 256
    """Steps per minibatch."""
    gamma: float = 0.998
    gae_lambda: float = 0.97
    policy_lr: float = 3e-4
    value_lr: float = 1e-3
    clip: float = 0.2
    """PPO's clip range."""
    entropy: float = 0.01
    """Weight of the entropy bonus."""
    max_grad_norm: float = 0.5
    """Maximum norm of the gradient; 0 turns clipping off."""
    reward_scale: float = 1.0
    """The learner sees rewards times this; reports show unscaled rewards."""
    kernel: Literal["auto", "torch", "numba"] = "auto"
    """Implementation of the update; auto measures and takes the fastest."""
    device: str = "cpu"
    threads: int = 1
    """Torch threads. Small networks are fastest with one."""

    def __post_init__(self) -> None:
        """Reject settings that cannot be trained with."""
        require_seed(self)
        require_positive(self, "envs", "rollout", "epochs", "minibatch", "policy_lr", "value_lr", "clip", "threads")
        require_positive(self, "reward_scale")
        require_share(self, "gamma", "gae_lambda")
        require(self.max_grad_norm >= 0, self, "max_grad_norm", "0 or more")
        steps = self.envs * self.rollout
        require(steps % self.minibatch == 0, self, "minibatch", f"a divisor of envs × rollout, {steps}")
        snake.check(self)

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
        from hotloop.training.learn import PPO, PPOConfig, PPORule

        self.observation_shape, actions = snake.spaces(config)
        learner = derive(PPOConfig, config, observation=self.observation_shape, actions=actions)
        kernel = "torch" if config.kernel == "auto" else config.kernel
        self.learner = PPO(
            learner, PPORule(ppo_loss, numba=True), seed=config.seed, kernel=kernel, device=config.device
        )

    def act(self, obs: np.ndarray) -> np.ndarray:
        """Return the likeliest actions, int64 [N], for observations [N, ...]."""
        return self.learner.greedy(obs)

    def explore(self, obs: np.ndarray, episodes: int, rng: np.random.Generator) -> Acted:
        """Sample actions; also return their log-probabilities and the values of the observations."""
        return self.learner.act(obs, rng)


class Steps(NamedTuple):
    """The rollout of one iteration, [T, N, ...] each."""

    obs: np.ndarray
    action: np.ndarray
    log_prob: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    value: np.ndarray
    next_value: np.ndarray
    """Values of the true next observations: the final ones where an episode ended."""

    @classmethod
    def empty(cls, rollout: int, obs: np.ndarray) -> Steps:
        """Allocate T steps for observations like these, [N, ...]."""
        shape = (rollout, len(obs))
        real = [np.empty(shape, np.float32) for _ in range(4)]
        flags = [np.empty(shape, np.bool_) for _ in range(2)]
        seen = np.empty((rollout, *obs.shape), obs.dtype)
        return cls(seen, np.empty(shape, np.int64), real[0], real[1], flags[0], flags[1], real[2], real[3])


@dataclass(slots=True)
class Training:
    """Everything that changes during training."""

    config: Config
    env: SnakeVectorEnv
    agent: Agent
    steps: Steps
    """Overwritten in each iteration."""
    rng: np.random.Generator
    obs: np.ndarray
    """[N, ...]: current observations."""
    counts: Counts
    episodes: Episodes
    updated: PPOUpdated | None = None
    """Metrics of the last iteration's updates."""

    def scalars(self) -> dict[str, float | None]:
        """Return the losses, entropy, divergence and how often the clipping held."""
        from hotloop.training.learn import PPOUpdated

        return dict.fromkeys(PPOUpdated._fields) if self.updated is None else self.updated._asdict()

    def evaluate(self, episodes: int) -> dict[str, float | None]:
        """Play greedy games to choose the best checkpoint, on seeds that neither training nor tests use."""
        return snake.play_episodes(self.agent.act, self.config, episodes, choosing=True).summary()

    def state(self) -> tuple[Groups, dict[str, Json]]:
        """Return the state for a checkpoint."""
        groups, values = common_state(self)
        return groups | {"env": self.env.get_state() | {"obs": self.obs}}, values

    def restore(self, saved: Saved) -> None:
        """Continue from a checkpoint."""
        env = saved.group("env")
        (self.obs,) = take_like(env, obs=self.obs)
        self.env.set_state(env)
        restore_common(self, saved)


def collect(training: Training, timed: Laps) -> None:
    """Play T steps in every game and store them."""
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
    """Compute advantages and do all passes over the rollout."""
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


def ppo_loss(config: PPOConfig, network: ActorCritic, rows: PPORows) -> tuple[Tensor, PPOLosses]:
    """Return the loss of a minibatch and its parts: the reference of all kernels.

    `policy + value_weight · value − entropy weight · entropy`; `ppo_losses` has the equations.
    """
    from hotloop.training.learn.loss_terms import normalise, ppo_losses

    advantage = normalise(rows.advantage) if config.normalise_advantage else rows.advantage
    logits, value = network(rows.obs)
    losses = ppo_losses(logits, value, (rows.action, rows.log_prob, advantage, rows.returns), config.clip)
    return losses.policy + config.value_weight * losses.value - config.entropy * losses.entropy, losses


def train(config: Config, options: Options | None = None, recording: Recording | None = None) -> Result:
    """Train until a limit in the options is reached, or until Ctrl-C; `recording` is the recorder around the run."""
    from hotloop.training.run.training_run import opened

    with opened("ppo-snake", config, options or Options(), recording, Agent) as (run, agent):
        training = prepare(run, agent)
        run.begin(training)
        while run.going():
            collect(training, run.timed)
            learn(training, run.timed)
            run.after_step()
        return run.finish()


def prepare(run: TrainingRun, agent: Agent) -> Training:
    """Build and compile all parts; with `--kernel auto`, choose the fastest kernel."""
    config: Config = run.config
    supported = agent.learner.supported_kernels()
    with (
        learner_compiled_ahead("ppo-snake", config, "hotloop.training.learn.ppo.numba_kernel", supported),
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
