"""ppo-ricochet: proximal policy optimisation learns to solve boards. One iteration is `collect`, then `learn`.

An iteration plays T steps on each of N boards with the current policy, then does `epochs` passes over them. If the
network has memory, a minibatch is some boards with all their steps; otherwise it is random steps of random boards. With
`curriculum`, boards get harder when most of them are solved.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from hotloop.phases import Phase
from hotloop.spans import span
from hotloop.training.run.config_checks import require, require_device, require_positive, require_share
from hotloop.training.run.counts import Counts, Episodes
from hotloop.training.run.options import Options
from hotloop.training.run.phase_timer import Laps
from hotloop.training.run.saved_training import common_state, restore_common
from hotloop.training.state_checks import count_in, take_like
from hotloop.training.tasks import ricochet
from hotloop.training.tasks.curriculum import Solved

if TYPE_CHECKING:
    from torch import Tensor

    from hotloop.json_types import Json
    from hotloop.training.envs.ricochet import RicochetVectorEnv
    from hotloop.training.learn import BoardPPO, BoardPPOConfig, Sequences
    from hotloop.training.learn.ricochet_ppo.image_reader import Reading
    from hotloop.training.learn.ricochet_ppo.learner import BoardUpdated
    from hotloop.training.run.checkpoint import Groups
    from hotloop.training.run.recording import Recording
    from hotloop.training.run.result import Result
    from hotloop.training.run.saved_training import Saved
    from hotloop.training.run.training_run import TrainingRun

POLICY = span("recurrent_policy_forward", Phase.ACT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ricochet.GameOptions):
    """ppo-ricochet. The defaults are the preset `fast`."""

    seed: int = 0
    """Seed of the network, the boards, exploration and the order of minibatches."""
    envs: int = 64
    """Number of boards played in parallel."""
    core: Literal["sweep", "drc", "lstm"] = "sweep"
    """sweep: sweeps along rows and columns, no memory; drc: convolutional LSTM; lstm: NatureCNN and LSTM (images)."""
    read_planes: bool = False
    """For images: predict the planes first and use those; otherwise learned detectors read the image."""
    auxiliary: float = 0.0
    """Weight of a loss that trains this prediction on the true planes; 0: none."""
    channels: int = 16
    layers: int = 2
    """Layers of sweeps, or of LSTM cells."""
    repeats: int = 1
    """How many times the LSTM cells are applied per step."""
    hidden: int = 64
    """Width of the last layer, or of the LSTM."""
    rollout: int = 16
    """Steps per board and iteration."""
    boards: int = 16
    """Boards per minibatch, with all their steps; without memory, as many random steps."""
    epochs: int = 3
    lr: float = 2e-3
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip: float = 0.2
    entropy: float = 0.01
    value_weight: float = 0.5
    max_grad_norm: float = 0.5
    """Maximum norm of the gradient; 0 turns clipping off."""
    precision: ricochet.Precision = "auto"
    """Precision of the passes in an update; auto: bfloat16 on GPUs that support it, otherwise float32."""
    kernel: Literal["auto", "torch"] = "auto"
    """Implementation of the update; there is only one."""
    device: str = "cpu"

    def __post_init__(self) -> None:
        """Reject settings that cannot be trained with."""
        require_positive(self, "envs", "max_steps", "eval_steps", "bank_boards", "channels", "layers", "repeats")
        require_positive(self, "hidden", "rollout", "boards", "epochs", "lr", "threads", "robots")
        require_share(self, "gamma", "gae_lambda", "promotion")
        require(self.envs % self.boards == 0, self, "boards", f"a number that divides --envs {self.envs}")
        ricochet.check(self)
        require(self.auxiliary >= 0, self, "auxiliary", "0 or more")
        require(self.read_planes or not self.auxiliary, self, "auxiliary", "0, or --read-planes with it")
        require(self.rollout * self.boards > 1, self, "boards", "more: a minibatch needs at least 2 steps")

    @property
    def updates_per_iteration(self) -> int:
        """Minibatches of an iteration."""
        return self.epochs * self.envs // self.boards


DRC = Config(core="drc", channels=16, epochs=2, lr=1e-3)
FAITHFUL = Config(core="drc", observation="rgb", channels=32, epochs=4, lr=3e-4, envs=8, boards=8, rollout=32)
LSTM = Config(core="lstm", observation="rgb", hidden=256, epochs=4, lr=3e-4)
PRESETS: dict[str, tuple[Config, str]] = {
    "fast": (Config(), "the default: planes, and sweeps along rows and columns"),
    "rgb": (Config(observation="rgb", read_planes=True, auxiliary=1.0), "the same from images: it predicts the planes"),
    "levels": (Config(layers=4, curriculum=True), "like fast, with four layers, through all levels"),
    "convlstm": (DRC, "convolutional LSTM cells on planes"),
    "rgb-convlstm": (replace(DRC, observation="rgb"), "the same cells on images of 128×128"),
    "faithful": (FAITHFUL, "the study's numbers: those cells on images, 8 boards, 32 channels, 4 epochs"),
    "lstm": (LSTM, "NatureCNN and an LSTM on images, as in sb3-contrib's RecurrentPPO"),
}
OPTIONS = Options(eval_every=50_000, eval_episodes=500, checkpoint_every=200_000)


class Agent:
    """A policy with memory."""

    def __init__(self, config: Config) -> None:
        from hotloop.training.learn import BoardPPO

        self.config = config
        self.learner = BoardPPO(ricochet.learner_config(config), board_loss, seed=config.seed, device=config.device)
        shape = self.learner.config.shape
        self.observation_shape = shape.observation
        self.taught: tuple[int, ...] = shape.planes.observation if config.auxiliary else ()
        """Shape of the planes that it is trained to predict; () if it is not."""

    def initial_memory(self, boards: int) -> np.ndarray:
        """Return the memory before the first step."""
        return self.learner.initial_memory(boards)

    def remember(self, obs: np.ndarray, memory: np.ndarray, fresh: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the best actions, int64 [N], and the memory."""
        logits, _, memory = self.learner.evaluate(obs, memory, fresh)
        return logits.argmax(axis=1), memory

    def act(self, obs: np.ndarray) -> np.ndarray:
        """Return the best actions, int64 [N], as if episodes began with these observations."""
        return self.remember(obs, self.initial_memory(len(obs)), np.ones(len(obs), np.bool_))[0]


