"""Many games of Snake behind Gymnasium's `VectorEnv`.

Every array returned is newly allocated, so the caller may keep it, change it, or store it in a replay buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from hotloop.training.envs import autoreset
from hotloop.training.envs.kernel_vector import LaneThreads, choose_seeds, final_info, lane_info
from hotloop.training.envs.numba_tools import random_states
from hotloop.training.envs.snake import memory_layout, render
from hotloop.training.envs.snake.config import ACTIONS, CAUSES, FEATURES, GRID, LEVELS, SnakeConfig
from hotloop.training.envs.snake.kernels import step_range
from hotloop.training.envs.snake.memory_layout import Outputs, Rules, State
from hotloop.training.envs.snake.state_checks import check_games
from hotloop.training.envs.validate import (
    action_error,
    at_least_one,
    build_config,
    check_actions,
    check_render_mode,
    check_reset_mask,
)
from hotloop.training.state_checks import array_of

Array = NDArray[Any]
CAUSE_NAMES = np.array(CAUSES, dtype=object)
INFO_NAMES = ("score", "length", "steps")
"""Entries of an info, in the order of the rows of `Outputs.info`."""

RENDER_MODES = ("rgb_array", "ansi")


class SnakeVectorEnv(VectorEnv[Array, Array, Array]):
    """N games of Snake, stepped by one kernel call.

    By default a game whose episode ends is reset in the same step (`autoreset_mode`). The step's `info` then has
    `final_obs` and `final_info` with the masks `_final_obs` and `_final_info`. `final_obs` [N, ...] has a row for every
    game: where no episode ended it equals the observation, so `info.get("final_obs", obs)` is the true next observation
    of every game.

    Args:
        num_envs: N.
        render_mode: "rgb_array", "ansi" or None.
        autoreset_mode: Gymnasium's `AutoresetMode` or its value, "SameStep", "NextStep", "Disabled".
        threads: Number of threads that share the games.
        options: The fields of `SnakeConfig`: board, features, actions, max_steps, tail_free, rewards.
    """

    def __init__(
        self,
        num_envs: int = 256,
        *,
        render_mode: str | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        threads: int | None = None,
        **options: Any,
    ) -> None:
        self.config: SnakeConfig = build_config("Snake", SnakeConfig, options)
        self.num_envs = at_least_one("num_envs", num_envs)
        self.threads = min(at_least_one("threads", 1 if threads is None else threads), self.num_envs)
        self.autoreset_mode = autoreset.parse_autoreset_mode(autoreset_mode)
        check_render_mode(render_mode, RENDER_MODES)
        self.render_mode = render_mode
        self.metadata = {"render_modes": list(RENDER_MODES), "render_fps": 12, "autoreset_mode": self.autoreset_mode}
        self.single_observation_space = observation_space(self.config)
        self.single_action_space = spaces.Discrete(ACTIONS[self.config.actions])
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._rules = _make_rules(self.config, autoreset.CODES[self.autoreset_mode])
        self._state = _make_state(self.num_envs, self.config)
        self._features_shape = (self.num_envs, FEATURES[self.config.features])
        self._grid_shape = (self.num_envs, 3 * self.config.cells if self.config.features == "grid" else 0)
        self._was_reset = False
        self._threads = LaneThreads(self.num_envs, self.threads, "hotloop-snake")

    def reset(
        self,
        *,
        seed: int | Sequence[int] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Array, dict[str, Any]]:
        """Start an episode in every game, or only where `options={"reset_mask": bool [N]}` is true.

        Args:
            seed: Game i gets seed + i, or the i-th of a sequence; without one, each game's random stream continues.
            options: `reset_mask`, see above.

        Returns:
            Observations [N, ...] and info.
        """
        mask = check_reset_mask((options or {}).get("reset_mask"), self.num_envs, self._was_reset, "game")
        if seed is not None or not self._was_reset:
            seeds = choose_seeds(self, seed, "game")
            self._state.vitals[mask, memory_layout.RANDOM] = random_states(seeds)[mask]
        self._was_reset = True
        actions = np.where(mask, autoreset.RESET, autoreset.HOLD)
        out = self._outputs()
        self._run(self._rules._replace(lowest_action=autoreset.HOLD), actions, out)
        return self._observations(out.features, out.grid), self._info(out.info)

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Play one action in every game.

        Args:
            actions: Whole numbers [N]. Relative: 0 straight, 1 left, 2 right; absolute: 0 up, 1 right, 2 down, 3 left.

        Returns:
            Observations [N, ...], rewards float32 [N], terminated bool [N], truncated bool [N], info.
        """
        actions = self._check_actions(actions)
        out = self._outputs()
        ended = self._run(self._rules, actions, out)
        info = self._info(out.info)
        if ended:
            over = out.terminated | out.truncated
            if self.autoreset_mode is AutoresetMode.SAME_STEP:
                info["final_obs"], info["_final_obs"] = self._observations(out.final_features, out.final_grid), over
                final = final_info(INFO_NAMES, out.final_info, CAUSE_NAMES, over)
                info["final_info"], info["_final_info"] = final, over
            else:
                info["cause"], info["_cause"] = CAUSE_NAMES[out.info[memory_layout.CAUSE_ROW]], over
        return self._observations(out.features, out.grid), out.reward, out.terminated, out.truncated, info

    def get_state(self) -> dict[str, Array]:
        """Return a copy of all games. After `set_state` with it, they continue with exactly the same results."""
        return {name: array.copy() for name, array in self._state._asdict().items()}

    def set_state(self, state: dict[str, Array]) -> None:
        """Continue from a state that `get_state` returned for the same number of games and board size."""
        remedy = "restore it with the num_envs and board that it was saved with"
        restored = State(*(array_of(state, name, own, remedy=remedy) for name, own in self._state._asdict().items()))
        check_games(restored, self.config.board)
        for own, new in zip(self._state, restored, strict=True):
            own[...] = new
        self._was_reset = True

    def render(self) -> tuple[Any, ...] | None:
        """Return a picture of each game, uint8 [H, W, 3] or text depending on `render_mode`."""
        if self.render_mode is None:
            return None
        show = render.draw if self.render_mode == "rgb_array" else render.write
        return tuple(show(self.picture(i)) for i in range(self.num_envs))

    def picture(self, i: int) -> render.Picture:
        """Return what is needed to draw game i."""
        state, cells = self._state, self.config.cells
        vitals = state.vitals[i]
        slots = (vitals[memory_layout.HEAD] - np.arange(vitals[memory_layout.LENGTH])) % cells
        return render.Picture(
            board=self.config.board,
            body=tuple(int(cell) for cell in state.body[i, slots]),
            heading=int(vitals[memory_layout.HEADING]),
            food=int(vitals[memory_layout.FOOD]),
            steps=int(vitals[memory_layout.STEPS]),
        )

    def close_extras(self, **kwargs: Any) -> None:
        """Stop the threads."""
        self._threads.close()

    def _run(self, rules: Rules, actions: Array, out: Outputs) -> int:
        """Step all games; return how many episodes ended."""
        ended = self._threads.run(lambda _, first, last: step_range(rules, self._state, actions, out, first, last))
        # Each thread checks all actions, so either all of them report an invalid action or none does.
        if ended[0] < 0:
            raise action_error(actions, rules.actions - 1, "game")
        return sum(ended)

    def _outputs(self) -> Outputs:
        n, empty, same_step = self.num_envs, np.empty, self._rules.autoreset == autoreset.SAME_STEP
        features = empty(self._features_shape, np.float32)
        grid = empty(self._grid_shape, np.uint8)
        return Outputs(
            features,
            empty(self._features_shape, np.float32) if same_step else features,
            grid,
            empty(self._grid_shape, np.uint8) if same_step else grid,
            empty(n, np.float32),
            empty(n, np.bool_),
            empty(n, np.bool_),
            empty((4, n), np.int32),
            empty((4, n), np.int32),
        )

    def _observations(self, features: Array, grid: Array) -> Array:
        if self._rules.level != GRID:
            return features
        return grid.reshape(self.num_envs, self.config.board, self.config.board, 3)

    def _info(self, rows: Array) -> dict[str, Any]:
        return lane_info(INFO_NAMES, rows, np.ones(self.num_envs, np.bool_))

    def _check_actions(self, actions: Array) -> Array:
        disabled = self._rules.autoreset == autoreset.DISABLED
        over = self._state.vitals[:, memory_layout.OVER] != 0 if disabled else None
        return check_actions(actions, over, self._was_reset, "game", self.num_envs)


def observation_space(config: SnakeConfig) -> spaces.Box:
    """Return the observation space of one game."""
    if config.features == "grid":
        return spaces.Box(0, 1, (config.board, config.board, 3), np.uint8)
    return spaces.Box(0.0, 1.0, (FEATURES[config.features],), np.float32)


def _make_rules(config: SnakeConfig, autoreset_code: int) -> Rules:
    rewards = config.rewards
    return Rules(
        board=config.board,
        level=LEVELS[config.features],
        actions=ACTIONS[config.actions],
        max_steps=config.max_steps,
        tail_free=config.tail_free,
        lowest_action=0,
        autoreset=autoreset_code,
        food=float(rewards.food),
        death=float(rewards.death),
        step=float(rewards.step),
        shaping=float(rewards.shaping),
        timeout=float(rewards.timeout),
    )


def _make_state(num_envs: int, config: SnakeConfig) -> State:
    return State(
        vitals=np.zeros((num_envs, 7), np.int64),
        rows=np.zeros((num_envs, config.board), np.uint64),
        body=np.zeros((num_envs, config.cells), np.int16),
    )
