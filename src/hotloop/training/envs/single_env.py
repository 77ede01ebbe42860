"""A single environment made of a vector environment with one lane, so that the rules exist once."""

from __future__ import annotations

import gymnasium
import numpy as np

from hotloop.training.envs.gym_types import Frame, Info, Observations
from hotloop.training.envs.kernel_vector import KernelVectorEnv


class SingleEnv(gymnasium.Env[Observations, int]):
    """The only lane of a vector environment.

    Args:
        lane: A vector environment of size 1 with autoreset disabled.
    """

    def __init__(self, lane: KernelVectorEnv) -> None:
        self._lane = lane
        self.render_mode = lane.render_mode
        self.observation_space = lane.single_observation_space
        self.action_space = lane.single_action_space

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Observations, Info]:
        """Start an episode; without a seed the random stream continues. `options` are those of the vector form."""
        super().reset(seed=seed)
        observations, infos = self._lane.reset(seed=seed, options=options)
        return observations[0], self._info(infos)

    def step(self, action: int) -> tuple[Observations, float, bool, bool, Info]:
        """Play one action; at the end of an episode `info` has its `cause`."""
        observations, rewards, terminated, truncated, infos = self._lane.step(np.array([action]))
        return observations[0], float(rewards[0]), bool(terminated[0]), bool(truncated[0]), self._info(infos)

    def get_state(self) -> dict[str, np.ndarray]:
        """Return a copy of the game. After `set_state` with it, the game continues with exactly the same results."""
        return self._lane.get_state()

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Continue from a state that `get_state` returned."""
        self._lane.set_state(state)

    def render(self) -> Frame | None:
        """Return a picture of the game, uint8 [H, W, 3] or text depending on `render_mode`."""
        frames = self._lane.render()
        return None if frames is None else frames[0]

    def _info(self, infos: Info) -> Info:
        info: Info = {name: int(infos[name][0]) for name in self._lane.info_names}
        return info | {"cause": infos["cause"][0]} if "cause" in infos else info