class Steps(NamedTuple):
    """The rollout of one iteration, [T, N, ...] each."""

    obs: np.ndarray
    fresh: np.ndarray
    action: np.ndarray
    log_prob: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    value: np.ndarray
    next_value: np.ndarray
    """Values of the true next observations: the final ones where an episode ended."""
    planes: np.ndarray | None = None
    """True planes of the observations, if the agent is trained to predict them."""

    @classmethod
    def empty(cls, rollout: int, obs: np.ndarray, taught: tuple[int, ...] = ()) -> Steps:
        """Allocate T steps for observations like these, [N, ...], and for their planes."""
        shape = (rollout, len(obs))
        planes = np.empty((*shape, *taught), np.uint8) if taught else None
        real = [np.empty(shape, np.float32) for _ in range(4)]
        flags = [np.empty(shape, np.bool_) for _ in range(3)]
        seen = np.empty((rollout, *obs.shape), obs.dtype)
        action = np.empty(shape, np.int64)
        return cls(seen, flags[0], action, real[0], real[1], flags[1], flags[2], real[2], real[3], planes)


@dataclass(slots=True)
class Training:
    """Everything that changes during training."""

    config: Config
    env: RicochetVectorEnv
    agent: Agent
    steps: Steps
    """Overwritten in each iteration."""
    rng: np.random.Generator
    obs: np.ndarray
    """[N, ...]: current observations."""
    fresh: np.ndarray
    """[N]: whether an episode starts with the current observation."""
    memory: np.ndarray
    """[M, N, ...]: the agent's memory."""
    counts: Counts
    episodes: Episodes
    level: int
    solved: Solved
    """Success rate on the boards of this level."""
    updated: BoardUpdated | None = None
    """Metrics of the last iteration's updates."""

    def scalars(self) -> dict[str, float | None]:
        """Return the level and the metrics of the last updates."""
        from hotloop.training.learn.ricochet_ppo.learner import BoardUpdated

        metrics = dict.fromkeys(BoardUpdated._fields) if self.updated is None else self.updated._asdict()
        return {"level": float(self.level), **metrics}

    def evaluate(self, episodes: int) -> dict[str, float | None]:
        """Play held-out boards of the present level greedily.

        With a curriculum the score, by which the best checkpoint is chosen, is the mean over all levels: else the one
        before the first promotion would stay the best.
        """
        played = ricochet.play_episodes(self.agent, self.config, episodes, self.level)
        if not self.config.curriculum:
            return played.summary()
        others = [level for level in ricochet.places(self.config, None, False) if level != self.level]
        scores = [ricochet.play_episodes(self.agent, self.config, episodes, each).score.mean() for each in others]
        return played.summary() | {"eval_score": float(np.mean([played.score.mean(), *scores]))}

    def state(self) -> tuple[Groups, dict[str, Json]]:
        """Return the state for a checkpoint."""
        groups, values = common_state(self)
        env = self.env.get_state() | {"obs": self.obs, "fresh": self.fresh, "memory": self.memory}
        return groups | {"env": env, "solved": self.solved.state()}, values | {"level": self.level}

    def restore(self, saved: Saved) -> None:
        """Continue from a checkpoint."""
        self.go_to(count_in(saved.meta, "level", high=ricochet.known_levels(self.config.robots)[-1]))
        env = saved.group("env")
        self.obs, self.fresh, self.memory = take_like(env, obs=self.obs, fresh=self.fresh, memory=self.memory)
        self.env.set_state(env)
        restore_common(self, saved)
        self.solved.restore(saved.group("solved"))

    def go_to(self, level: int) -> None:
        """Switch to boards of another level."""
        if level == self.level:
            return
        self.level = level
        self.env.close()
        self.env = ricochet.make_env(self.config, self.config.envs, level)
        self.obs, _ = self.env.reset(seed=self.config.seed + level)
        self.fresh[:] = True
        self.episodes.drop_unfinished()
        self.solved = Solved(self.config.envs, self.config.max_steps)


