"""sac-carracing: soft actor-critic learns to drive. One training step, from top to bottom, is `collect` and `learn`.

A vector step plays one decision in each of N cars and stores N transitions; then K updates of batch B are made. K a
vector step is an explicit ratio: `updates_per_step`. A decision is held for `action_repeat` frames of the game.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hotloop.errors import HotloopError
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
from hotloop.training.run.warm_up import settle_kernel
from hotloop.training.tasks import carracing
from hotloop.training.tasks.game import training_seeds

if TYPE_CHECKING:
    from hotloop.training.envs.carracing import CarRacingVectorEnv
    from hotloop.training.learn import SACConfig, SACUpdated
    from hotloop.training.replay import FrameReplay, VectorReplay
    from hotloop.training.run.checkpoint import Groups
    from hotloop.training.run.recording import Recording
    from hotloop.training.run.result import Result
    from hotloop.training.run.resume import Saved
    from hotloop.training.run.training_run import TrainingRun
    from hotloop.training.run.update_report import UpdateReport

KERNELS_STRIDES = ((8, 4), (4, 2), (3, 1))
"""Kernel and stride of the three convolutions."""


@dataclass(frozen=True, slots=True)
class Config:
    """sac-carracing. The defaults are the preset `fast`."""

    seed: int = 0
    """Of the networks, the tracks, exploration and sampling."""
    envs: int = 4
    """Cars driven side by side."""
    workers: int = 0
    """Processes over which they are spread; 0: none."""
    state: Literal["visual", "vector"] = "visual"
    """What the agent sees: grey pixels, or 36 numbers."""
    size: int = 64
    """Pixels along a side: 64, 84 or 96."""
    stack: int = 3
    """Frames in an observation."""
    supersample: int = 2
    """Samples along the side of a pixel."""
    indicators: bool = True
    """Show speed, steering and the like at the lower edge."""
    action_form: Literal["three", "two"] = "two"
    """steer, gas and brake; or steer, and gas or brake as one number."""
    action_repeat: int = 4
    """Frames for which a decision is held."""
    max_frames: int = 1000
    """Frames until an episode is truncated."""
    patience: int = 120
    """In training, an episode also ends after this many frames without a new tile; 0: never."""
    reward_scale: float = 0.1
    """Rewards are multiplied with this for the learner."""
    channels: tuple[int, ...] = (32, 64, 64)
    """Of the three convolutions."""
    hidden: tuple[int, ...] = (256, 256)
    """Units of the layers behind them."""
    shared: bool = True
    """One eye, trained by the critics, for all networks; else each has its own."""
    latent: int = 50
    """Width of the normalised layer behind the eye; 0: none."""
    shift: int = 3
    """Random shift of training frames, at most this many pixels; 0: none."""
    n_step: int = 3
    """Steps of reward before a target bootstraps."""
    gamma: float = 0.99
    lr: float = 3e-4
    tau: float = 0.01
    """How far the target critics move after each update."""
    alpha: float = 0.1
    """The temperature to begin with; it is learnt."""
    batch: int = 64
    buffer: int = 100_000
    """Transitions that replay holds."""
    learning_starts: int = 1_000
    """Decisions, drawn at random, before the first update."""
    updates_per_step: int = 4
    """Updates after a vector step: with 4 cars, 4 is one a decision."""
    kernel: Literal["auto", "torch", "lean"] = "auto"
    """How updates are computed; auto measures and takes the faster."""
    channels_last: bool = True
    """Lay features out with channels last (kernel lean)."""
    batched: bool = False
    """Compute both critics in one operation a layer (kernel lean)."""
    compiled: bool = False
    """Let torch compile the networks (kernel lean)."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Of the forward passes (kernel lean)."""
    device: str = "cpu"
    threads: int = 2
    """Of torch."""
    verbose: bool = False
    """Print the phases of every tenth update."""

    def __post_init__(self) -> None:
        """Refuse what cannot be trained."""
        require_seed(self)
        require_positive(self, "envs", "stack", "action_repeat", "max_frames", "n_step", "reward_scale", "lr", "alpha")
        require_positive(self, "batch", "learning_starts", "updates_per_step", "threads", "tau")
        require_share(self, "gamma", "tau")
        require(self.size in (64, 84, 96), self, "size", "64, 84 or 96")
        require(self.supersample in (1, 2, 4), self, "supersample", "1, 2 or 4")
        for name in ("workers", "patience", "shift", "latent"):
            require(getattr(self, name) >= 0, self, name, "0 or more")
        lower = self.precision != "float32"
        options_on = {"--batched": self.batched, "--compiled": self.compiled, f"--precision {self.precision}": lower}
        lean = ", ".join(flag for flag, is_on in options_on.items() if is_on)
        require(self.kernel != "torch" or not lean, self, "kernel", f"lean or auto with {lean}: torch does not know it")
        require(len(self.channels) == 3 and min(self.channels) > 0, self, "channels", "three numbers, such as 32 64 64")
        require(bool(self.hidden) and min(self.hidden) > 0, self, "hidden", "units of each layer, such as 256 256")
        least = self.first_update + self.envs * (self.n_step + self.stack + 2)
        require(self.buffer >= least, self, "buffer", f"at least the {least} transitions that the first updates need")

    @property
    def first_update(self) -> int:
        """Decisions before the first update: a batch, and the last steps of each car, which are not complete yet."""
        return max(self.learning_starts, self.batch + self.envs * self.n_step)


