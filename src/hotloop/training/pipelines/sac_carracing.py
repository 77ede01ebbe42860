"""sac-carracing: soft actor-critic learns to drive. One training step is `collect`, then `learn`.

A vector step plays one decision in each of N cars and stores N transitions; then `updates_per_step` updates are done. A
decision lasts for `action_repeat` frames of the game.
"""

from __future__ import annotations

from contextlib import nullcontext
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
from hotloop.training.run.counts import Counts, Episodes
from hotloop.training.run.options import Options
from hotloop.training.run.phase_timer import Laps
from hotloop.training.run.saved_training import common_state, restore_common
from hotloop.training.run.warm_up import settle_kernel
from hotloop.training.tasks import carracing
from hotloop.training.tasks.game import FrameStacks, training_seeds

if TYPE_CHECKING:
    from torch import Tensor

    from hotloop.json_types import Json
    from hotloop.training.envs.carracing import CarRacingVectorEnv
    from hotloop.training.learn import SACConfig, SACUpdated
    from hotloop.training.replay import FrameReplay, VectorReplay
    from hotloop.training.run.checkpoint import Groups
    from hotloop.training.run.recording import Recording
    from hotloop.training.run.result import Result
    from hotloop.training.run.saved_training import Saved
    from hotloop.training.run.training_run import TrainingRun
    from hotloop.training.run.update_report import UpdateReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(carracing.GameOptions):
    """sac-carracing. The defaults are the preset `fast`."""

    seed: int = 0
    """Seed of the networks, the tracks, exploration and sampling."""
    envs: int = 4
    """Number of cars driven in parallel."""
    workers: int = 0
    """Worker processes that run the cars; 0 runs them in this process."""
    patience: int = 120
    """In training, truncate an episode after this many frames without a new tile; 0: never."""
    reward_scale: float = 0.1
    """The learner sees rewards times this; reports show unscaled rewards."""
    channels: tuple[int, ...] = (32, 64, 64)
    """Channels of the three convolutions."""
    hidden: tuple[int, ...] = (256, 256)
    """Units of the layers behind the convolutions."""
    shared: bool = True
    """Use one encoder for all networks, trained by the critics; otherwise each network has its own."""
    latent: int = 50
    """Width of the normalised layer behind the encoder; 0: none."""
    shift: int = 3
    """Augmentation: shift training frames at random by up to this many pixels; 0: off."""
    n_step: int = 3
    """Steps of reward before a target bootstraps."""
    gamma: float = 0.99
    lr: float = 3e-4
    tau: float = 0.01
    """Fraction of the way that the target critics move to the critics after each update."""
    alpha: float = 0.1
    """Initial temperature; it is learned."""
    batch: int = 64
    buffer: int = 100_000
    """Capacity of the replay buffer, in transitions."""
    learning_starts: int = 1_000
    """Random decisions before the first update."""
    updates_per_step: int = 4
    """Updates per vector step: with 4 cars, 4 is one update per decision."""
    kernel: Literal["auto", "torch", "lean"] = "auto"
    """Implementation of the update; auto measures and takes the faster."""
    channels_last: bool = True
    """Use the channels-last memory layout (kernel lean)."""
    batched: bool = False
    """Compute both critics in one operation per layer (kernel lean)."""
    compiled: bool = False
    """Compile the networks with torch.compile (kernel lean)."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Precision of the forward passes (kernel lean)."""
    device: str = "cpu"
    threads: int = 2
    """Torch threads."""
    verbose: bool = False
    """Print how long each phase of every tenth update took."""

    def __post_init__(self) -> None:
        """Reject settings that cannot be trained with."""
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
    envs=1,
    size=96,
    stack=4,
    action_repeat=1,
    patience=0,
    reward_scale=1.0,
    hidden=(512,),
    shared=False,
    latent=0,
    shift=0,
    n_step=1,
    tau=0.005,
    alpha=1.0,
    batch=256,
    learning_starts=5_000,
    updates_per_step=1,
)
VECTOR = Config(
    state="vector",
    envs=4,
    updates_per_step=4,
    batch=256,
    shared=False,
    latent=0,
    shift=0,
    tau=0.005,
    n_step=1,
    threads=1,
    buffer=300_000,
)
PRESETS: dict[str, tuple[Config, str]] = {
    "fast": (Config(), "the default: learns best per minute from pixels"),
    "faithful": (FAITHFUL, "the study's visual SAC: 96×96, five encoders, batch 256, one update per frame"),
    "vector": (VECTOR, "from 36 features instead of pixels"),
}

OPTIONS = Options(eval_every=10_000, eval_episodes=10, checkpoint_every=50_000, keep=1)
"""Defaults of this pipeline: a decision takes a thousand times as long as in Snake, and a buffer of frames is large."""


