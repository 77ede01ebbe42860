"""Builds the parts of dqn-mario from its configuration: learner, replay buffer, exploration, collector."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hotloop.training.run.warm_up import settle_kernel
from hotloop.training.tasks import mario

if TYPE_CHECKING:
    from hotloop.training.collect import Collector
    from hotloop.training.learn import FrameDQN, FrameDQNConfig
    from hotloop.training.learn.frame_dqn.policy import Exploration
    from hotloop.training.pipelines.dqn_mario import Config
    from hotloop.training.replay import FrameReplay

NETWORKS = {"small": ((4, 4), (3, 2), (3, 2)), "nature": ((8, 4), (4, 2), (3, 1))}
"""Kernel and stride of the three convolutions."""
ACTIONS = {"simple": 7, "complex": 12}
AHEAD = 32
"""Steps that workers may be ahead of the learner, at most."""
FIGURES = ("distance", "flag", "cause")
"""Fields reported for each episode."""


def settle(learner: FrameDQN, config: Config) -> tuple[str, str]:
    """Let the learner use the wanted kernel, or for `auto` the fastest.

    Returns:
        Its name, and a message about kernels that cannot be used here; usually empty.
    """
    if config.kernel != "auto" or not config.try_compile:
        return settle_kernel(learner, config.kernel, 1), ""
    from hotloop.training.learn import FRAME_KERNELS, choose_kernel

    choice = choose_kernel(learner, 1, candidates=FRAME_KERNELS)
    learner.use(choice.kernel)
    left_out = "; ".join(f"kernel {name} cannot be used here ({why})" for name, why in choice.left_out.items())
    return choice.kernel, f"hotloop: {left_out}; {choice.kernel} is used" if left_out else ""


def make_replay(config: Config) -> FrameReplay:
    """Make the replay: in shared memory where other processes write it."""
    from hotloop.training.replay import FrameReplay, Prioritised

    return FrameReplay(
        config.buffer, config.lanes, (config.size, config.size), config.stack, n_step=config.n_step,
        gamma=config.gamma, prioritised=Prioritised(config.alpha, config.beta) if config.prioritised else None,
        storage="shared" if config.workers else "memory",
    )  # fmt: skip


def explored(config: Config) -> Exploration:
    """Return how much is tried by chance."""
    from hotloop.training.learn.frame_dqn.policy import Exploration

    return Exploration(config.epsilon_start, config.epsilon_end, config.epsilon_steps, config.hold)


def make_collector(config: Config, replay: FrameReplay, learner: FrameDQN, exploration: Exploration) -> Collector:
    """Create the collector: worker processes, or this process."""
    from hotloop.training.collect import InProcess, Job, Recipe

    policy = {"shape": learner.config.shape, "exploration": exploration}
    where = "worker_policy" if config.workers else "FramePolicy"
    job = Job(
        env=Recipe(mario.ENV, mario.training_options(config)),
        policy=Recipe(f"hotloop.training.learn.frame_dqn.policy:{where}", policy),
        seed=config.seed,
        frames_per_step=config.skip,
        figures=FIGURES,
    )
    if not config.workers:
        return InProcess(job, replay, learner.weights())
    from hotloop.training.collect.workers import WorkerOptions, Workers

    options = WorkerOptions(
        count=config.workers, ahead=ahead_of(replay), lockstep=config.lockstep, restarts=config.restarts
    )
    return Workers(job, replay, learner.weights(), options)


def ahead_of(replay: FrameReplay) -> int:
    """Return how many steps workers may be ahead of the learner.

    That is half of the guard band at most: nothing that a checkpoint takes in is overwritten while it is written.
    """
    return min(AHEAD, replay.ring.shape.guard // 2)


def gpu_busy() -> float | None:
    """Return for what share of the last moments the GPU was busy; None where none is in use, or it does not tell."""
    import torch

    if not torch.cuda.is_initialized():
        return None
    try:
        return torch.cuda.utilization() / 100
    except (ImportError, RuntimeError):  # without pynvml, or on a device that does not report it
        return None


def learner_config(config: Config) -> FrameDQNConfig:
    """Return what the learner is made with."""
    from hotloop.training.learn import FrameDQNConfig, FrameQShape

    convs = tuple((n, *rest) for n, rest in zip(config.channels, NETWORKS[config.network], strict=True))
    shape = FrameQShape(
        observation=(config.stack, config.size, config.size), actions=ACTIONS[config.actions], convs=convs,
        hidden=config.hidden, dueling=config.dueling, norm=config.norm,
    )  # fmt: skip
    precision = config.precision
    if precision == "auto":
        precision = "float16" if config.device.startswith("cuda") else "float32"
    names = ("batch", "accumulate", "lr", "double", "clip", "tau")
    return FrameDQNConfig(shape=shape, precision=precision, **{name: getattr(config, name) for name in names})