FAITHFUL = Config(
    envs=1, size=96, stack=4, action_repeat=1, patience=0, reward_scale=1.0, hidden=(512,), shared=False, latent=0,
    shift=0, n_step=1, tau=0.005, alpha=1.0, batch=256, learning_starts=5_000, updates_per_step=1,
)  # fmt: skip
VECTOR = Config(
    state="vector", envs=4, updates_per_step=4, batch=256, shared=False, latent=0, shift=0, tau=0.005, n_step=1,
    threads=1, buffer=300_000,
)  # fmt: skip
PRESETS: dict[str, tuple[Config, str]] = {
    "fast": (Config(), "the default: learns best per minute from pixels"),
    "faithful": (FAITHFUL, "the study's visual SAC: 96×96, five encoders, batch 256, one update a frame"),
    "vector": (VECTOR, "from 36 numbers instead of pixels"),
}

OPTIONS = Options(eval_every=10_000, eval_episodes=10, checkpoint_every=50_000, keep=1)
"""Defaults of this pipeline: a decision takes a thousand times longer than in Snake; a buffer of frames is large."""


class Agent:
    """A policy, and the critics that train it."""

    def __init__(self, config: Config) -> None:
        from hotloop.training.learn import SAC

        self.config = config
        self.observation_shape = carracing.shape_seen(config)
        kernel = "lean" if config.kernel == "auto" else config.kernel
        self.learner = SAC(_learner_config(config), seed=config.seed, kernel=kernel, device=config.device)

    def act(self, obs: np.ndarray) -> np.ndarray:
        """Return the most likely actions, float32 [N, A], for observations [N, ...]."""
        return self.learner.greedy(obs)

    def explore(self, obs: np.ndarray, env_steps: int, rng: np.random.Generator) -> np.ndarray:
        """Return actions drawn from the policy, or before learning starts from all that there are."""
        if env_steps < self.config.learning_starts:
            return rng.uniform(-1, 1, (len(obs), carracing.ACTION_SIZE[self.config.action_form])).astype(np.float32)
        return self.learner.act(obs)


@dataclass(slots=True)
class Training:
    """Everything that changes while training: what a checkpoint holds, but for the cars."""

    config: Config
    env: CarRacingVectorEnv
    replay: FrameReplay | VectorReplay
    agent: Agent
    rng: np.random.Generator
    frames: np.ndarray
    """[N, ...]: what the cars show now, single frames or numbers."""
    stacks: carracing.Stacks
    counts: Counts
    episodes: Episodes
    report: UpdateReport | None
    updated: SACUpdated | None = None
    """Metrics of the last round of updates."""
    driven: np.ndarray | int = 0
    """[N]: frames of each car's episode so far."""

    def scalars(self) -> dict[str, float | None]:
        """Return losses, temperature, entropy and value."""
        metrics = self.updated
        names = ("critic_loss", "actor_loss", "alpha", "entropy", "q")
        return {name: float(np.mean(getattr(metrics, name))) if metrics is not None else None for name in names}

    def evaluate(self, episodes: int) -> dict[str, float | None]:
        """Drive greedily on tracks that choose the best checkpoint: neither training nor a test has them."""
        return carracing.play_episodes(self.agent.act, self.config, episodes, choosing=True).summary()

    def state(self) -> tuple[Groups, dict[str, Any]]:
        """Return everything that a checkpoint needs."""
        groups = {
            "learner": self.agent.learner.tensors(),
            "replay": self.replay.state(copy=False),
            "episodes": self.episodes.state(),
        }
        return groups, {"rng": self.rng.bit_generator.state}

    def restore(self, saved: Saved) -> None:
        """Go on from a checkpoint. Box2D's world cannot be saved: the cars begin new episodes."""
        self.agent.learner.load(saved.group("learner"))
        self.replay.restore(saved.group("replay"))
        self.replay.cut()
        self.episodes.restore(saved.group("episodes"))
        self.episodes.drop_unfinished()
        self.rng.bit_generator.state = saved.random_state()
        self.counts = saved.counts
        seeds = training_seeds(self.config.seed + self.counts.env_steps, self.config.envs, np.uint32)
        self.frames, _ = self.env.reset(seed=seeds)
        self.stacks = carracing.Stacks(self.frames, self.config.stack)
        self.driven = 0