class Agent:
    """The policy and its critics."""

    def __init__(self, config: Config) -> None:
        from hotloop.training.learn import SAC, SACRule

        self.config = config
        self.observation_shape = carracing.shape_seen(config)
        kernel = "lean" if config.kernel == "auto" else config.kernel
        rule = SACRule(
            critic_target=critic_target,
            critic_loss=critic_loss,
            actor_loss=actor_loss,
            temperature_gradient=temperature_gradient,
            move_target=move_target,
        )
        self.learner = SAC(
            carracing.learner_config(config), rule, seed=config.seed, kernel=kernel, device=config.device
        )

    def act(self, obs: np.ndarray) -> np.ndarray:
        """Return the most likely actions, float32 [N, A], for observations [N, ...]."""
        return self.learner.greedy(obs)

    def explore(self, obs: np.ndarray, env_steps: int, rng: np.random.Generator) -> np.ndarray:
        """Sample actions from the policy; before learning starts, uniformly at random."""
        if env_steps < self.config.learning_starts:
            return rng.uniform(-1, 1, (len(obs), carracing.ACTION_SIZE[self.config.action_form])).astype(np.float32)
        return self.learner.act(obs)


@dataclass(slots=True)
class Training:
    """Everything that changes during training."""

    config: Config
    env: CarRacingVectorEnv
    replay: FrameReplay | VectorReplay
    agent: Agent
    rng: np.random.Generator
    frames: np.ndarray
    """[N, ...]: current observations, single frames or features."""
    stacks: FrameStacks
    counts: Counts
    episodes: Episodes
    report: UpdateReport | None
    updated: SACUpdated | None = None
    """Metrics of the last round of updates."""
    driven: np.ndarray | int = 0
    """[N]: frames of each car's episode so far."""

    def scalars(self) -> dict[str, float | None]:
        """Return losses, temperature, entropy and value."""
        from hotloop.training.learn import SACUpdated

        if self.updated is None:
            return dict.fromkeys(SACUpdated._fields)
        return {name: float(values.mean()) for name, values in self.updated._asdict().items()}

    def evaluate(self, episodes: int) -> dict[str, float | None]:
        """Drive greedily to choose the best checkpoint, on tracks that neither training nor tests use."""
        return carracing.play_episodes(self.agent.act, self.config, episodes, choosing=True).summary()

    def state(self) -> tuple[Groups, dict[str, Json]]:
        """Return the state for a checkpoint."""
        return common_state(self)

    def restore(self, saved: Saved) -> None:
        """Continue from a checkpoint. Box2D's world cannot be saved, so all cars start new episodes."""
        restore_common(self, saved)
        self.replay.cut()
        self.episodes.drop_unfinished()
        seeds = training_seeds(self.config.seed + self.counts.env_steps, self.config.envs, np.uint32)
        self.frames, _ = self.env.reset(seed=seeds)
        self.stacks = FrameStacks(self.frames, self.config.stack)
        self.driven = 0


def collect(training: Training, timed: Laps) -> None:
    """Play one decision in every car and store the transitions."""
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
    """Do a round of updates, once the replay buffer holds enough.

    Each update computes the critics' targets with actions sampled from the policy, and then updates critics, policy,
    temperature and target critics, in this order, with the functions below (`learn/sac/torch_kernels.py`).
    """
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


def critic_target(next_q: Tensor, log_prob: Tensor, reward: Tensor, discount: Tensor, alpha: Tensor) -> Tensor:
    """Return `r + d · (min_i Q⁻_i(s', a') − α log π(a'|s'))`, `[B]`, with `a' ~ π(s')`; next_q is `[2, B]`.

    d is γ, and 0 behind a terminal step.
    """
    return reward + discount * (next_q.amin(dim=0) - alpha * log_prob)


def critic_loss(q: Tensor, goal: Tensor) -> Tensor:
    """Return `Σ_i mean (Q_i(s, a) − goal)²`; q is `[2, B]`."""
    return (q - goal).square().mean(dim=1).sum()


def actor_loss(q: Tensor, log_prob: Tensor, alpha: Tensor) -> Tensor:
    """Return `mean (α log π(a|s) − min_i Q_i(s, a))`, with `a ~ π(s)`; q is `[2, B]`."""
    return (alpha * log_prob - q.amin(dim=0)).mean()


def temperature_gradient(log_prob: Tensor, entropy_goal: float) -> Tensor:
    """Return the gradient of `−log α · mean(log π + H)` with respect to log α, where H is the entropy to aim for."""
    return -(log_prob.mean() + entropy_goal)


def move_target(config: SACConfig, target: Tensor, online: Tensor) -> None:
    """Move weights of the target critics by τ of the way to the critics'."""
    target.lerp_(online, config.tau)


def train(config: Config, options: Options | None = None, recording: Recording | None = None) -> Result:
    """Train until a limit in the options is reached, or until Ctrl-C; `recording` is the recorder around the run."""
    from hotloop.training.run.training_run import opened

    with opened("sac-carracing", config, options or OPTIONS, recording, Agent) as (run, agent):
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
    """Build and compile all parts; with `--kernel auto`, choose the fastest kernel."""
    config: Config = run.config
    with run.preparing("cars"):
        env = carracing.make_env(config, config.envs, config.workers, config.patience, recorded=True)
        frames, _ = env.reset(seed=training_seeds(config.seed, config.envs, np.uint32))
        stacks = FrameStacks(frames, config.stack)
    with run.preparing("replay"):
        replay = carracing.make_replay(config, frames, config.buffer)
        carracing.rehearse(config, frames)
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
        run.say("hotloop: the physics of a car cannot be saved: all cars start new episodes")
    return training
