"""Many boards of Ricochet Robots behind Gymnasium's `VectorEnv`.

The caller may keep every array returned, change it, or store it in a replay buffer without a copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from hotloop.errors import HotloopError
from hotloop.training.array_pool import ArrayPool
from hotloop.training.envs import autoreset
from hotloop.training.envs.kernel_vector import LaneThreads, choose_seeds, final_info, lane_info
from hotloop.training.envs.numba_tools import random_states
from hotloop.training.envs.ricochet import memory_layout, render
from hotloop.training.envs.ricochet.config import (
    CAUSES,
    LEVELS,
    MAX_ROBOTS,
    OBSERVATIONS,
    PICTURE,
    RGB,
    STOPS,
    SYMBOLIC,
    UNKNOWN,
    RicochetConfig,
)
from hotloop.training.envs.ricochet.kernels import restore, step_range
from hotloop.training.envs.ricochet.memory_layout import CELLS, Boards, Outputs, Rules
from hotloop.training.envs.ricochet.puzzle import Puzzles, check
from hotloop.training.envs.ricochet.rgb_observation import Pictures
from hotloop.training.envs.ricochet.solver import MAX_MOVES, new_search
from hotloop.training.envs.validate import (
    action_error,
    at_least_one,
    build_config,
    check_actions,
    check_render_mode,
    check_reset_mask,
)
from hotloop.training.state_checks import array_of, require_values

Array = NDArray[Any]
CAUSE_NAMES = np.array(CAUSES, dtype=object)
INFO_NAMES = ("steps", "optimal")
"""Entries of an info, in the order of the rows of `Outputs.info`."""

RENDER_MODES = ("rgb_array", "ansi")
SAVED = ("vitals", "robots", "walls")
"""Arrays that `get_state` returns; the others are computed from them."""

PUZZLE_COLUMNS = [memory_layout.GOAL, memory_layout.TARGET, memory_layout.OPTIMAL, memory_layout.MOVED]
"""Columns of `State.vitals` that belong to the board rather than to the episode."""

BOUNDS = {
    "steps": (memory_layout.STEPS, 0, (1 << 31) - 1),
    "over": (memory_layout.OVER, 0, 1),
    "goal": (memory_layout.GOAL, 0, CELLS - 1),
    "target": (memory_layout.TARGET, 0, MAX_ROBOTS - 1),
    "optimal": (memory_layout.OPTIMAL, UNKNOWN, MAX_MOVES),
    "moved": (memory_layout.MOVED, UNKNOWN, MAX_ROBOTS),
}
"""Allowed range of the columns of `State.vitals` on any board."""


class RicochetVectorEnv(VectorEnv[Array, Array, Array]):
    """N boards of Ricochet Robots, stepped by one kernel call.

    By default a board whose episode ends is replaced by another in the same step (`autoreset_mode`). The step's `info`
    then has `final_obs` and `final_info` with the masks `_final_obs` and `_final_info`. `final_obs` [N, ...] has a row
    for every board: where no episode ended it equals the observation, so `info.get("final_obs", obs)` is the true next
    observation of every board. With `rgb` it is instead an array of N objects, None where no episode ended, as in
    Gymnasium: a second copy of all pictures would take as long as the step itself.

    Args:
        num_envs: N.
        render_mode: "rgb_array", "ansi" or None.
        autoreset_mode: Gymnasium's `AutoresetMode` or its value, "SameStep", "NextStep", "Disabled".
        threads: Number of threads that share the boards.
        options: The fields of `RicochetConfig`: size, robots, observation, level, bank, held_out, noop, max_steps,
            rewards.
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
        self.config: RicochetConfig = build_config("Ricochet", RicochetConfig, options)
        self.num_envs = at_least_one("num_envs", num_envs)
        self.threads = min(at_least_one("threads", threads or 1), self.num_envs)
        self.autoreset_mode = autoreset.parse_autoreset_mode(autoreset_mode)
        check_render_mode(render_mode, RENDER_MODES)
        self.render_mode = render_mode
        self.metadata = {"render_modes": list(RENDER_MODES), "render_fps": 4, "autoreset_mode": self.autoreset_mode}
        self.single_observation_space = observation_space(self.config)
        self.single_action_space = spaces.Discrete(self.config.actions)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._rules = _make_rules(self.config, autoreset.CODES[self.autoreset_mode])
        self._threads = LaneThreads(self.num_envs, self.threads, "hotloop-ricochet")
        has_planes = self._rules.observation <= STOPS
        layer_size = self.config.planes * self.config.size**2 if has_planes else 0
        self._state = memory_layout.new_state(self.num_envs, layer_size)
        self._boards = _load_boards(self.config)
        self._searches = [new_search() for _ in range(self.threads)]
        observation = self._rules.observation
        self._planes = ArrayPool(self._state.layer.shape, np.uint8)
        self._numbers_shape = (self.num_envs, self.config.numbers if observation == SYMBOLIC else 0)
        self._pictures = Pictures(self._state, self.config, self._threads) if observation == RGB else None
        self._was_reset = False

    def reset(
        self,
        *,
        seed: int | Sequence[int] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Array, dict[str, Any]]:
        """Start an episode on a new board everywhere, or only where `options={"reset_mask": bool [N]}` is true.

        Args:
            seed: Board i gets seed + i, or the i-th of a sequence; without one, each board's random stream continues.
            options: `reset_mask`, see above, and `puzzles`, a `Puzzles` of N boards to play instead of new ones.

        Returns:
            Observations [N, ...] and info.
        """
        mask = check_reset_mask((options or {}).get("reset_mask"), self.num_envs, self._was_reset, "board")
        puzzles = (options or {}).get("puzzles")
        if puzzles is not None:
            self._check_puzzles(puzzles)
        if seed is not None or not self._was_reset:
            seeds = choose_seeds(self, seed, "board")
            self._state.vitals[mask, memory_layout.RANDOM] = random_states(seeds)[mask]
        if puzzles is not None:
            self._set_puzzles(puzzles, mask)
        self._was_reset = True
        actions = np.where(mask, autoreset.RESET if puzzles is None else memory_layout.RESTART, autoreset.HOLD)
        out = self._outputs()
        self._run(self._rules._replace(lowest_action=memory_layout.RESTART), actions, out)
        return self._observations(out.planes, out.numbers), self._info(out.info)

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Play one action on every board.

        Args:
            actions: Whole numbers [N]: robot · 4 + direction, up, right, down, left; with `noop` one more.

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
                info["final_obs"], info["_final_obs"] = self._final_observations(out, over), over
                final = final_info(INFO_NAMES, out.final_info, CAUSE_NAMES, over)
                info["final_info"], info["_final_info"] = final, over
            else:
                info["cause"], info["_cause"] = CAUSE_NAMES[out.info[memory_layout.CAUSE_ROW]], over
        return self._observations(out.planes, out.numbers), out.reward, out.terminated, out.truncated, info

    def get_state(self) -> dict[str, Array]:
        """Return a copy of all games. After `set_state` with it, they continue with exactly the same results."""
        return {name: getattr(self._state, name).copy() for name in SAVED}

    def set_state(self, state: dict[str, Array]) -> None:
        """Continue from a state that `get_state` returned for the same number of boards and board size."""
        remedy = "restore it with the num_envs that it was saved with"
        restored = {name: array_of(state, name, getattr(self._state, name), remedy=remedy) for name in SAVED}
        for name, (column, low, high) in BOUNDS.items():
            require_values(restored["vitals"][:, column], f"vitals.{name}", low, high)
        puzzles = Puzzles.from_state(self._state._replace(**restored), self.config.size, self.config.robots)
        check(puzzles, at_start=False)
        for name, array in restored.items():
            getattr(self._state, name)[...] = array
        restore(self._rules, self._state)
        self._was_reset = True

    def puzzles(self) -> Puzzles:
        """Return all boards with the current positions of the robots."""
        return Puzzles.from_state(self._state, self.config.size, self.config.robots)

    def render(self) -> tuple[Any, ...] | None:
        """Return a picture of each board, uint8 [H, W, 3] or text depending on `render_mode`."""
        if self.render_mode is None:
            return None
        show, puzzles = render.draw if self.render_mode == "rgb_array" else render.write, self.puzzles()
        return tuple(show(puzzles, i) for i in range(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        """Stop the threads."""
        self._threads.close()

    def _run(self, rules: Rules, actions: Array, out: Outputs) -> int:
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

    def _outputs(self) -> Outputs:
        n, empty, same_step = self.num_envs, np.empty, self._rules.autoreset == autoreset.SAME_STEP
        planes = self._planes.take()
        numbers = empty(self._numbers_shape, np.float32)
        return Outputs(
            planes,
            self._planes.take() if same_step else planes,
            numbers,
            empty(self._numbers_shape, np.float32) if same_step else numbers,
            empty((n, MAX_ROBOTS), np.uint8),
            empty(n, np.float32),
            empty(n, np.bool_),
            empty(n, np.bool_),
            empty((3, n), np.int32),
            empty((3, n), np.int32),
        )

    def _observations(self, planes: Array, numbers: Array) -> Array:
        if self._pictures is not None:
            return self._pictures.draw()
        if self._rules.observation == SYMBOLIC:
            return numbers
        return planes.reshape(self.num_envs, self.config.planes, self.config.size, self.config.size)

    def _final_observations(self, out: Outputs, over: Array) -> Array:
        if self._pictures is not None:
            return self._pictures.draw_final(out.final_robots, over)
        return self._observations(out.final_planes, out.final_numbers)

    def _info(self, rows: Array) -> dict[str, Any]:
        return lane_info(INFO_NAMES, rows, np.ones(self.num_envs, np.bool_))

    def _check_actions(self, actions: Array) -> Array:
        disabled = self._rules.autoreset == autoreset.DISABLED
        over = self._state.vitals[:, memory_layout.OVER] != 0 if disabled else None
        return check_actions(actions, over, self._was_reset, "board", self.num_envs)

    def _check_puzzles(self, puzzles: Puzzles) -> None:
        own, given = (self.num_envs, self.config.size, self.config.robots), (len(puzzles), puzzles.size, puzzles.count)
        if own != given:
            raise HotloopError(
                f"puzzles are {given[0]} of size {given[1]} with robots {given[2]}: "
                f"give {own[0]} of size {own[1]} with robots {own[2]}"
            )
        check(puzzles)

    def _set_puzzles(self, puzzles: Puzzles, mask: Array) -> None:
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
