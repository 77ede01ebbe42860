"""Many boards of Ricochet Robots behind Gymnasium's `VectorEnv`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from hotloop.errors import HotloopError
from hotloop.training.array_pool import ArrayPool
from hotloop.training.envs import autoreset
from hotloop.training.envs.gym_types import Flags, Frame, Info, Observations
from hotloop.training.envs.kernel_vector import KernelVectorEnv, Outputs
from hotloop.training.envs.ricochet import memory_layout, render
from hotloop.training.envs.ricochet.config import (
    CAUSES,
    LEVELS,
    MAX_ROBOTS,
    OBSERVATIONS,
    PICTURE,
    RGB,
    STOPS,
    UNKNOWN,
    RicochetConfig,
)
from hotloop.training.envs.ricochet.kernels import restore, step_range
from hotloop.training.envs.ricochet.memory_layout import CELLS, Boards, Rules
from hotloop.training.envs.ricochet.puzzle import Puzzles, check
from hotloop.training.envs.ricochet.rgb_observation import Pictures
from hotloop.training.envs.ricochet.solver import MAX_MOVES, new_search
from hotloop.training.envs.validate import action_error, build_config

PUZZLE_COLUMNS = [memory_layout.GOAL, memory_layout.TARGET, memory_layout.OPTIMAL, memory_layout.MOVED]
"""Columns of `State.vitals` that belong to the board rather than to the episode."""


class RicochetVectorEnv(KernelVectorEnv):
    """N boards of Ricochet Robots, stepped by one kernel call; `KernelVectorEnv` says what a step returns.

    With `rgb`, `final_obs` is an array of N objects, None where no episode ended, as in Gymnasium: a second copy of all
    pictures would take as long as the step itself.

    Args:
        num_envs: N.
        render_mode: "rgb_array", "ansi" or None.
        autoreset_mode: Gymnasium's `AutoresetMode` or its value, "SameStep", "NextStep", "Disabled".
        threads: Number of threads that share the boards.
        options: The fields of `RicochetConfig`: size, robots, observation, level, bank, held_out, noop, max_steps,
            rewards.
    """

    game, each, fps = "ricochet", "board", 4
    info_names = ("steps", "optimal")
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
        self.config = config = build_config("Ricochet", RicochetConfig, options)
        one = observation_space(config), spaces.Discrete(config.actions)
        super().__init__(num_envs, one, render_mode, autoreset_mode, threads)
        self._rules = _make_rules(config, autoreset.CODES[self.autoreset_mode])
        observation = self._rules.observation
        self._state = memory_layout.new_state(
            self.num_envs, config.planes * config.size**2 if observation <= STOPS else 0
        )
        self._vitals = self._state.vitals
        # The other arrays are computed from these.
        self._saved = {"vitals": self._state.vitals, "robots": self._state.robots, "walls": self._state.walls}
        self.bounds = {
            "steps": (memory_layout.STEPS, 0, (1 << 31) - 1),
            "over": (memory_layout.OVER, 0, 1),
            "goal": (memory_layout.GOAL, 0, CELLS - 1),
            "target": (memory_layout.TARGET, 0, MAX_ROBOTS - 1),
            "optimal": (memory_layout.OPTIMAL, UNKNOWN, MAX_MOVES),
            "moved": (memory_layout.MOVED, UNKNOWN, MAX_ROBOTS),
        }
        self._boards = _load_boards(config)
        self._searches = [new_search() for _ in range(self.threads)]
        self._pictures: Pictures | None = None
        if observation == RGB:
            self._pictures = Pictures(self._state, config, self._threads)
            self._planes = ArrayPool((self.num_envs, 0), np.uint8)  # the kernel does not observe

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: Info | None = None
    ) -> tuple[Observations, Info]:
        """Start an episode on a new board everywhere, or only where `options={"reset_mask": bool [N]}` is true.

        Board i gets seed + i, or the i-th of a sequence; without a seed, each board's random stream continues. With the
        option `puzzles`, a `Puzzles` of N boards, those are played instead of new ones.
        """
        puzzles = (options or {}).get("puzzles")
        if puzzles is None:
            return super().reset(seed=seed, options=options)
        self._check_puzzles(puzzles)
        mask = self._seed_games(seed, options)
        self._set_puzzles(puzzles, mask)
        return self._start_episodes(mask, memory_layout.RESTART)

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Continue from a state that `get_state` returned for the same number and size of boards."""
        super().set_state(state)
        restore(self._rules, self._state)

    def puzzles(self) -> Puzzles:
        """Return all boards with the current positions of the robots."""
        return Puzzles.from_state(self._state, self.config.size, self.config.robots)

    def _run(self, actions: NDArray[np.int64], out: Outputs, resetting: bool = False) -> int:
        rules = self._rules._replace(lowest_action=memory_layout.RESTART) if resetting else self._rules
        state, boards, searches = self._state, self._boards, self._searches
        results = self._threads.run(
            lambda k, first, last: step_range(rules, state, (boards, searches[k]), actions, out, (first, last))
        )
        if memory_layout.WRONG_ACTION in results:
            raise action_error(actions, self._rules.actions - 1, "board")
        if memory_layout.NO_BOARD in results:
            raise HotloopError(
                f"no board of level {self.config.level} was found in {memory_layout.MAX_TRIES:,} of size "
                f"{self.config.size} with robots {self.config.robots}: give another level, a larger size or a bank"
            )
        return sum(results)

    def _observations(self, out: Outputs) -> Observations:
        return super()._observations(out) if self._pictures is None else self._pictures.draw()

    def _final_observations(self, out: Outputs, over: Flags) -> Observations | NDArray[np.object_]:
        if self._pictures is None:
            return super()._final_observations(out, over)
        return self._pictures.draw_final(self._state.final_robots, over)

    def _drawer(self, as_text: bool) -> Callable[[int], Frame]:
        return functools.partial(render.write if as_text else render.draw, self.puzzles())

    def _check_restored(self, restored: dict[str, np.ndarray]) -> None:
        puzzles = Puzzles.from_state(self._state._replace(**restored), self.config.size, self.config.robots)
        check(puzzles, at_start=False)

    def _check_puzzles(self, puzzles: Puzzles) -> None:
        own, given = (self.num_envs, self.config.size, self.config.robots), (len(puzzles), puzzles.size, puzzles.count)
        if own != given:
            raise HotloopError(
                f"puzzles are {given[0]} of size {given[1]} with robots {given[2]}: "
                f"give {own[0]} of size {own[1]} with robots {own[2]}"
            )
        check(puzzles)

    def _set_puzzles(self, puzzles: Puzzles, mask: Flags) -> None:
        state, new = self._state, puzzles.state()
        state.walls[mask], state.robots[mask] = new.walls[mask], new.robots[mask]
        for column in PUZZLE_COLUMNS:
            state.vitals[mask, column] = new.vitals[mask, column]


