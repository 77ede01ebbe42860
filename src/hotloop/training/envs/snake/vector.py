"""Many games of Snake behind Gymnasium's `VectorEnv`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from hotloop.training.envs import autoreset
from hotloop.training.envs.gym_types import Frame
from hotloop.training.envs.kernel_vector import KernelVectorEnv, Outputs
from hotloop.training.envs.snake import memory_layout, render
from hotloop.training.envs.snake.config import ACTIONS, CAUSES, FEATURES, LEVELS, SnakeConfig
from hotloop.training.envs.snake.kernels import step_range
from hotloop.training.envs.snake.memory_layout import Rules, State
from hotloop.training.envs.snake.state_checks import check_games
from hotloop.training.envs.validate import action_error, build_config


class SnakeVectorEnv(KernelVectorEnv):
    """N games of Snake, stepped by one kernel call; `KernelVectorEnv` says what a step returns.

    Args:
        num_envs: N.
        render_mode: "rgb_array", "ansi" or None.
        autoreset_mode: Gymnasium's `AutoresetMode` or its value, "SameStep", "NextStep", "Disabled".
        threads: Number of threads that share the games.
        options: The fields of `SnakeConfig`: board, features, actions, max_steps, tail_free, rewards.
    """

    game, each, fps = "snake", "game", 12
    info_names = ("score", "length", "steps")
    cause_names = np.array(CAUSES, dtype=object)
    over_column, random_column = memory_layout.OVER, memory_layout.RANDOM

    def __init__(
        self,
        num_envs: int = 256,
        *,
        render_mode: str | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        threads: int | None = None,
        **options: Any,
    ) -> None:
        self.config = config = build_config("Snake", SnakeConfig, options)
        one = observation_space(config), spaces.Discrete(ACTIONS[config.actions])
        super().__init__(num_envs, one, render_mode, autoreset_mode, threads)
        self._rules = _make_rules(config, autoreset.CODES[self.autoreset_mode])
        self._state = State(
            vitals=np.zeros((self.num_envs, 7), np.int64),
            rows=np.zeros((self.num_envs, config.board), np.uint64),
            body=np.zeros((self.num_envs, config.cells), np.int16),
        )
        self._vitals, self._saved = self._state.vitals, self._state._asdict()

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

    def _run(self, actions: NDArray[np.int64], out: Outputs, resetting: bool = False) -> int:
        rules = self._rules._replace(lowest_action=autoreset.HOLD) if resetting else self._rules
        ended = self._threads.run(lambda _, first, last: step_range(rules, self._state, actions, out, first, last))
        # Each thread checks all actions, so either all of them report an invalid action or none does.
        if ended[0] < 0:
            raise action_error(actions, rules.actions - 1, "game")
        return sum(ended)

    def _drawer(self, as_text: bool) -> Callable[[int], Frame]:
        show = render.write if as_text else render.draw
        return lambda i: show(self.picture(i))

    def _check_restored(self, restored: dict[str, np.ndarray]) -> None:
        check_games(State(**restored), self.config.board)


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
