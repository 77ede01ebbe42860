"""Builds the learner's configuration from that of ppo-ricochet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

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
    assert seen is not None
    shape = BoardShape(
        observation=tuple(seen),
        actions=game.actions,
        side=config.size,
        core=config.core,
        channels=config.channels,
        layers=config.layers,
        repeats=config.repeats,
        hidden=config.hidden,
        read_planes=config.read_planes,
    )
    return BoardPPOConfig(
        shape=shape,
        boards=config.boards,
        epochs=config.epochs,
        lr=config.lr,
        clip=config.clip,
        entropy=config.entropy,
        value_weight=config.value_weight,
        max_grad_norm=config.max_grad_norm,
        precision=resolve_precision(config.precision, config.device),
        auxiliary=config.auxiliary,
    )