def observation_space(config: RicochetConfig) -> spaces.Box:
    """Return the observation space of one board."""
    if config.observation == "rgb":
        return spaces.Box(0, 255, (PICTURE, PICTURE, 3), np.uint8)
    if config.observation == "symbolic":
        return spaces.Box(0.0, 1.0, (config.numbers,), np.float32)
    return spaces.Box(0, 1, (config.planes, config.size, config.size), np.uint8)


def _make_rules(config: RicochetConfig, autoreset_code: int) -> Rules:
    level = (0, 0, 0, 0) if config.level is None else LEVELS[config.level]
    return Rules(
        config.size,
        config.robots,
        OBSERVATIONS.index(config.observation),
        config.structures,
        config.actions,
        config.max_steps,
        autoreset_code,
        0,
        *level,
        float(config.rewards.step),
        float(config.rewards.solved),
    )


def _load_boards(config: RicochetConfig) -> Boards:
    if config.bank is None:
        return Boards(np.zeros((0, CELLS), np.uint8), np.zeros((0, MAX_ROBOTS), np.uint8), np.zeros((0, 4), np.int64))
    from hotloop.training.envs.ricochet.puzzle_bank import load  # Needs pyarrow, which is slow to import.

    bank = load(config.bank)
    found, wanted = (bank.puzzles.size, bank.puzzles.count), (config.size, config.robots)
    if found != wanted:
        raise HotloopError(
            f"the bank {config.bank} has boards of size {found[0]} with robots {found[1]}, not of size {wanted[0]} "
            f"with robots {wanted[1]}: give size={found[0]}, robots={found[1]} or another bank"
        )
    state = bank.take(config.level, config.held_out).state()
    return Boards(state.walls, state.robots, np.ascontiguousarray(state.vitals[:, PUZZLE_COLUMNS]))
