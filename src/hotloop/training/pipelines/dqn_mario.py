"""dqn-mario: a Q network learns a side-scroller from frames. One training step is `collect`, then `learn`.

Collectors play and write straight into the replay buffer. There is one update per `train_every` environment steps: the
faster side, collectors or learner, waits for the other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from hotloop.phases import Phase
from hotloop.training.run.collector_stats import CollectorStats, status
from hotloop.training.run.config_checks import require, require_positive, require_share
from hotloop.training.run.counts import Counts, Episodes
from hotloop.training.run.options import Options
from hotloop.training.run.phase_timer import Laps
from hotloop.training.run.saved_training import common_state, restore_common
from hotloop.training.state_checks import object_in
from hotloop.training.tasks import mario

if TYPE_CHECKING:
    from torch import Tensor

    from hotloop.json_types import Json
    from hotloop.training.collect import Collected, Collector
    from hotloop.training.learn import FrameDQNConfig, Updated
    from hotloop.training.learn.frame_dqn.policy import Exploration
    from hotloop.training.learn.frame_dqn.state import FrameQNetworks
    from hotloop.training.replay import FrameReplay
    from hotloop.training.run.checkpoint import Groups
    from hotloop.training.run.recording import Recording
    from hotloop.training.run.result import Result
    from hotloop.training.run.saved_training import Saved
    from hotloop.training.run.training_run import TrainingRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(mario.GameOptions):
    """dqn-mario. The defaults are the preset `fast`."""

    seed: int = 0
    """Seed of the network, the games, exploration and sampling."""
    workers: int = 1
    """Worker processes, with one console each; 0: play in this process."""
    lockstep: bool = False
    """Stop the workers while the learner learns: slower, but the same seed gives the same result."""
    restarts: int = 20
    """How many workers may be replaced in total; when one more fails, the run saves and ends."""
    network: Literal["small", "nature"] = "small"
    """Kernel/stride of the convolutions: 4/4, 3/2, 3/2 (small) or 8/4, 4/2, 3/1 (nature)."""
    channels: tuple[int, ...] = (16, 32, 32)
    """Channels of the three convolutions."""
    hidden: int = 256
    """Units of the layer behind the convolutions."""
    norm: bool = False
    """Batch normalisation behind each convolution."""
    double: bool = True
    """The online network chooses the action that the target network values."""
    dueling: bool = True
    """Dueling network: separate streams for value and advantage."""
    prioritised: bool = True
    """Sample transitions with a large TD error more often."""
    alpha: float = 0.6
    """Exponent of the priorities."""
    beta: float = 0.4
    """Initial exponent of the importance weights that correct for it; 1 after `beta_steps`."""
    beta_steps: int = 1_000_000
    """Environment steps until β is 1."""
    n_step: int = 5
    """Steps of reward before a target bootstraps."""
    gamma: float = 0.97
    """Discount per step."""
    lr: float = 3e-4
    """Adam's learning rate."""
    batch: int = 32
    """Transitions per update."""
    accumulate: int = 1
    """Gradient accumulation: number of parts in which a batch is processed."""
    buffer: int = 200_000
    """Capacity of the replay buffer, in frames."""
    learning_starts: int = 4_000
    """Environment steps before the first update."""
    train_every: int = 4
    """Environment steps per update."""
    publish_every: int = 16
    """Updates between two publications of weights to the workers; 0: publish by epochs."""
    publish_epochs: int = 0
    """Epochs between two publications of weights; 0: publish by updates."""
    epoch: int = 16
    """Episodes per epoch. A status line is printed after each epoch."""
    tau: float = 0.005
    """Fraction of the way that the target network moves to the online network after each update."""
    clip: float = 10.0
    """Maximum norm of the gradient; 0 turns clipping off."""
    epsilon_start: float = 1.0
    """Initial ε, the probability of a random action."""
    epsilon_end: float = 0.01
    """Final ε."""
    epsilon_steps: int = 30_000
    """Environment steps until ε reaches its final value."""
    hold: int = 4
    """A random action is held for 1 to this many steps."""
    kernel: Literal["auto", "torch", "lean", "compile"] = "auto"
    """Implementation of the update; auto measures and takes the faster."""
    try_compile: bool = False
    """Let --kernel auto also try torch.compile, which takes a minute."""
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Precision of the forward passes; auto: float16 on CUDA, otherwise float32."""
    device: str = "cpu"
    """Device of the learner: cpu, cuda, cuda:1."""
    threads: int = 1
    """Torch threads of the learner. Each collector has one."""

    def __post_init__(self) -> None:
        """Reject settings that cannot be trained with."""
        require_positive(self, "skip", "stack", "patience", "hidden", "n_step", "lr", "batch", "accumulate", "epoch")
        require_positive(self, "threads")
        require_positive(self, "learning_starts", "train_every", "tau", "epsilon_steps", "hold", "beta_steps")
        require_share(self, "begin_share", "sticky", "gamma", "tau", "alpha", "beta", "epsilon_start", "epsilon_end")
        for name in ("workers", "restarts", "max_steps", "noops", "publish_every", "publish_epochs", "clip"):
            require(getattr(self, name) >= 0, self, name, "0 or more")
        require(self.size in (84, 128), self, "size", "84 or 128")
        require(self.batch % self.accumulate == 0, self, "accumulate", f"a number that divides {self.batch}")
        require(len(self.channels) == 3 and min(self.channels) > 0, self, "channels", "three numbers, such as 16 32 32")
        require(self.publish_every + self.publish_epochs > 0, self, "publish_every", "1 or more, or --publish-epochs")
        least = self.first_update + self.lanes * (self.n_step + self.stack + 2)
        require(self.buffer >= least, self, "buffer", f"at least the {least} frames that the first updates need")
        require(self.train_every <= self.buffer, self, "train_every", f"at most --buffer, {self.buffer}: more is lost")

    @property
    def lanes(self) -> int:
        """Number of consoles."""
        return max(1, self.workers)

    @property
    def first_update(self) -> int:
        """Steps before the first update: a batch, and the last steps of each console, which are not complete yet."""
        return max(self.learning_starts, 2 * self.batch + self.lanes * (self.n_step + self.stack))


FAITHFUL = Config(
    workers=4,
    skip=6,
    size=128,
    stack=8,
    start="begin",
    begin_share=0.0,
    noops=0,
    sticky=0.0,
    network="nature",
    channels=(32, 64, 64),
    hidden=512,
    norm=True,
    n_step=1,
    gamma=0.95,
    lr=1e-4,
    batch=2048,
    accumulate=4,
    buffer=50_000,
    publish_every=0,
    publish_epochs=5,
    epsilon_end=0.02,
    hold=1,
    try_compile=True,
)
ORIGINAL = replace(
    FAITHFUL,
    workers=2,
    norm=False,
    batch=256,
    accumulate=1,
    buffer=10_000,
    publish_epochs=3,
    epoch=8,
    try_compile=False,
)
PRESETS: dict[str, tuple[Config, str]] = {
    "fast": (Config(), "the default: learns best per minute"),
    "faithful": (FAITHFUL, "the study's: 4 collectors, 8×128×128 pixels, 4 parts of 512 per update, batch norm"),
    "original": (ORIGINAL, "the study's first: 2 collectors, a buffer of 10,000, batch 256"),
}
OPTIONS = Options(eval_every=50_000, eval_episodes=20, checkpoint_every=200_000, keep=1)
"""Defaults of this pipeline: a greedy episode takes half a second, and a replay buffer of frames is large."""


class Agent:
    """A Q network on frames."""

    def __init__(self, config: Config) -> None:
        from hotloop.training.learn import FrameDQN, FrameQRule

        self.config = config
        self.observation_shape = (config.stack, config.size, config.size)
        kernel = "lean" if config.kernel == "auto" else config.kernel
        learner, rule = mario.learner_config(config), FrameQRule(q_goal, q_loss, move_target)
        self.learner = FrameDQN(learner, rule, seed=config.seed, kernel=kernel, device=config.device)

    def act(self, obs: np.ndarray) -> np.ndarray:
        """Return the best actions, int64 [N], for observations [N, stack, S, S]."""
        return self.learner.greedy(obs)


@dataclass(slots=True)
class Training:
    """Everything that changes during training."""

    config: Config
    collector: Collector
    replay: FrameReplay
    agent: Agent
    exploration: Exploration
    rng: np.random.Generator
    counts: Counts
    episodes: Episodes
    stats: CollectorStats
    updated: Updated | None = None
    """Metrics of the last update."""

    @property
    def beta(self) -> float:
        """β rises in a straight line to 1."""
        return self.config.beta + (1 - self.config.beta) * min(1.0, self.counts.env_steps / self.config.beta_steps)

    def scalars(self) -> dict[str, float | None]:
        """Return the values that the study monitors: loss, ε, buffer, distance, flags, lost steps, waiting, lag."""
        metrics = self.updated
        return {
            "loss": float(np.mean(metrics.loss)) if metrics is not None else None,
            "td_error": float(np.mean(metrics.td_abs)) if metrics is not None else None,
            "epsilon": self.exploration.epsilon(self.counts.env_steps),
            "buffer_fill": len(self.replay) / self.replay.capacity,
            "gpu_busy": mario.gpu_busy(),
            **self.stats.scalars(self.counts.updates),
        }

    def evaluate(self, episodes: int) -> dict[str, float | None]:
        """Play greedy episodes on held-out seeds, in another process if this one uses its only console."""
        place = mario.home(self.config)
        if self.config.workers:
            return mario.play_episodes(self.agent.act, self.config, episodes, place, choosing=True).summary()
        from hotloop.training.agents.subprocess_player import play_apart

        return play_apart("dqn-mario", self.config, self.agent.learner.tensors(), episodes, place).summary()

    def state(self) -> tuple[Groups, dict[str, Json]]:
        """Return the state for a checkpoint."""
        # The collector's state comes first: steps that arrive in the replay buffer after this are not counted in it.
        collector = self.collector.state()
        groups, values = common_state(self)
        return groups, values | {"collector": collector, "feeding": self.stats.state()}

    def restore(self, saved: Saved) -> None:
        """Continue from a checkpoint. All consoles start new episodes."""
        restore_common(self, saved, mario.ACTIONS[self.config.actions])
        self.replay.cut()
        self.collector.restore(object_in(saved.meta, "collector"))
        version = self.collector.publish(self.agent.learner.weights())
        self.stats.restore(object_in(saved.meta, "feeding"), version, self.counts.updates)


def collect(training: Training, timed: Laps) -> Collected:
    """Wait until the workers have stored the steps for the next update; without workers, play them here."""
    with timed("collect", Phase.WAIT if training.config.workers else Phase.ENV):
        got = training.collector.collect(training.config.train_every)
    with timed("count", Phase.LOG):
        ended = training.stats.take(got)
        if ended.size:
            training.episodes.take(ended)
        training.counts.add(env_steps=got.steps, episodes=ended.shape[1], frames=got.frames)
    return got


def learn(training: Training, timed: Laps) -> None:
    """Do one update, once the replay buffer holds enough."""
    config, learner = training.config, training.agent.learner
    if training.counts.env_steps < config.first_update:
        return
    with timed("replay.sample"):
        batch = training.replay.sample(config.batch, training.rng, beta=training.beta)
        training.collector.sampled(batch.index)
    # Divide by the largest weight of the batch, not of the whole buffer: one step that is learned perfectly would make
    # all other weights tiny, more so the closer β is to 1, and Adam's ε would stop the learning.
    batch = replace(batch, weight=batch.weight / batch.weight.max())
    with timed("learn.update", Phase.OPTIMISE):
        training.updated = learner.update(batch)
    if config.prioritised:
        with timed("replay.prioritise", Phase.STORE):
            training.replay.update_priorities(batch.index, training.updated.td_abs)
    training.counts.add(updates=1)
    training.stats.learnt(config.batch)
    if config.publish_every and training.counts.updates % config.publish_every == 0:
        publish(training, timed)


def q_goal(
    config: FrameDQNConfig, networks: FrameQNetworks, next_obs: Tensor, reward: Tensor, discount: Tensor
) -> Tensor:
    """Return the targets `r + d · Q⁻(s', argmax_a' Q(s', a'))`, `[B]`; d is γⁿ, and 0 behind a terminal step."""
    from hotloop.training.learn.loss_terms import q_target

    target_q = networks.target(next_obs)
    return q_target(reward, discount, target_q, networks.online(next_obs) if config.double else target_q)


def q_loss(q: Tensor, action: Tensor, goal: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return `mean w · huber(Q(s, a) − goal)`, and `|Q(s, a) − goal|` `[B]`, from values `[B, A]`."""
    from hotloop.training.learn.loss_terms import huber

    error = q.gather(1, action[:, None]).squeeze(1) - goal
    return (weight * huber(error)).mean(), error.detach().abs()


