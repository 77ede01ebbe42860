"""Builds the parts of dqn-mario from its configuration: learner, replay buffer, exploration, collector."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hotloop.errors import HotloopError
from hotloop.training.run.configuration import derive
from hotloop.training.run.warm_up import settle_kernel
from hotloop.training.tasks import mario

if TYPE_CHECKING:
    from hotloop.training.collect import Collector
    from hotloop.training.learn import FrameDQN, FrameDQNConfig
    from hotloop.training.learn.frame_dqn.policy import Exploration
    from hotloop.training.pipelines.dqn_mario import Config
    from hotloop.training.replay import FrameReplay
    from hotloop.training.run.saved_training import Saved

NETWORKS = {"small": ((4, 4), (3, 2), (3, 2)), "nature": ((8, 4), (4, 2), (3, 1))}
"""Kernel and stride of the three convolutions."""
ACTIONS = {"simple": 7, "complex": 12}
AHEAD = 32
"""Maximum number of steps that workers may be ahead of the learner."""
FIGURES = ("distance", "flag", "cause")
"""Fields reported for each episode."""


def check_resume(saved: Saved | None, config: Config) -> None:
    """Raise HotloopError if a run is resumed with another number of workers."""
    if saved is not None and saved.config.get("workers") != config.workers:
        raise HotloopError(
            f"cannot resume with --workers {config.workers}: each has its own part of the replay, and there were "
            f"{saved.config.get('workers')}; leave it out"
        )


def settle(learner: FrameDQN, config: Config) -> tuple[str, str]:
    """Switch the learner to the configured kernel, or for `auto` to the fastest.

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
    """Make the replay buffer, in shared memory if workers write to it."""
    from hotloop.training.replay import FrameReplay, Prioritised

    return FrameReplay(
        config.buffer,
        config.lanes,
        (config.size, config.size),
        config.stack,
        n_step=config.n_step,
        gamma=config.gamma,
        prioritised=Prioritised(config.alpha, config.beta) if config.prioritised else None,
        storage="shared" if config.workers else "memory",
    )


def explored(config: Config) -> Exploration:
    """Return the schedule of exploration."""
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

    At most half of the guard band: then nothing is overwritten while a checkpoint saves it.
    """
    return min(AHEAD, replay.ring.shape.guard // 2)


def gpu_busy() -> float | None:
    """Return the GPU's recent utilisation as a share; None if none is in use or it is unknown."""
    import torch

    if not torch.cuda.is_initialized():
        return None
    try:
        return torch.cuda.utilization() / 100
    except (ImportError, RuntimeError):  # without pynvml, or on a device that does not report it
        return None


def learner_config(config: Config) -> FrameDQNConfig:
    """Return the learner's configuration."""
    from hotloop.training.learn import FrameDQNConfig, FrameQShape

    convs = tuple((n, *rest) for n, rest in zip(config.channels, NETWORKS[config.network], strict=True))
    observation = (config.stack, config.size, config.size)
    shape = derive(FrameQShape, config, observation=observation, actions=ACTIONS[config.actions], convs=convs)
    precision = config.precision
    if precision == "auto":
        precision = "float16" if config.device.startswith("cuda") else "float32"
    return derive(FrameDQNConfig, config, shape=shape, precision=precision)