def collect(training: Training, timed: Laps) -> np.ndarray:
    """Play T steps on every board and store them; return the memory before the first."""
    steps, learner, before = training.steps, training.agent.learner, training.memory
    for t in range(training.config.rollout):
        if steps.planes is not None:
            with timed("rollout.store"):
                steps.planes[t] = training.env.puzzles().planes()
        with timed("act"), POLICY:
            acted, memory = learner.act(training.obs, training.memory, training.fresh, training.rng)
        with timed("env.step"):
            obs, reward, terminated, truncated, info = training.env.step(acted.action)
        with timed("rollout.store"):
            steps.obs[t], steps.fresh[t], steps.action[t] = training.obs, training.fresh, acted.action
            steps.log_prob[t], steps.value[t], steps.reward[t] = acted.log_prob, acted.value, reward
            steps.terminated[t], steps.truncated[t] = terminated, truncated
        if truncated.any():
            with timed("act"), POLICY:
                steps.next_value[t, truncated] = _last_values(learner, info["final_obs"], memory, truncated)
        with timed("count", Phase.LOG):
            ended = training.episodes.step(reward, terminated | truncated, terminated.astype(np.float64))
            training.solved.step(terminated | truncated, terminated)
            training.counts.add(env_steps=len(reward), episodes=ended)
        training.obs, training.fresh, training.memory = obs, terminated | truncated, memory
    with timed("act"), POLICY:
        _, following, _ = learner.evaluate(training.obs, training.memory, training.fresh)
        following = np.concatenate([steps.value[1:], following[None]])
        np.copyto(steps.next_value, following, where=~steps.truncated)
    return before


def _last_values(learner: BoardPPO, final: np.ndarray, memory: np.ndarray, which: np.ndarray) -> np.ndarray:
    last = np.stack([final[i] for i in np.flatnonzero(which)])
    _, values, _ = learner.evaluate(last, memory[:, which], np.zeros(len(last), np.bool_))
    return values