def move_target(config: FrameDQNConfig, target: Tensor, online: Tensor) -> None:
    """Move weights of the target network by τ of the way to the online network's."""
    target.lerp_(online, config.tau)


def publish(training: Training, timed: Laps) -> None:
    """Publish the weights to the collectors."""
    with timed("weights.publish", Phase.SYNC_WEIGHTS):
        version = training.collector.publish(training.agent.learner.weights())
        training.stats.published(version, training.counts.updates)


def conclude(training: Training, got: Collected, run: TrainingRun) -> None:
    """At the end of an epoch, print its status and publish the weights if that is due."""
    for each in got.restarts:
        run.say(f"dqn-mario: worker {each.worker} was replaced: {each.reason}")
    if not training.stats.epoch_over():
        return
    numbers = training.counts.as_dict() | training.episodes.means() | training.scalars()
    took_s = training.stats.next_epoch()
    run.say(f"dqn-mario: {status(numbers | {'epochs': training.stats.epochs}, took_s)}")
    if training.config.publish_epochs and training.stats.epochs % training.config.publish_epochs == 0:
        publish(training, run.timed)


def train(config: Config, options: Options | None = None, recording: Recording | None = None) -> Result:
    """Train until a limit in the options is reached, or until Ctrl-C; `recording` is the recorder around the run."""
    from hotloop.training.run.training_run import opened

    mario.check(config)
    with opened("dqn-mario", config, options or OPTIONS, recording, Agent) as (run, agent):
        training = prepare(run, agent)
        with training.collector:
            if training.config.workers:
                with run.preparing("workers"):
                    training.collector.get_ready()
            run.begin(training)
            training.stats.begin()
            while run.going():
                got = collect(training, run.timed)
                learn(training, run.timed)
                conclude(training, got, run)
                run.after_step()
            return run.finish()


def prepare(run: TrainingRun, agent: Agent) -> Training:
    """Build and compile all parts; with `--kernel auto`, choose the fastest kernel."""
    from hotloop.training.learn.frame_dqn.policy import Exploration

    config: Config = run.config
    mario.check_resume(run.checkpoint, config)
    with run.preparing("learner"):
        kernel, note = mario.settle(agent.learner, config)
        config = replace(config, kernel=kernel)
    if note:
        run.say(note)
    with run.preparing("replay"):
        replay = mario.make_replay(config)
    with run.preparing("consoles"):
        exploration = Exploration(config.epsilon_start, config.epsilon_end, config.epsilon_steps, config.hold)
        collector = mario.make_collector(config, replay, agent.learner, exploration)
    rng, episodes, stats = np.random.default_rng([config.seed]), Episodes(config.lanes), CollectorStats(config.epoch)
    training = Training(config, collector, replay, agent, exploration, rng, Counts(), episodes, stats)
    if run.checkpoint is not None:
        training.restore(run.checkpoint)
        run.say("hotloop: unfinished episodes are not saved: all consoles start new ones")
    return training
