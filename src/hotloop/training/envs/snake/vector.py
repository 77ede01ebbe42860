"""Many games of Snake behind Gymnasium's `VectorEnv`.

Everything that a call hands out is fresh: it may be kept, changed, or put into replay without a copy.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from hotloop.errors import HotloopError
from hotloop.training.envs.numba_tools import random_states
from hotloop.training.envs.snake import memory_layout, render
from hotloop.training.envs.snake.config import ACTIONS, CAUSES, FEATURES, GRID, LEVELS, SnakeConfig, build
from hotloop.training.envs.snake.kernels import step_range
from hotloop.training.envs.snake.memory_layout import Outputs, Rules, State
from hotloop.training.envs.snake.state_checks import check_games
from hotloop.training.envs.validate import at_least_one, reset_mask, seeds_of, whole_actions, wrong_action
from hotloop.training.envs.validate import autoreset_mode as asked_mode
from hotloop.training.state_checks import array_of

Array = NDArray[Any]
AUTORESET = {
    AutoresetMode.SAME_STEP: memory_layout.SAME_STEP,
    AutoresetMode.NEXT_STEP: memory_layout.NEXT_STEP,
    AutoresetMode.DISABLED: memory_layout.DISABLED,
}
CAUSE_NAMES = np.array(CAUSES, dtype=object)
RENDER_MODES = ("rgb_array", "ansi")


class SnakeVectorEnv(VectorEnv[Array, Array, Array]):
    """N games of Snake, stepped by one kernel call.

    An episode that ends is begun anew in the same step (`autoreset_mode`). The step's `info` then has `final_obs` and
    `final_info` with the masks `_final_obs` and `_final_info`. `final_obs` [N, ...] is whole: where no episode ended
    it equals the observation, so that `info.get("final_obs", obs)` is the true next observation of every game.

    Args:
        num_envs: N.
        render_mode: "rgb_array", "ansi" or None.
        autoreset_mode: Gymnasium's `AutoresetMode` or its value, "SameStep", "NextStep", "Disabled".
        threads: Over how many threads the games are spread.
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
        self.config: SnakeConfig = build(SnakeConfig, "option", options)
        self.num_envs = at_least_one("num_envs", num_envs)
        self.threads = min(at_least_one("threads", 1 if threads is None else threads), self.num_envs)
        self.autoreset_mode = asked_mode(autoreset_mode)
        if render_mode is not None and render_mode not in RENDER_MODES:
            raise HotloopError(f"render_mode is {render_mode!r}: give one of {', '.join(RENDER_MODES)}, or None")
        self.render_mode = render_mode
        self.metadata = {"render_modes": list(RENDER_MODES), "render_fps": 12, "autoreset_mode": self.autoreset_mode}
        self.single_observation_space = observation_space(self.config)
        self.single_action_space = spaces.Discrete(ACTIONS[self.config.actions])
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._rules = _rules_of(self.config, AUTORESET[self.autoreset_mode])
        self._state = _new_state(self.num_envs, self.config)
        self._features_shape = (self.num_envs, FEATURES[self.config.features])
        self._grid_shape = (self.num_envs, 3 * self.config.cells if self.config.features == "grid" else 0)
        self._begun = False
        self._pool: ThreadPoolExecutor | None = None

    def reset(
        self,
        *,
        seed: int | Sequence[int] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Array, dict[str, Any]]:
        """Begin an episode in every game, or in those of `options={"reset_mask": bool [N]}`.

        Args:
            seed: Game i gets seed + i, or the i-th of a sequence; without one, each game's random numbers go on.
            options: As above.

        Returns:
            Observations [N, ...] and info.
        """
        mask = reset_mask((options or {}).get("reset_mask"), self.num_envs, self._begun, "game")
        if seed is not None or not self._begun:
            seeds = self._seeds(seed)
            self._state.vitals[mask, memory_layout.RANDOM] = random_states(seeds)[mask]
        self._begun = True
        actions = np.where(mask, memory_layout.RESET, memory_layout.HOLD)
        out = self._outputs()
        self._run(self._rules._replace(lowest_action=memory_layout.HOLD), actions, out)
        return self._observations(out.features, out.grid), self._info(out.info)

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Play one action in every game.

        Args:
            actions: Whole numbers [N]. Relative: 0 straight, 1 left, 2 right; absolute: 0 up, 1 right, 2 down, 3 left.

        Returns:
            Observations [N, ...], rewards float32 [N], terminated bool [N], truncated bool [N], info.
        """
        actions = self._checked(actions)
        out = self._outputs()
        ended = self._run(self._rules, actions, out)
        if ended < 0:
            raise wrong_action(actions, self._rules.actions - 1, "game")
        info = self._info(out.info)
        if ended:
            over = out.terminated | out.truncated
            if self.autoreset_mode is AutoresetMode.SAME_STEP:
                info["final_obs"], info["_final_obs"] = self._observations(out.final_features, out.final_grid), over
                info["final_info"], info["_final_info"] = _final_info(out.final_info, over), over
            else:
                info["cause"], info["_cause"] = CAUSE_NAMES[out.info[memory_layout.CAUSE_ROW]], over
        return self._observations(out.features, out.grid), out.reward, out.terminated, out.truncated, info

    def get_state(self) -> dict[str, Array]:
        """Return a copy of all games, from which `set_state` goes on with exactly the same results."""
        return {name: array.copy() for name, array in self._state._asdict().items()}

    def set_state(self, state: dict[str, Array]) -> None:
        """Go on from what `get_state` returned. It must come from as many games on a board of this size."""
        remedy = "restore it with the num_envs and board that it was saved with"
        given = State(*(array_of(state, name, own, remedy=remedy) for name, own in self._state._asdict().items()))
        check_games(given, self.config.board)
        for own, new in zip(self._state, given, strict=True):
            own[...] = new
        self._begun = True

    def render(self) -> tuple[Any, ...] | None:
        """Return a picture of each game: uint8 [H, W, 3] or text, as `render_mode` says."""
        if self.render_mode is None:
            return None
        show = render.draw if self.render_mode == "rgb_array" else render.write
        return tuple(show(self.picture(i)) for i in range(self.num_envs))

    def picture(self, i: int) -> render.Picture:
        """Return what there is to draw of game i."""
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
        """End the threads, if there are any."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def _run(self, rules: Rules, actions: Array, out: Outputs) -> int:
        if self.threads == 1:
            return step_range(rules, self._state, actions, out, 0, self.num_envs)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.threads - 1, thread_name_prefix="hotloop-snake")
        bounds = [self.num_envs * k // self.threads for k in range(self.threads + 1)]
        others = [
            self._pool.submit(step_range, rules, self._state, actions, out, first, last)
            for first, last in itertools.pairwise(bounds[1:])
        ]
        ended = step_range(rules, self._state, actions, out, 0, bounds[1])
        # Each of them looks at all actions, so either all say -1 or none does.
        return ended + sum(other.result() for other in others)

    def _outputs(self) -> Outputs:
        n, empty, same_step = self.num_envs, np.empty, self._rules.autoreset == memory_layout.SAME_STEP
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

    def _info(self, told: Array) -> dict[str, Any]:
        score, length, steps, _ = told
        known = np.ones(self.num_envs, np.bool_)
        return {"score": score, "length": length, "steps": steps, "_score": known, "_length": known, "_steps": known}

    def _checked(self, actions: Array) -> Array:
        disabled = self._rules.autoreset == memory_layout.DISABLED
        over = self._state.vitals[:, memory_layout.OVER] != 0 if disabled else None
        return whole_actions(actions, over, self._begun, "game", self.num_envs)

    def _seeds(self, seed: int | Sequence[int] | None) -> Sequence[int]:
        if seed is None:
            return [int(each) for each in self.np_random.integers(0, 1 << 62, self.num_envs)]
        if isinstance(seed, int | np.integer):
            super().reset(seed=int(seed))
        return seeds_of(seed, self.num_envs, "game")


def observation_space(config: SnakeConfig) -> spaces.Box:
    """What one agent sees."""
    if config.features == "grid":
        return spaces.Box(0, 1, (config.board, config.board, 3), np.uint8)
    return spaces.Box(0.0, 1.0, (FEATURES[config.features],), np.float32)


def _final_info(told: Array, over: Array) -> dict[str, Any]:
    score, length, steps, cause = told
    return {
        "score": score, "length": length, "steps": steps, "cause": CAUSE_NAMES.take(cause),
        "_score": over, "_length": over, "_steps": over, "_cause": over,
    }  # fmt: skip


def _rules_of(config: SnakeConfig, autoreset: int) -> Rules:
    rewards = config.rewards
    return Rules(
        board=config.board,
        level=LEVELS[config.features],
        actions=ACTIONS[config.actions],
        max_steps=config.max_steps,
        tail_free=config.tail_free,
        lowest_action=0,
        autoreset=autoreset,
        food=float(rewards.food),
        death=float(rewards.death),
        step=float(rewards.step),
        shaping=float(rewards.shaping),
        timeout=float(rewards.timeout),
    )


def _new_state(num_envs: int, config: SnakeConfig) -> State:
    return State(
        vitals=np.zeros((num_envs, 7), np.int64),
        rows=np.zeros((num_envs, config.board), np.uint64),
        body=np.zeros((num_envs, config.cells), np.int16),
    )
