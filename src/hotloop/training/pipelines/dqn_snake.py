"""dqn-snake: a Q network learns Snake from replay. One training step is `collect`, then `learn`.

A vector step plays one action in each of N environments and stores N transitions. After every `train_every` vector
steps, one call of the learner does `updates_per_step` updates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

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
    from hotloop.training.learn import DQNConfig, QNetworks, QRows, Updated
    from hotloop.training.replay import VectorReplay
    from hotloop.training.run.checkpoint import Groups
    from hotloop.training.run.recording import Recording
    from hotloop.training.run.result import Result
    from hotloop.training.run.saved_training import Saved
    from hotloop.training.run.training_run import TrainingRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(snake.GameOptions):
    """dqn-snake. The defaults are the preset `fast`."""

    seed: int = 0
    """Seed of the network, the games, exploration and sampling."""
    envs: int = 256
    """Number of games played in parallel."""
    double: bool = True
    """Double Q-learning: the online network chooses the action that the target network values."""
    dueling: bool = False
    """Dueling network: separate streams for value and advantage."""
    noisy: bool = False
    """Explore by noisy layers instead of ε-greedy."""
    prioritised: bool = False
    """Sample transitions with a large TD error more often."""
    alpha: float = 0.6
    """Exponent of the priorities."""
    beta: float = 0.4
    """Exponent of the importance weights that correct for it."""
    n_step: int = 1
    """Steps of reward before a target bootstraps."""
    categorical: bool = False
    """Learn the distribution of returns (C51)."""
    atoms: int = 51
    v_min: float = -20.0
    v_max: float = 200.0
    """Range of the categorical returns."""
    gamma: float = 0.99
    lr: float = 1e-3
    batch: int = 64
    buffer: int = 100_000
    """Capacity of the replay buffer, in transitions."""
    learning_starts: int = 2_000
    """Transitions before the first update."""
    updates_per_step: int = 8
    """Updates per round of updates."""
    train_every: int = 1
    """Vector steps between two rounds of updates."""
    target_every: int = 1_000
    """Updates between two moves of the target network."""
    tau: float = 1.0
    """Fraction of the way that the target network moves to the online network."""
    clip: float = 1.0
    """Maximum norm of the gradient; 0 turns clipping off."""
    epsilon_start: float = 1.0
    epsilon_end: float = 0.01
    epsilon_decay: float = 0.995
    """ε is multiplied by this after each episode."""
    kernel: Literal["auto", "torch", "torch-fused", "compile", "numba"] = "auto"
    """Implementation of the update; auto measures and takes the fastest."""
    device: str = "cpu"
    threads: int = 1
    """Torch threads. Small networks are fastest with one."""

    def __post_init__(self) -> None:
        """Reject settings that cannot be trained with."""
        require_seed(self)
        require_positive(self, "envs", "lr", "batch", "learning_starts", "updates_per_step", "train_every", "threads")
        require_positive(self, "target_every", "n_step", "atoms")
        require_share(self, "gamma", "tau", "epsilon_start", "epsilon_end", "epsilon_decay", "alpha", "beta")
        least = self.first_update + self.envs * (self.n_step + 1)
        require(self.buffer >= least, self, "buffer", f"at least the {least} transitions that the first updates need")
        require(self.clip >= 0, self, "clip", "0 or more")
        require(self.v_min < self.v_max, self, "v_min", f"less than v_max, {self.v_max}")
        snake.check(self)

    @property
    def first_update(self) -> int:
        """Transitions that replay must hold for a round of updates."""
        return max(self.learning_starts, self.updates_per_step * self.batch)


FAITHFUL = Config(double=False)
PRESETS: dict[str, tuple[Config, str]] = {
    "fast": (Config(), "the default: learns best per minute"),
    "faithful": (FAITHFUL, "the study's plain DQN, 8 updates per vector step"),
    "original": (replace(FAITHFUL, updates_per_step=64), "the study's first schedule, 64 updates per vector step"),
    "careful": (
        replace(FAITHFUL, double=True, n_step=3, lr=3e-4, updates_per_step=64, epsilon_end=0.001),
        "learns most per episode: double, 3-step, lr 3e-4, 64 updates per vector step, ε down to .001",
    ),
    "rainbow": (
        replace(FAITHFUL, double=True, dueling=True, noisy=True, prioritised=True, n_step=3, categorical=True),
        "double, dueling, noisy, prioritised, 3-step and categorical together",
    ),
}


class Agent:
    """A Q network with ε-greedy or noisy exploration."""

    def __init__(self, config: Config) -> None:
        from hotloop.training.learn import DQN, QRule

        self.config = config
        self.observation_shape, self.actions = snake.spaces(config)
        kernel = "torch" if config.kernel == "auto" else config.kernel
        learner = _learner_config(config, self.observation_shape, self.actions)
        rule = QRule(loss=q_loss, move_target=move_target, numba=True)
        self.learner = DQN(learner, rule, seed=config.seed, kernel=kernel, device=config.device)

    def act(self, obs: np.ndarray) -> np.ndarray:
        """Return the best actions, int64 [N], for observations [N, ...]."""
        return self.learner.greedy(obs)

    def explore(self, obs: np.ndarray, episodes: int, rng: np.random.Generator) -> np.ndarray:
        """Return actions, int64 [N]: the best ones, or random ones with probability ε."""
        return self.learner.act(obs, self.epsilon(episodes), rng)

    def epsilon(self, episodes: int) -> float:
        """ε = max(end, start · decay^episodes); 0 where the layers' noise explores."""
        config = self.config
        if config.noisy:
            return 0.0
        return max(config.epsilon_end, config.epsilon_start * config.epsilon_decay**episodes)


