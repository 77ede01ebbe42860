"""Loads a trained agent from its checkpoint: `load_agent("runs/mine").act(obs)`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from hotloop.errors import HotloopError
from hotloop.json_types import Json
from hotloop.training.agents.export import with_moments
from hotloop.training.registry import pipeline
from hotloop.training.run import configuration
from hotloop.training.run.config_checks import require_device
from hotloop.training.run.saved_training import read_saved


@dataclass(frozen=True, slots=True)
class TrainedAgent:
    """A trained agent and its origin."""

    pipeline: str
    config: Any
    """The pipeline's configuration."""
    env_steps: int
    """Steps of its training."""
    path: Path
    _agent: Any

    def initial_memory(self, boards: int) -> np.ndarray:
        """Return the memory of an agent with memory before the first step."""
        return self._agent.initial_memory(boards)

    def remember(self, obs: np.ndarray, memory: np.ndarray, fresh: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the best actions, int64 [N], and the new memory of an agent with memory."""
        return self._agent.remember(obs, memory, fresh)

    def act(self, obs: np.ndarray) -> np.ndarray:
        """Return the best actions, int64 [N], for observations [N, ...]; for a single observation, its action.

        Raises:
            HotloopError: The agent was trained on observations of another shape.
        """
        shape = tuple(self._agent.observation_shape)
        single = obs.shape == shape
        if not single and obs.shape[1:] != shape:
            raise HotloopError(
                f"observations have shape {obs.shape}: give this agent one of {shape}, or N of them, "
                f"({', '.join(map(str, ('N', *shape)))})"
            )
        actions = self._agent.act(obs[None] if single else obs)
        return actions[0] if single else actions


def load_agent(path: str | PathLike[str], device: str = "cpu") -> TrainedAgent:
    """Load the agent of a checkpoint, or of a run directory (its best checkpoint), to compute on a torch device."""
    require_device(device)
    saved = read_saved(Path(path), only=["learner"], of_run_best=True)
    module = pipeline(saved.pipeline)
    config = configuration.with_settings(module.Config(), on_device(saved.config, device), str(saved.path))
    agent = module.Agent(config)
    arrays = saved.group("learner")
    agent.learner.load(with_moments(arrays, agent.learner) if saved.agent_only else arrays)
    return TrainedAgent(saved.pipeline, config, saved.counts.env_steps, saved.path, agent)


def on_device(settings: Mapping[str, Json], device: str) -> dict[str, Json]:
    """Return the settings of a checkpoint for a device. numba runs only on the CPU; torch computes the same."""
    kernel = {"kernel": "torch"} if settings.get("kernel") == "numba" and device != "cpu" else {}
    return {**settings, **kernel, "device": device}
