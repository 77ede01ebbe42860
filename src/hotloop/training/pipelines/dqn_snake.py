"""dqn-snake: a Q network learns Snake from replay. One training step, from top to bottom, is `collect` and `learn`.

A vector step plays one action in each of N environments and stores N transitions; then K updates of batch B are
made, all in one call of the learner. K a vector step is an explicit ratio: `updates_per_step` every `train_every`.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

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
    from hotloop.training.learn import DQNConfig, Updated
    from hotloop.training.replay import VectorReplay
    from hotloop.training.run.checkpoint import Groups
    from hotloop.training.run.recording import Recording
    from hotloop.training.run.result import Result
    from hotloop.training.run.resume import Saved
    from hotloop.training.run.training_run import TrainingRun


@dataclass(frozen=True, slots=True)
class Config:
    """dqn-snake. The defaults are the preset `fast`."""

    seed: int = 0
    """Of the network, the games, exploration and sampling."""
    envs: int = 256
    """Games played side by side."""
    board: int = 10
    """Cells along a side."""
    features: snake.Features = "flood"
    """What the agent sees: 10, 13, 18 or 23 numbers, or the board itself."""
    actions: snake.Actions = "relative"
    """Three turns relative to the head, or four directions."""
    max_steps: int = 1000
    """Steps until an episode is truncated."""
    tail_free: bool = False
    """May the head enter the cell that the tail is about to leave?"""
    reward_food: float = 10.0
    reward_death: float = -10.0
    reward_step: float = -0.01
    reward_shaping: float = 0.5
    """Times the change of distance to the food, over the board's side."""
    reward_timeout: float = -5.0
    network: Literal["mlp", "cnn"] = "mlp"
    """mlp for numbers, cnn for --features grid."""
    hidden: tuple[int, ...] = (128, 128)
    """Units of the hidden layers."""
    double: bool = True
    """Double Q-learning: the online network chooses the action that the target network values."""
    dueling: bool = False
    """Value and advantage as separate streams."""
    noisy: bool = False
    """Explore with noisy layers instead of ε."""
    prioritised: bool = False
    """Replay what surprised more often."""
    alpha: float = 0.6
    """How much more often."""
    beta: float = 0.4
    """How far importance weights make up for it."""
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
    """Transitions that replay holds."""
    learning_starts: int = 2_000
    """Transitions before the first update."""
    updates_per_step: int = 8
    """Updates after a vector step."""
    train_every: int = 1
    """Vector steps from one round of updates to the next."""
    target_every: int = 1_000
    """Updates from one copy of the target network to the next."""
    tau: float = 1.0
    """How far the target network is moved then."""
    clip: float = 1.0
    """Largest norm of a gradient; 0: any."""
    epsilon_start: float = 1.0
    epsilon_end: float = 0.01
    epsilon_decay: float = 0.995
    """ε is multiplied with this after each episode."""
    kernel: Literal["auto", "torch", "torch-fused", "compile", "numba"] = "auto"
    """How updates are computed; auto measures and takes the fastest."""
    device: str = "cpu"
    threads: int = 1
    """Of torch. Small networks are fastest on one."""

    def __post_init__(self) -> None:
        """Refuse what cannot be trained."""
        require_seed(self)
        require_positive(self, "envs", "lr", "batch", "learning_starts", "updates_per_step", "train_every", "threads")
        require_positive(self, "target_every", "n_step", "atoms")
        require_share(self, "gamma", "tau", "epsilon_start", "epsilon_end", "epsilon_decay", "alpha", "beta")
        least = self.first_update + self.envs * (self.n_step + 1)
        require(self.buffer >= least, self, "buffer", f"at least the {least} transitions that the first updates need")
        require(self.clip >= 0, self, "clip", "0 or more")
        require(self.v_min < self.v_max, self, "v_min", f"less than v_max, {self.v_max}")
        fitting = "cnn" if self.features == "grid" else "mlp"
        require(self.network == fitting, self, "network", f"{fitting}, for --features {self.features}")
        require(
            bool(self.hidden) and min(self.hidden) > 0, self, "hidden", "units of each hidden layer, such as 128 128"
        )

    @property
    def first_update(self) -> int:
        """Transitions that replay must hold for a round of updates."""
        return max(self.learning_starts, self.updates_per_step * self.batch)


FAITHFUL = Config(double=False)
PRESETS: dict[str, tuple[Config, str]] = {
    "fast": (Config(), "the default: learns best per minute"),
    "faithful": (FAITHFUL, "the study's plain DQN, 8 updates a vector step"),
    "original": (replace(FAITHFUL, updates_per_step=64), "the study's first schedule, 64 updates a vector step"),
    "careful": (
        replace(FAITHFUL, double=True, n_step=3, lr=3e-4, updates_per_step=64, epsilon_end=0.001),
        "most out of few episodes: double, 3-step, lr 3e-4, 64 updates a vector step, ε down to .001",
    ),
    "rainbow": (
        replace(FAITHFUL, double=True, dueling=True, noisy=True, prioritised=True, n_step=3, categorical=True),
        "double, dueling, noisy, prioritised, 3-step and categorical together",
    ),
}