@dataclass(slots=True)
class Training:
    """Everything that changes during training."""

    config: Config
    env: SnakeVectorEnv
    replay: VectorReplay
    agent: Agent
    rng: np.random.Generator
    obs: np.ndarray
    """[N, ...]: current observations."""
    counts: Counts
    episodes: Episodes
    updated: Updated | None = None
    """Metrics of the last round of updates."""

    def scalars(self) -> dict[str, float | None]:
        """Return loss, TD error and ε."""
        metrics = self.updated
        return {
            "loss": float(np.mean(metrics.loss)) if metrics is not None else None,
            "td_error": float(np.mean(metrics.td_abs)) if metrics is not None else None,
            "epsilon": self.agent.epsilon(self.counts.episodes),
        }

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
        restore_common(self, saved, self.agent.actions)


def collect(training: Training, timed: Laps) -> None:
    """Play one action in every game and store the transitions."""
    with timed("act"):
        action = training.agent.explore(training.obs, training.counts.episodes, training.rng)
    with timed("env.step"):
        obs, reward, terminated, truncated, info = training.env.step(action)
    with timed("replay.store"):
        training.replay.add(training.obs, action, reward, terminated, truncated, info.get("final_obs", obs))
    with timed("count", Phase.LOG):
        score = info["final_info"]["score"] if "final_info" in info else info["score"]
        ended = training.episodes.step(reward, terminated | truncated, score)
        training.counts.add(env_steps=len(action), episodes=ended)
    training.obs = obs


def learn(training: Training, timed: Laps) -> None:
    """Do a round of updates if one is due."""
    config, counts = training.config, training.counts
    vector_steps = counts.env_steps // config.envs
    if vector_steps % config.train_every:
        return
    if not counts.updates and len(training.replay) < config.first_update:  # replay never shrinks
        return
    with timed("replay.sample"):
        batch = training.replay.sample(config.updates_per_step * config.batch, training.rng)
    with timed("learn.update", Phase.OPTIMISE):
        training.updated = training.agent.learner.update(batch)
    if config.prioritised:
        with timed("replay.prioritise", Phase.STORE):
            training.replay.update_priorities(batch.index, training.updated.td_abs)
    counts.add(updates=config.updates_per_step)


