"""Builds the learner's configuration from that of ppo-ricochet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from hotloop.training.run.configuration import derive

if TYPE_CHECKING:
    from hotloop.training.learn import BoardPPOConfig
    from hotloop.training.pipelines.ppo_ricochet import Config

Precision = Literal["auto", "float32", "bfloat16"]


def resolve_precision(precision: Precision, device: str) -> Precision:
    """Resolve "auto": a GPU computes several times faster in bfloat16, most CPUs do not."""
    if precision != "auto":
        return precision
    import torch

    return "bfloat16" if device.startswith("cuda") and torch.cuda.is_bf16_supported() else "float32"


def learner_config(config: Config) -> BoardPPOConfig:
    """Return the learner's configuration."""
    from hotloop.training.envs.ricochet.config import RicochetConfig
    from hotloop.training.envs.ricochet.vector import observation_space
    from hotloop.training.learn import BoardPPOConfig, BoardShape

    game = RicochetConfig(size=config.size, robots=config.robots, observation=config.observation)
    seen = observation_space(game).shape
    shape = derive(BoardShape, config, observation=seen, actions=game.actions, side=config.size)
    precision = resolve_precision(config.precision, config.device)
    return derive(BoardPPOConfig, config, shape=shape, precision=precision)
