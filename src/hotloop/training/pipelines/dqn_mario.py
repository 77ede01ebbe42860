"""dqn-mario: a Q network learns a side-scroller from frames. One step, from top to bottom, is `collect` and `learn`.

Collectors play and write straight into replay; after every `train_every` steps comes one update of `batch`
transitions. That ratio is kept: the faster side, collectors or learner, waits for the other.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hotloop.errors import HotloopError
from hotloop.phases import Phase
from hotloop.training.run.collector_stats import Feeding, status
from hotloop.training.run.config_checks import require, require_device, require_positive, require_share, torch_threads
from hotloop.training.run.counts import Counts, Episodes
from hotloop.training.run.options import Options
from hotloop.training.run.phase_timer import Laps
from hotloop.training.state_checks import object_in
from hotloop.training.tasks import mario, mario_setup

if TYPE_CHECKING:
    from hotloop.training.collect import Collected, Collector
    from hotloop.training.learn import Updated
    from hotloop.training.learn.frame_dqn.policy import Exploration
    from hotloop.training.replay import FrameReplay
    from hotloop.training.run.checkpoint import Groups
    from hotloop.training.run.recording import Recording
    from hotloop.training.run.result import Result
    from hotloop.training.run.resume import Saved
    from hotloop.training.run.training_run import TrainingRun


@dataclass(frozen=True, slots=True)
class Config:
    """dqn-mario. The defaults are the preset `fast`."""

    seed: int = 0
    """Of the network, the games, exploration and sampling."""
    workers: int = 1
    """Processes that play, one console each; 0: this one plays."""
    lockstep: bool = False
    """Workers stop while the learner learns: slower, and the same seed gives the same result."""
    restarts: int = 20
    """Workers that may be replaced in all; with the next that ends, the run saves and ends."""
    rom: str | None = None
    """A cartridge in iNES format; without one our own game, runner, is played."""
    rom_unchecked: bool = False
    """Take a file that is not the known cartridge."""
    level: str = "1-1"
    """World and level, or random: one is drawn for each episode."""
    actions: Literal["simple", "complex"] = "simple"
    """7 or 12 combinations of buttons."""
    skip: int = 4
    """Frames for which an action is held."""
    size: int = 84
    """Pixels along a side: 84 or 128."""
    stack: int = 4
    """Frames in an observation."""
    start: Literal["auto", "begin", "route", "reached"] = "auto"
    """Where training episodes begin; auto: along the known route of runner, elsewhere where it has got to before."""
    begin_share: float = 0.5
    """Share of these episodes that start at the beginning all the same."""
    patience: int = 40
    """An episode ends after this many steps without progress."""
    max_steps: int = 0
    """An episode is truncated after this many steps; 0: never."""
    noops: int = 30
    """At most this many frames pass before the first step, at random."""
    sticky: float = 0.25
    """The chance that an action is repeated."""
    reward_progress: float = 0.02
    """For each pixel to the right."""
    reward_death: float = -1.0
    """For losing the life."""
    reward_flag: float = 2.0
    """For getting to the flag."""
    reward_deadlock: float = -0.5
    """For getting no further until patience is over."""
    network: Literal["small", "nature"] = "small"
    """Convolutions 4/4, 3/2, 3/2, or 8/4, 4/2, 3/1."""
    channels: tuple[int, ...] = (16, 32, 32)
    """Of the three convolutions."""
    hidden: int = 256
    """Units of the layer behind them."""
    norm: bool = False
    """Batch normalisation behind each convolution."""
    double: bool = True
    """The online network chooses the action that the target network values."""
    dueling: bool = True
    """Value and advantage as separate streams."""
    prioritised: bool = True
    """Replay what surprised more often."""
    alpha: float = 0.6
    """How much more often."""
    beta: float = 0.4
    """How far importance weights make up for it, at first; 1 after `beta_steps`."""
    beta_steps: int = 1_000_000
    """Steps in which β rises to 1."""
    n_step: int = 5
    """Steps of reward before a target bootstraps."""
    gamma: float = 0.97
    """Discount a step."""
    lr: float = 3e-4
    """Learning rate, Adam's."""
    batch: int = 32
    """Transitions of an update."""
    accumulate: int = 1
    """Parts in which the gradient of a batch is computed."""
    buffer: int = 200_000
    """Frames that replay holds."""
    learning_starts: int = 4_000
    """Steps before the first update."""
    train_every: int = 4
    """Steps from one update to the next."""
    publish_every: int = 16
    """Updates from one handing out of weights to the next; 0: by epochs."""
    publish_epochs: int = 0
    """Epochs from one to the next."""
    epoch: int = 16
    """Episodes of an epoch: a status line is printed after each."""
    tau: float = 0.005
    """How far the target network moves after each update."""
    clip: float = 10.0
    """Largest norm of a gradient; 0: any."""
    epsilon_start: float = 1.0
    """ε at first: the chance that a step tries something by chance."""
    epsilon_end: float = 0.01
    """ε at last."""
    epsilon_steps: int = 30_000
    """Steps in which ε falls from one to the other."""
    hold: int = 4
    """A random action is repeated for 1 to this many steps."""
    kernel: Literal["auto", "torch", "lean", "compile"] = "auto"
    """How updates are computed; auto measures and takes the faster."""
    try_compile: bool = False
    """Let auto try torch.compile, too, which takes a minute."""
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Of the forward passes; auto: float16 on CUDA, else float32."""
    device: str = "cpu"
    """Where the learner computes: cpu, cuda, cuda:1."""
    threads: int = 1
    """Of torch. Collectors have one each."""

    def __post_init__(self) -> None:
        """Refuse what cannot be trained."""
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
        """Consoles that are played."""
        return max(1, self.workers)

    @property
    def first_update(self) -> int:
        """Steps before the first update: a batch, and the last steps of each console, which are not complete yet."""
        return max(self.learning_starts, 2 * self.batch + self.lanes * (self.n_step + self.stack))


FAITHFUL = Config(
    workers=4, skip=6, size=128, stack=8, start="begin", begin_share=0.0, noops=0, sticky=0.0, network="nature",
    channels=(32, 64, 64), hidden=512, norm=True, n_step=1, gamma=0.95, lr=1e-4, batch=2048, accumulate=4,
    buffer=50_000, publish_every=0, publish_epochs=5, epsilon_end=0.02, hold=1, try_compile=True,
)  # fmt: skip
ORIGINAL = replace(
    FAITHFUL, workers=2, norm=False, batch=256, accumulate=1, buffer=10_000, publish_epochs=3, epoch=8,
    try_compile=False,
)  # fmt: skip
PRESETS: dict[str, tuple[Config, str]] = {
    "fast": (Config(), "the default: learns best per minute"),
    "faithful": (FAITHFUL, "the study's: 4 collectors, 8×128×128 pixels, 4 parts of 512 an update, batch norm"),
    "original": (ORIGINAL, "the study's first: 2 collectors, a buffer of 10,000, batch 256"),
}
OPTIONS = Options(eval_every=50_000, eval_episodes=20, checkpoint_every=200_000, keep=1)
"""Defaults of this pipeline: a greedy episode takes half a second, and a replay buffer of frames is large."""


class Agent:
    """A Q network on frames."""

    def __init__(self, config: Config) -> None:
        from hotloop.training.learn import FrameDQN

        self.config = config
        self.observation_shape = (config.stack, config.size, config.size)
        kernel = "lean" if config.kernel == "auto" else config.kernel
        self.learner = FrameDQN(
            mario_setup.learner_config(config), seed=config.seed, kernel=kernel, device=config.device
        )

    def act(self, obs: np.ndarray) -> np.ndarray:
        """Return the best actions, int64 [N], for observations [N, stack, S, S]."""
        return self.learner.greedy(obs)


@dataclass(slots=True)
class Training:
    """Everything that changes while training: what a checkpoint holds, but for the consoles."""

    config: Config
    collector: Collector
    replay: FrameReplay
    agent: Agent
    exploration: Exploration
    rng: np.random.Generator
    counts: Counts
    episodes: Episodes
    feeding: Feeding
    updated: Updated | None = None
    """Metrics of the last update."""

    @property
    def beta(self) -> float:
        """β rises in a straight line to 1."""
        return self.config.beta + (1 - self.config.beta) * min(1.0, self.counts.env_steps / self.config.beta_steps)

    def scalars(self) -> dict[str, float | None]:
        """Return the study's monitored figures: losses, ε, buffer, distance, flags, losses of steps, waiting, lag."""
        metrics = self.updated
        return {
            "loss": float(np.mean(metrics.loss)) if metrics is not None else None,
            "td_error": float(np.mean(metrics.td_abs)) if metrics is not None else None,
            "epsilon": self.exploration.epsilon(self.counts.env_steps),
            "buffer_fill": len(self.replay) / self.replay.capacity,
            "gpu_busy": mario_setup.gpu_busy(),
            **self.feeding.scalars(self.counts.updates),
        }

    def evaluate(self, episodes: int) -> dict[str, float | None]:
        """Play greedy episodes on held-out seeds, elsewhere if this process has a console in use."""
        place = mario.home(self.config)
        if self.config.workers:
            return mario.play_episodes(self.agent.act, self.config, episodes, place, choosing=True).summary()
        from hotloop.training.agents.subprocess_player import play_apart

        return play_apart("dqn-mario", self.config, self.agent.learner.tensors(), episodes, place).summary()

    def state(self) -> tuple[Groups, dict[str, Any]]:
        """Return everything that a checkpoint needs."""
        # The collector's first: of what comes into replay meanwhile it then knows, when resumed, that it did not count.
        meta = {"collector": self.collector.state(), "rng": self.rng.bit_generator.state}
        groups = {
            "learner": self.agent.learner.tensors(),
            "replay": self.replay.state(copy=False),
            "episodes": self.episodes.state(),
        }
        return groups, meta | {"feeding": self.feeding.state()}

    def restore(self, saved: Saved) -> None:
        """Go on from a checkpoint, with new episodes."""
        self.agent.learner.load(saved.group("learner"))
        self.replay.restore(saved.group("replay"), actions=mario_setup.ACTIONS[self.config.actions])
        self.replay.cut()
        self.episodes.restore(saved.group("episodes"))
        self.rng.bit_generator.state = saved.random_state()
        self.counts = saved.counts
        self.collector.restore(object_in(saved.meta, "collector"))
        version = self.collector.publish(self.agent.learner.weights())
        self.feeding.restore(object_in(saved.meta, "feeding"), version, self.counts.updates)