def learn(training: Training, before: np.ndarray, timed: Laps) -> None:
    """Compute advantages and do all passes over the rollout."""
    from hotloop.training.learn import Sequences, gae

    config, steps = training.config, training.steps
    with timed("advantages", Phase.FORWARD):
        past = (steps.reward, steps.value, steps.next_value, steps.terminated, steps.truncated)
        advantage = gae(*past, config.gamma, config.gae_lambda)
        returns = advantage + steps.value
    seen = (steps.obs, steps.fresh, before, steps.action, steps.log_prob)
    rollout = Sequences(*seen, advantage, returns, steps.planes)
    with timed("learn.update", Phase.OPTIMISE):
        training.updated = training.agent.learner.update(rollout, training.rng)
    training.counts.add(updates=config.updates_per_iteration)


def board_loss(
    config: BoardPPOConfig, output: tuple[Tensor, Tensor, Reading | None], part: Sequences[Tensor]
) -> tuple[Tensor, Tensor]:
    """Return the loss of a minibatch, and its parts.

    `policy + value_weight · value − entropy weight · entropy`, where `ppo_losses` has the equations, and with
    `auxiliary` times that weight the loss of reading the planes.
    """
    import torch

    from hotloop.training.learn.loss_terms import normalise, ppo_losses
    from hotloop.training.learn.ricochet_ppo.image_reader import reading_loss

    logits, value, reading = output
    action, log_prob, advantage, returns = (
        each.flatten() for each in (part.action, part.log_prob, part.advantage, part.returns)
    )
    losses = ppo_losses(logits, value, (action, log_prob, normalise(advantage), returns), config.clip)
    loss = losses.policy + config.value_weight * losses.value - config.entropy * losses.entropy
    parts: list[Tensor] = [*losses]
    if config.auxiliary and reading is not None and part.planes is not None:
        parts.append(reading_loss(reading, part.planes.flatten(0, 1)))
        loss = loss + config.auxiliary * parts[-1]
    return loss, torch.stack(parts)


def promote(training: Training, run: TrainingRun) -> None:
    """Move on to the next level if enough of the last 100 boards were solved."""
    solved, last = training.solved.share(), ricochet.known_levels(training.config.robots)[-1]
    enough = solved is not None and solved >= training.config.promotion
    if training.config.curriculum and enough and training.level < last:
        training.go_to(training.level + 1)
        run.say(f"ppo-ricochet: {solved:.0%} of the last 100 boards solved: on to level {training.level}")


def train(config: Config, options: Options | None = None, recording: Recording | None = None) -> Result:
    """Train until a limit in the options is reached, or until Ctrl-C; `recording` is the recorder around the run."""
    from hotloop.training.run.training_run import opened

    require_device(config.device)
    config = replace(config, precision=ricochet.resolve_precision(config.precision, config.device))
    options = options or OPTIONS
    with opened("ppo-ricochet", config, options, recording, Agent) as (run, agent):
        training = prepare(run, agent, evaluates=options.eval_episodes > 0)
        try:
            run.begin(training)
            while run.going():
                before = collect(training, run.timed)
                learn(training, before, run.timed)
                promote(training, run)
                run.after_step()
            return run.finish()
        finally:
            training.env.close()


def prepare(run: TrainingRun, agent: Agent, evaluates: bool = True) -> Training:
    """Build all parts."""
    config: Config = replace(run.config, kernel="torch")
    with run.preparing("bank"):
        ricochet.check_bank(config, evaluates)
    with run.preparing("boards"):
        env = ricochet.make_env(config, config.envs, config.level)
        obs, _ = env.reset(seed=config.seed)
    with run.preparing("learner"):
        fresh = np.ones(config.envs, np.bool_)
        agent.learner.warm(obs)
    steps, rng = Steps.empty(config.rollout, obs, agent.taught), np.random.default_rng([config.seed])
    memory, episodes = agent.initial_memory(config.envs), Episodes(config.envs)
    solved = Solved(config.envs, config.max_steps)
    training = Training(config, env, agent, steps, rng, obs, fresh, memory, Counts(), episodes, config.level, solved)
    if run.checkpoint is not None:
        training.restore(run.checkpoint)
    return training