class Agent:
    """A Q network and how it explores."""

    def __init__(self, config: Config) -> None:
        from hotloop.training.learn import DQN

        self.config = config
        self.observation_shape, self.actions = snake.spaces(config)
        kernel = "torch" if config.kernel == "auto" else config.kernel
        learner = _learner_config(config, self.observation_shape, self.actions)
        self.learner = DQN(learner, seed=config.seed, kernel=kernel, device=config.device)

    def act(self, obs: np.ndarray) -> np.ndarray:
        """Return the best actions, int64 [N], for observations [N, ...]."""
        return self.learner.greedy(obs)

    def explore(self, obs: np.ndarray, episodes: int, rng: np.random.Generator) -> np.ndarray:
        """Return actions, int64 [N], some of them tried at random."""
        return self.learner.act(obs, self.epsilon(episodes), rng)

    def epsilon(self, episodes: int) -> float:
        """ε = max(end, start · decay^episodes); 0 where the layers' noise explores."""
        config = self.config
        if config.noisy:
            return 0.0
        return max(config.epsilon_end, config.epsilon_start * config.epsilon_decay**episodes)


@dataclass(slots=True)
class Training:
    """Everything that changes while training: what a checkpoint holds."""

    config: Config
    env: SnakeVectorEnv
    replay: VectorReplay
    agent: Agent
    rng: np.random.Generator
    obs: np.ndarray
    """[N, ...]: what the games show now."""
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
        """Play greedy games that choose the best checkpoint: of seeds that neither training nor a test has."""
        return snake.play_episodes(self.agent.act, self.config, episodes, choosing=True).summary()

    def state(self) -> tuple[Groups, dict[str, Any]]:
        """Return everything that a checkpoint needs."""
        groups = {
            "learner": self.agent.learner.tensors(),
            "replay": self.replay.state(copy=False),
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
        self.replay.restore(saved.group("replay"), actions=self.agent.actions)
        self.episodes.restore(saved.group("episodes"))
        self.rng.bit_generator.state = saved.random_state()
        self.counts = saved.counts


def collect(training: Training, timed: Laps) -> None:
    """Play one action in every game and store what came of it."""
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
    """Make a round of updates, if it is time for one."""
    config, counts = training.config, training.counts
    vector_steps = counts.env_steps // config.envs
    if len(training.replay) < config.first_update or vector_steps % config.train_every:
        return
    with timed("replay.sample"):
        batch = training.replay.sample(config.updates_per_step * config.batch, training.rng)
    with timed("learn.update", Phase.OPTIMISE):
        training.updated = training.agent.learner.update(batch)
    if config.prioritised:
        with timed("replay.prioritise", Phase.STORE):
            training.replay.update_priorities(batch.index, training.updated.td_abs)
    counts.add(updates=config.updates_per_step)


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
        TrainingRun("dqn-snake", config, options or Options(), recording) as run,
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
    from hotloop.training.learn import supported_kernels

    config: Config = run.config
    supported = supported_kernels(agent.learner.config, agent.learner.device)
    with learner_compiled_ahead("dqn-snake", config, "hotloop.training.learn.dqn.fused", supported):
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
    """Make a replay as the configuration wants it, for observations such as these [N, ...]."""
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
    """Compile what the replay needs, in a spare one."""
    steps = config.n_step + config.batch // config.envs + 1
    spare, rng = make_replay(config, obs, 2 * steps * config.envs), np.random.default_rng(0)
    action, reward, never = np.zeros(len(obs), np.int64), np.zeros(len(obs), np.float32), np.zeros(len(obs), np.bool_)
    for _ in range(steps):
        spare.add(obs, action, reward, never, never, obs)
    batch = spare.sample(config.batch, rng)
    if config.prioritised:
        spare.update_priorities(batch.index, np.ones(config.batch, np.float32))


def _learner_config(config: Config, observation: tuple[int, ...], actions: int) -> DQNConfig:
    from hotloop.training.learn import DQNConfig, QShape

    shape = QShape(
        observation=observation,
        actions=actions,
        hidden=config.hidden,
        dueling=config.dueling,
        noisy=config.noisy,
        atoms=config.atoms if config.categorical else 1,
        v_min=config.v_min,
        v_max=config.v_max,
    )
    names = ("batch", "lr", "double", "clip", "target_every", "tau")
    return DQNConfig(shape=shape, **{name: getattr(config, name) for name in names})