def collect(training: Training, timed: Laps) -> None:
    """Drive every car for one decision and store what came of it."""
    config = training.config
    with timed("act"):
        action = training.agent.explore(training.stacks.seen, training.counts.env_steps, training.rng)
    with timed("env.step"):
        frames, reward, terminated, truncated, info = training.env.step(carracing.controls(action, config))
    with timed("replay.store"):
        scaled = reward * np.float32(config.reward_scale)
        training.replay.add(training.frames, action, scaled, terminated, truncated, info.get("final_obs", frames))
    with timed("observe", Phase.OBSERVE):
        over = terminated | truncated
        training.stacks.push(frames, over)
    with timed("count", Phase.LOG):
        ended = training.episodes.step(reward, over)
        driven, training.driven = carracing.frames_driven(info, training.driven)
        training.counts.add(env_steps=len(action), episodes=ended, frames=driven)
    training.frames = frames


def learn(training: Training, timed: Laps) -> None:
    """Make a round of updates, once there is enough to learn from."""
    config = training.config
    if training.counts.env_steps < config.first_update:
        return
    metrics, report = [], training.report
    for _ in range(config.updates_per_step):
        with nullcontext() if report is None else report.whole():
            with timed("replay.sample"), nullcontext() if report is None else report("sample"):
                batch = training.replay.sample(config.batch, training.rng)
            with timed("learn.update", Phase.OPTIMISE):
                metrics.append(training.agent.learner.update(batch, *([] if report is None else [report])))
    training.updated = type(metrics[0])(*(np.concatenate(each) for each in zip(*metrics, strict=True)))
    training.counts.add(updates=config.updates_per_step)


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
        TrainingRun("sac-carracing", config, options or OPTIONS, recording) as run,
    ):
        training = prepare(run, agent)
        try:
            run.begin(training)
            while run.going():
                collect(training, run.timed)
                learn(training, run.timed)
                run.after_step()
            return run.finish()
        finally:
            training.env.close()


def prepare(run: TrainingRun, agent: Agent) -> Training:
    """Build everything, compile it and, where the configuration leaves it open, choose the kernel."""
    config: Config = run.config
    with run.preparing("cars"):
        env = carracing.make_env(config, config.envs, config.workers, config.patience, recorded=True)
        frames, _ = env.reset(seed=training_seeds(config.seed, config.envs, np.uint32))
        stacks = carracing.Stacks(frames, config.stack)
    with run.preparing("replay"):
        replay = make_replay(config, frames, config.buffer)
        rehearse(config, frames)
    with run.preparing("learner"):
        config = replace(config, kernel=settle_kernel(agent.learner, config.kernel, 1))
        agent.learner.greedy(stacks.seen)
    rng = np.random.default_rng([config.seed])
    report = None
    if config.verbose:
        from hotloop.training.run.update_report import UpdateReport

        report = UpdateReport(agent.learner, run.say)
    training = Training(config, env, replay, agent, rng, frames, stacks, Counts(), Episodes(config.envs), report)
    if run.checkpoint is not None:
        training.restore(run.checkpoint)
        run.say("hotloop: the physics of a car cannot be saved: all cars go on with new episodes")
    return training


def make_replay(config: Config, seen: np.ndarray, capacity: int) -> FrameReplay | VectorReplay:
    """Make a replay for observations such as these, [N, ...]."""
    from hotloop.training.replay import FrameReplay, VectorReplay

    common: dict[str, Any] = {
        "action_shape": (carracing.ACTION_SIZE[config.action_form],), "action_dtype": np.float32,
        "n_step": config.n_step, "gamma": config.gamma,
    }  # fmt: skip
    if config.state == "visual":
        return FrameReplay(capacity, len(seen), seen.shape[1:], config.stack, **common)
    return VectorReplay(capacity, len(seen), seen.shape[1:], seen.dtype, **common)


def rehearse(config: Config, seen: np.ndarray) -> None:
    """Compile what the replay needs, in a spare one."""
    steps = 2 * (config.n_step + config.stack)
    spare = make_replay(config, seen, steps * len(seen))
    action = np.zeros((len(seen), carracing.ACTION_SIZE[config.action_form]), np.float32)
    never = np.zeros(len(seen), np.bool_)
    for _ in range(steps):
        spare.add(seen, action, action[:, 0], never, never, seen)
    spare.sample(1, np.random.default_rng(0))


def _learner_config(config: Config) -> SACConfig:
    from hotloop.training.learn import SACConfig, SACShape

    if config.state == "vector" and (config.shared or config.shift or config.latent):
        raise HotloopError(
            "--state vector: numbers have no eye; use --preset vector, or --no-shared --shift 0 --latent 0"
        )
    shape = SACShape(
        observation=carracing.shape_seen(config),
        actions=carracing.ACTION_SIZE[config.action_form],
        convs=tuple((n, *rest) for n, rest in zip(config.channels, KERNELS_STRIDES, strict=True)),
        hidden=config.hidden,
        shared=config.shared,
        latent=config.latent,
    )
    names = ("batch", "lr", "tau", "alpha", "shift", "channels_last", "batched", "compiled", "precision")
    return SACConfig(shape=shape, **{name: getattr(config, name) for name in names})