def collect(training: Training, timed: Laps) -> Collected:
    """Wait until the replay buffer has the steps that the next update needs; without workers, play them here."""
    with timed("collect", Phase.WAIT if training.config.workers else Phase.ENV):
        got = training.collector.collect(training.config.train_every)
    with timed("count", Phase.LOG):
        ended = training.feeding.take(got)
        if ended.size:
            training.episodes.take(ended)
        training.counts.add(env_steps=got.steps, episodes=ended.shape[1], frames=got.frames)
    return got


def learn(training: Training, timed: Laps) -> None:
    """Make one update, once there is enough to learn from."""
    config, learner = training.config, training.agent.learner
    if training.counts.env_steps < config.first_update:
        return
    with timed("replay.sample"):
        batch = training.replay.sample(config.batch, training.rng, beta=training.beta)
        training.collector.sampled(batch.index)
    # Over the largest of the batch, not of the whole replay: beside a step that is learnt perfectly all others would
    # weigh nothing, the less the nearer β is to 1, and Adam's ε would stop the learning.
    batch = batch._replace(weight=batch.weight / batch.weight.max())
    with timed("learn.update", Phase.OPTIMISE):
        training.updated = learner.update(batch)
    if config.prioritised:
        with timed("replay.prioritise", Phase.STORE):
            training.replay.update_priorities(batch.index, training.updated.td_abs)
    training.counts.add(updates=1)
    training.feeding.learnt(config.batch)
    if config.publish_every and training.counts.updates % config.publish_every == 0:
        publish(training, timed)


