"""Builds the parts of sac-carracing from its configuration: learner and replay buffer."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hotloop.errors import HotloopError
from hotloop.training.run.configuration import derive
from hotloop.training.tasks import carracing

if TYPE_CHECKING:
    from hotloop.training.learn import SACConfig
    from hotloop.training.pipelines.sac_carracing import Config
    from hotloop.training.replay import FrameReplay, VectorReplay

KERNELS_STRIDES = ((8, 4), (4, 2), (3, 1))
"""Kernel and stride of the three convolutions."""


def make_replay(config: Config, seen: np.ndarray, capacity: int) -> FrameReplay | VectorReplay:
    """Make the replay buffer for observations like these, [N, ...]."""
    from hotloop.training.replay import FrameReplay, VectorReplay

    visual = config.state == "visual"
    make = partial(FrameReplay, stack=config.stack) if visual else partial(VectorReplay, obs_dtype=seen.dtype)
    return make(
        capacity,
        len(seen),
        seen.shape[1:],
        action_shape=(carracing.ACTION_SIZE[config.action_form],),
        action_dtype=np.float32,
        n_step=config.n_step,
        gamma=config.gamma,
    )


def rehearse(config: Config, seen: np.ndarray) -> None:
    """Compile the replay buffer's kernels, using a small copy."""
    steps = 2 * (config.n_step + config.stack)
    spare = make_replay(config, seen, steps * len(seen))
    action = np.zeros((len(seen), carracing.ACTION_SIZE[config.action_form]), np.float32)
    never = np.zeros(len(seen), np.bool_)
    for _ in range(steps):
        spare.add(seen, action, action[:, 0], never, never, seen)
    spare.sample(1, np.random.default_rng(0))


def learner_config(config: Config) -> SACConfig:
    """Return the learner's configuration."""
    from hotloop.training.learn import SACConfig, SACShape

    if config.state == "vector" and (config.shared or config.shift or config.latent):
        raise HotloopError(
            "--state vector: features need no encoder; use --preset vector, or --no-shared --shift 0 --latent 0"
        )
    convs = tuple((n, *rest) for n, rest in zip(config.channels, KERNELS_STRIDES, strict=True))
    actions = carracing.ACTION_SIZE[config.action_form]
    shape = derive(SACShape, config, observation=carracing.shape_seen(config), actions=actions, convs=convs)
    return derive(SACConfig, config, shape=shape)
