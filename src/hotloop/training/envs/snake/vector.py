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
from hotloop.training.envs.snake.config import ACTIONS, CAUSES, FEATURES, LEVELS, NOWHERE, START_LENGTH, SnakeConfig
from hotloop.training.envs.snake.kernels import step_range
from hotloop.training.envs.snake.memory_layout import FOOD, HEAD, HEADING, LENGTH, OVER, STEPS, Rules, State
from hotloop.training.envs.validate import action_error, build_config
from hotloop.training.state_checks import require_state

MAX_STEPS = (1 << 31) - 1
"""Infos store the number of steps in 32 bits."""


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
        self.bounds = {
            "head": (HEAD, 0, config.cells - 1),
            "length": (LENGTH, START_LENGTH, config.cells),
            "heading": (HEADING, 0, 3),
            "steps": (STEPS, 0, MAX_STEPS),
            "over": (OVER, 0, 1),
        }

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


def check_games(state: State, board: int) -> None:
    """Reject impossible games: a body that leaves the board, crosses itself, or differs from the bit rows.

    Kernels index memory by this state without bounds checks and search the board until they find a free cell, so an
    invalid state could crash the process or loop forever. Shapes and types have been checked.
    """
    vitals, cells = state.vitals, board * board
    # Read the ring backwards from the head: the first `length` slots are the body.
    back = np.arange(cells)
    is_body = back < vitals[:, LENGTH, None]
    body = np.take_along_axis(state.body, (vitals[:, HEAD, None] - back) % cells, axis=1).astype(np.int64)
    x, y = body & 63, body >> 6
    require_state(bool((~is_body | ((x < board) & (y >= 0) & (y < board))).all()), "a snake leaves the board")
    covered = np.zeros((len(vitals), cells), np.int64)
    game, slot = np.nonzero(is_body)
    np.add.at(covered, (game, y[game, slot] * board + x[game, slot]), 1)
    require_state(int(covered.max()) <= 1, "a snake crosses itself")
    bits = (covered.reshape(-1, board, board).astype(np.uint64) << np.arange(board, dtype=np.uint64)).sum(2)
    require_state(bool((bits.astype(np.uint64) == state.rows).all()), "the rows do not show the snakes' bodies")
    _check_food(vitals, covered, board)


def _check_food(vitals: np.ndarray, covered: np.ndarray, board: int) -> None:
    """Check that a full board has no food, and that on any other board it is on a free cell."""
    food, full = vitals[:, FOOD], vitals[:, LENGTH] == board * board
    require_state(bool((food[full] == NOWHERE).all()), "a full board has food")
    food, covered = food[~full], covered[~full]
    x, y = food & 63, food >> 6
    require_state(bool(((x < board) & (y >= 0) & (y < board)).all()), "food is not on the board")
    require_state(not covered[np.arange(len(food)), y * board + x].any(), "food lies on a snake")