def publish(training: Training, timed: Laps) -> None:
    """Publish the weights to the collectors."""
    with timed("weights.publish", Phase.SYNC_WEIGHTS):
        version = training.collector.publish(training.agent.learner.weights())
        training.feeding.published(version, training.counts.updates)


def conclude(training: Training, got: Collected, run: TrainingRun) -> None:
    """At the end of an epoch say how it went and, where weights go out by epochs, hand them out."""
    for each in got.restarts:
        run.say(f"dqn-mario: worker {each.worker} was replaced: {each.reason}")
    if not training.feeding.epoch_over():
        return
    numbers = training.counts.as_dict() | training.episodes.means() | training.scalars()
    took_s = training.feeding.next_epoch()
    run.say(f"dqn-mario: {status(numbers | {'epochs': training.feeding.epochs}, took_s)}")
    if training.config.publish_epochs and training.feeding.epochs % training.config.publish_epochs == 0:
        publish(training, run.timed)


def train(config: Config, options: Options | None = None, recording: Recording | None = None) -> Result:
    """Train until a limit of the options is reached, or Ctrl-C.

    Args:
        config: What to learn, and how.
        options: How long, what to write, and where.
        recording: The recorder around the run, if there is one.
    """
    from hotloop.training.run.training_run import TrainingRun

    require_device(config.device)
    mario.check(config)
    with (
        torch_threads(config.threads),
        nullcontext(Agent(config)) as agent,  # refuses what cannot be, before anything is written
        TrainingRun("dqn-mario", config, options or OPTIONS, recording) as run,
    ):
        training = prepare(run, agent)
        with training.collector:
            if training.config.workers:
                with run.preparing("workers"):
                    training.collector.get_ready()
            run.begin(training)
            training.feeding.begin()
            while run.going():
                got = collect(training, run.timed)
                learn(training, run.timed)
                conclude(training, got, run)
                run.after_step()
            return run.finish()


def prepare(run: TrainingRun, agent: Agent) -> Training:
    """Build everything, compile it and, where the configuration leaves it open, choose the kernel."""
    config: Config = run.config
    saved = run.checkpoint
    if saved is not None and saved.config.get("workers") != config.workers:
        raise HotloopError(
            f"cannot resume with --workers {config.workers}: each has its own part of the replay, and there were "
            f"{saved.config.get('workers')}; leave it out"
        )
    with run.preparing("learner"):
        kernel, note = mario_setup.settle(agent.learner, config)
    config = replace(config, kernel=kernel)
    if note:
        run.say(note)
    with run.preparing("replay"):
        replay = mario_setup.make_replay(config)
    with run.preparing("consoles"):
        exploration = mario_setup.explored(config)
        collector = mario_setup.make_collector(config, replay, agent.learner, exploration)
    rng, counts, episodes = np.random.default_rng([config.seed]), Counts(), Episodes(config.lanes)
    training = Training(config, collector, replay, agent, exploration, rng, counts, episodes, Feeding(config.epoch))
    if run.checkpoint is not None:
        training.restore(run.checkpoint)
        run.say("hotloop: episodes that were going on are not saved: all consoles go on with new ones")
    return training