def q_loss(config: DQNConfig, networks: QNetworks, rows: QRows) -> tuple[Tensor, Tensor]:
    """Return the loss of a batch and the absolute TD error of each row, `[B]`: the reference of all kernels.

    `mean w · huber(Q(s, a) − y)`, `y = r + d · Q⁻(s', argmax_a' Q(s', a'))`, where d is γⁿ, and 0 behind a terminal
    step. With atoms, the cross entropy with the projected distribution of `r + d · z` replaces both.
    """
    import torch

    from hotloop.training.learn.loss_terms import cross_entropy, huber, project, q_target

    output = networks.online(rows.obs)
    index = torch.arange(len(rows.action), device=rows.action.device)
    taken = output[index, rows.action]
    with torch.no_grad():
        target_output = networks.target(rows.next_obs)
        chooser_q = networks.values(networks.online(rows.next_obs) if config.double else target_output)
        if config.shape.atoms > 1:
            best = target_output[index, chooser_q.argmax(dim=1)].softmax(dim=1)
            goal = project(best, rows.reward, rows.discount, networks.support)
        else:
            goal = q_target(rows.reward, rows.discount, target_output, chooser_q)
    if config.shape.atoms > 1:
        loss = cross_entropy(taken, goal)
        return (rows.weight * loss).mean(), loss.detach()
    error = taken - goal
    return (rows.weight * huber(error)).mean(), error.detach().abs()


def move_target(config: DQNConfig, target: Tensor, online: Tensor, updates: int) -> None:
    """Every `target_every` updates, move the target network's weights by τ of the way to the online network's."""
    if updates % config.target_every == 0:
        target.lerp_(online, config.tau)


def train(config: Config, options: Options | None = None, recording: Recording | None = None) -> Result:
    """Train until a limit in the options is reached, or until Ctrl-C; `recording` is the recorder around the run."""
    from hotloop.training.run.training_run import opened

    with opened("dqn-snake", config, options or Options(), recording, Agent) as (run, agent):
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
    with learner_compiled_ahead("dqn-snake", config, "hotloop.training.learn.dqn.numba_kernel", supported):
        with run.preparing("games"):
            env = snake.make_env(config, config.envs)
            obs, _ = env.reset(seed=training_seeds(config.seed, config.envs))
        with run.preparing("replay"):
            replay = make_replay(config, obs, config.buffer)
            rehearse(config, obs)
    with run.preparing("learner"):
        config = replace(config, kernel=settle_kernel(agent.learner, config.kernel, config.updates_per_step))
        agent.explore(obs, 0, np.random.default_rng(0))
    rng = np.random.default_rng([config.seed])
    training = Training(config, env, replay, agent, rng, obs, Counts(), Episodes(config.envs))
    if run.checkpoint is not None:
        training.restore(run.checkpoint)
    return training


def make_replay(config: Config, obs: np.ndarray, capacity: int) -> VectorReplay:
    """Make the replay buffer for observations like these, [N, ...]."""
    from hotloop.training.replay import Prioritised, VectorReplay

    return VectorReplay(
        capacity,
        len(obs),
        obs.shape[1:],
        obs.dtype,
        n_step=config.n_step,
        gamma=config.gamma,
        prioritised=Prioritised(config.alpha, config.beta) if config.prioritised else None,
    )


def rehearse(config: Config, obs: np.ndarray) -> None:
    """Compile the replay buffer's kernels, using a small copy."""
    steps = config.n_step + config.batch // config.envs + 1
    spare, rng = make_replay(config, obs, 2 * steps * config.envs), np.random.default_rng(0)
    action, reward, never = np.zeros(len(obs), np.int64), np.zeros(len(obs), np.float32), np.zeros(len(obs), np.bool_)
    for _ in range(steps):
        spare.add(obs, action, reward, never, never, obs)
    len(spare)  # its kernel runs before each round of updates
    batch = spare.sample(config.batch, rng)
    if config.prioritised:
        spare.update_priorities(batch.index, np.ones(config.batch, np.float32))


def _learner_config(config: Config, observation: tuple[int, ...], actions: int) -> DQNConfig:
    from hotloop.training.learn import DQNConfig, QShape

    atoms = config.atoms if config.categorical else 1
    shape = derive(QShape, config, observation=observation, actions=actions, atoms=atoms)
    return derive(DQNConfig, config, shape=shape)
