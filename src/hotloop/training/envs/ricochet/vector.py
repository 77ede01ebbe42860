"""Many boards of Ricochet Robots behind Gymnasium's `VectorEnv`.

Everything that a call hands out is fresh: it may be kept, changed, or put into replay without a copy.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from hotloop.errors import HotloopError
from hotloop.training.array_pool import Shelf
from hotloop.training.envs.numba_tools import random_states
from hotloop.training.envs.ricochet import memory_layout, render
from hotloop.training.envs.ricochet.config import (
    CAUSES,
    LEVELS,
    MOST_ROBOTS,
    OBSERVATIONS,
    PICTURE,
    RGB,
    STOPS,
    SYMBOLIC,
    UNKNOWN,
    RicochetConfig,
    build,
)
from hotloop.training.envs.ricochet.kernels import restore, step_range
from hotloop.training.envs.ricochet.memory_layout import CELLS, Boards, Outputs, Rules, State
from hotloop.training.envs.ricochet.puzzle import Puzzles, check
from hotloop.training.envs.ricochet.rgb_observation import Pictures
from hotloop.training.envs.ricochet.solver import MOST_MOVES, new_search
from hotloop.training.envs.validate import at_least_one, reset_mask, seeds_of, whole_actions, wrong_action
from hotloop.training.envs.validate import autoreset_mode as asked_mode
from hotloop.training.state_checks import array_of, require_values

Array = NDArray[Any]
AUTORESET = {
    AutoresetMode.SAME_STEP: memory_layout.SAME_STEP,
    AutoresetMode.NEXT_STEP: memory_layout.NEXT_STEP,
    AutoresetMode.DISABLED: memory_layout.DISABLED,
}
CAUSE_NAMES = np.array(CAUSES, dtype=object)
RENDER_MODES = ("rgb_array", "ansi")
SAVED = ("vitals", "robots", "walls")
"""What `get_state` returns; the rest follows from it."""
BOUNDS = {
    "steps": (memory_layout.STEPS, 0, (1 << 31) - 1),
    "over": (memory_layout.OVER, 0, 1),
    "goal": (memory_layout.GOAL, 0, CELLS - 1),
    "target": (memory_layout.TARGET, 0, MOST_ROBOTS - 1),
    "optimal": (memory_layout.OPTIMAL, UNKNOWN, MOST_MOVES),
    "moved": (memory_layout.MOVED, UNKNOWN, MOST_ROBOTS),
}  # fmt: skip
"""Columns of `State.vitals`, and what they may hold before a board is looked at."""


class RicochetVectorEnv(VectorEnv[Array, Array, Array]):
    """N boards of Ricochet Robots, stepped by one kernel call.

    An episode that ends is begun anew on another board in the same step (`autoreset_mode`). The step's `info` then has
    `final_obs` and `final_info` with the masks `_final_obs` and `_final_info`. `final_obs` [N, ...] is whole: where no
    episode ended it equals the observation, so that `info.get("final_obs", obs)` is the true next observation of every
    board. Pictures are the exception: there it is, as Gymnasium has it, an array of N objects, None where no episode
    ended, as a second copy of all pictures would take as long as the step itself.

    Args:
        num_envs: N.
        render_mode: "rgb_array", "ansi" or None.
        autoreset_mode: Gymnasium's `AutoresetMode` or its value, "SameStep", "NextStep", "Disabled".
        threads: Over how many threads the boards are spread.
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
        self.config: RicochetConfig = build(RicochetConfig, "option", options)
        self.num_envs = at_least_one("num_envs", num_envs)
        self.threads = min(at_least_one("threads", threads or 1), self.num_envs)
        self.autoreset_mode = asked_mode(autoreset_mode)
        if render_mode is not None and render_mode not in RENDER_MODES:
            raise HotloopError(f"render_mode is {render_mode!r}: give one of {', '.join(RENDER_MODES)}, or None")
        self.render_mode = render_mode
        self.metadata = {"render_modes": list(RENDER_MODES), "render_fps": 4, "autoreset_mode": self.autoreset_mode}
        self.single_observation_space = observation_space(self.config)
        self.single_action_space = spaces.Discrete(self.config.actions)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._rules = _rules_of(self.config, AUTORESET[self.autoreset_mode])
        self._bounds = [self.num_envs * k // self.threads for k in range(self.threads + 1)]
        self._state = _new_state(self.num_envs, self.config)
        self._boards = _boards_of(self.config)
        self._searches = [new_search() for _ in range(self.threads)]
        seen = self._rules.observation
        self._planes = Shelf(self._state.layer.shape, np.uint8)
        self._numbers_shape = (self.num_envs, self.config.numbers if seen == SYMBOLIC else 0)
        self._pictures = Pictures(self._state, self.config, self._spread) if seen == RGB else None
        self._begun = False
        self._pool: ThreadPoolExecutor | None = None

    def reset(
        self,
        *,
        seed: int | Sequence[int] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Array, dict[str, Any]]:
        """Begin an episode on a new board everywhere, or on the boards of `options={"reset_mask": bool [N]}`.

        Args:
            seed: Board i gets seed + i, or the i-th of a sequence; without one, each board's random numbers go on.
            options: As above; `puzzles`, a `Puzzles` of N boards, is played instead of new ones.

        Returns:
            Observations [N, ...] and info.
        """
        mask = reset_mask((options or {}).get("reset_mask"), self.num_envs, self._begun, "board")
        puzzles = (options or {}).get("puzzles")
        if puzzles is not None:
            puzzles = self._checked_puzzles(puzzles)
        if seed is not None or not self._begun:
            seeds = self._seeds(seed)
            self._state.vitals[mask, memory_layout.RANDOM] = random_states(seeds)[mask]
        if puzzles is not None:
            self._put_down(puzzles, mask)
        self._begun = True
        actions = np.where(mask, memory_layout.RESET if puzzles is None else memory_layout.AGAIN, memory_layout.HOLD)
        out = self._outputs()
        self._run(self._rules._replace(lowest_action=memory_layout.AGAIN), actions, out)
        return self._observations(out.planes, out.numbers), self._info(out.info)

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Play one action on every board.

        Args:
            actions: Whole numbers [N]: robot · 4 + direction, up, right, down, left; with `noop` one more.

        Returns:
            Observations [N, ...], rewards float32 [N], terminated bool [N], truncated bool [N], info.
        """
        actions = self._checked(actions)
        out = self._outputs()
        ended = self._run(self._rules, actions, out)
        info = self._info(out.info)
        if ended:
            over = out.terminated | out.truncated
            if self.autoreset_mode is AutoresetMode.SAME_STEP:
                info["final_obs"], info["_final_obs"] = self._final_observations(out, over), over
                info["final_info"], info["_final_info"] = _final_info(out.final_info, over), over
            else:
                info["cause"], info["_cause"] = CAUSE_NAMES[out.info[memory_layout.CAUSE_ROW]], over
        return self._observations(out.planes, out.numbers), out.reward, out.terminated, out.truncated, info

    def get_state(self) -> dict[str, Array]:
        """Return a copy of all games, from which `set_state` goes on with exactly the same results."""
        return {name: getattr(self._state, name).copy() for name in SAVED}

    def set_state(self, state: dict[str, Array]) -> None:
        """Go on from what `get_state` returned. It must come from as many boards of this size."""
        remedy = "restore it with the num_envs that it was saved with"
        given = {name: array_of(state, name, getattr(self._state, name), remedy=remedy) for name in SAVED}
        for name, (column, low, high) in BOUNDS.items():
            require_values(given["vitals"][:, column], f"vitals.{name}", low, high)
        puzzles = Puzzles.of_state(self._state._replace(**given), self.config.size, self.config.robots)
        check(puzzles, begins=False)
        for name, array in given.items():
            getattr(self._state, name)[...] = array
        restore(self._rules, self._state)
        self._begun = True

    def puzzles(self) -> Puzzles:
        """Return all boards, with the robots where they are now."""
        return Puzzles.of_state(self._state, self.config.size, self.config.robots)

    def render(self) -> tuple[Any, ...] | None:
        """Return a picture of each board: uint8 [H, W, 3] or text, as `render_mode` says."""
        if self.render_mode is None:
            return None
        show, puzzles = render.draw if self.render_mode == "rgb_array" else render.write, self.puzzles()
        return tuple(show(puzzles, i) for i in range(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        """End the threads, if there are any."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def _spread(self, work: Callable[[int, int, int], Any]) -> list[Any]:
        """Do work(k, first, last) in thread k, for all boards; return what each returned."""
        parts = list(enumerate(itertools.pairwise(self._bounds)))
        if self.threads == 1:
            return [work(0, 0, self.num_envs)]
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.threads - 1, thread_name_prefix="hotloop-ricochet")
        others = [self._pool.submit(work, k, first, last) for k, (first, last) in parts[1:]]
        return [work(0, *self._bounds[:2]), *(other.result() for other in others)]

    def _run(self, rules: Rules, actions: Array, out: Outputs) -> int:
        state, boards, searches = self._state, self._boards, self._searches
        told = self._spread(
            lambda k, first, last: step_range(rules, state, (boards, searches[k]), actions, out, (first, last))
        )
        if memory_layout.WRONG_ACTION in told:
            raise wrong_action(actions, self._rules.actions - 1, "board")
        if memory_layout.NO_BOARD in told:
            raise HotloopError(
                f"no board of level {self.config.level} was found in {memory_layout.MOST_TRIES:,} of size "
                f"{self.config.size} with robots {self.config.robots}: give another level, a larger size or a bank"
            )
        return sum(told)

    def _outputs(self) -> Outputs:
        n, empty, same_step = self.num_envs, np.empty, self._rules.autoreset == memory_layout.SAME_STEP
        planes = self._planes.take()
        numbers = empty(self._numbers_shape, np.float32)
        return Outputs(
            planes,
            self._planes.take() if same_step else planes,
            numbers,
            empty(self._numbers_shape, np.float32) if same_step else numbers,
            empty((n, MOST_ROBOTS), np.uint8),
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

    def _info(self, told: Array) -> dict[str, Any]:
        steps, optimal, _ = told
        known = np.ones(self.num_envs, np.bool_)
        return {"steps": steps, "optimal": optimal, "_steps": known, "_optimal": known}

    def _checked(self, actions: Array) -> Array:
        disabled = self._rules.autoreset == memory_layout.DISABLED
        over = self._state.vitals[:, memory_layout.OVER] != 0 if disabled else None
        return whole_actions(actions, over, self._begun, "board", self.num_envs)

    def _checked_puzzles(self, puzzles: Puzzles) -> Puzzles:
        own, given = (self.num_envs, self.config.size, self.config.robots), (len(puzzles), puzzles.size, puzzles.count)
        if own != given:
            raise HotloopError(
                f"puzzles are {given[0]} of size {given[1]} with robots {given[2]}: "
                f"give {own[0]} of size {own[1]} with robots {own[2]}"
            )
        return check(puzzles)

    def _put_down(self, puzzles: Puzzles, mask: Array) -> None:
        state, given = self._state, puzzles.state()
        state.walls[mask], state.robots[mask] = given.walls[mask], given.robots[mask]
        for column in (memory_layout.GOAL, memory_layout.TARGET, memory_layout.OPTIMAL, memory_layout.MOVED):
            state.vitals[mask, column] = given.vitals[mask, column]

    def _seeds(self, seed: int | Sequence[int] | None) -> Sequence[int]:
        if seed is None:
            return [int(each) for each in self.np_random.integers(0, 1 << 62, self.num_envs)]
        if isinstance(seed, int | np.integer):
            super().reset(seed=int(seed))
        return seeds_of(seed, self.num_envs, "board")


def observation_space(config: RicochetConfig) -> spaces.Box:
    """What one agent sees."""
    if config.observation == "rgb":
        return spaces.Box(0, 255, (PICTURE, PICTURE, 3), np.uint8)
    if config.observation == "symbolic":
        return spaces.Box(0.0, 1.0, (config.numbers,), np.float32)
    return spaces.Box(0, 1, (config.planes, config.size, config.size), np.uint8)


def _final_info(told: Array, over: Array) -> dict[str, Any]:
    steps, optimal, cause = told
    return {
        "steps": steps, "optimal": optimal, "cause": CAUSE_NAMES.take(cause),
        "_steps": over, "_optimal": over, "_cause": over,
    }  # fmt: skip


def _rules_of(config: RicochetConfig, autoreset: int) -> Rules:
    level = (0, 0, 0, 0) if config.level is None else LEVELS[config.level]
    return Rules(
        config.size,
        config.robots,
        OBSERVATIONS.index(config.observation),
        config.structures,
        config.actions,
        config.max_steps,
        autoreset,
        0,
        *level,
        float(config.rewards.step),
        float(config.rewards.solved),
    )


def _boards_of(config: RicochetConfig) -> Boards:
    if config.bank is None:
        return Boards(np.zeros((0, CELLS), np.uint8), np.zeros((0, MOST_ROBOTS), np.uint8), np.zeros((0, 4), np.int64))
    from hotloop.training.envs.ricochet.puzzle_bank import load  # Only who has a bank pays for pyarrow.

    bank = load(config.bank)
    made, asked = (bank.puzzles.size, bank.puzzles.count), (config.size, config.robots)
    if made != asked:
        raise HotloopError(
            f"the bank {config.bank} has boards of size {made[0]} with robots {made[1]}, and size {asked[0]} with "
            f"robots {asked[1]} is asked for: give size={made[0]}, robots={made[1]} or another bank"
        )
    state = bank.take(config.level, config.held_out).state()
    columns = [memory_layout.GOAL, memory_layout.TARGET, memory_layout.OPTIMAL, memory_layout.MOVED]
    return Boards(state.walls, state.robots, np.ascontiguousarray(state.vitals[:, columns]))


def _new_state(num_envs: int, config: RicochetConfig) -> State:
    planes = OBSERVATIONS.index(config.observation) <= STOPS
    return State(
        vitals=np.zeros((num_envs, 7), np.int64),
        robots=np.zeros((num_envs, MOST_ROBOTS), np.uint8),
        walls=np.zeros((num_envs, CELLS), np.uint8),
        stops=np.zeros((num_envs, 4 * CELLS), np.uint8),
        layer=np.zeros((num_envs, config.planes * config.size**2 if planes else 0), np.uint8),
        begun=np.zeros(num_envs, np.bool_),
    )
