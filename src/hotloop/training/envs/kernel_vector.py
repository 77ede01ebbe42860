"""The environments that a compiled kernel steps, many at once or one: what Snake and Ricochet share."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, NamedTuple, TypeVar

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from hotloop.training.array_pool import ArrayPool
from hotloop.training.envs import autoreset
from hotloop.training.envs.gym_types import Flags, Frame, Info, LaneValues, Observations, StepResult
from hotloop.training.envs.numba_tools import random_states
from hotloop.training.envs.validate import (
    at_least_one,
    check_actions,
    check_render_mode,
    check_reset_mask,
    seeds_per_env,
)
from hotloop.training.state_checks import array_of, require_values

Result = TypeVar("Result")
RENDER_MODES = ("rgb_array", "ansi")


class LaneThreads:
    """Splits N environments evenly over threads, of which the calling thread is the first."""

    def __init__(self, num_envs: int, threads: int, name: str) -> None:
        bounds = [num_envs * k // threads for k in range(threads + 1)]
        self._ranges = list(itertools.pairwise(bounds))
        self._name = name
        self._pool: ThreadPoolExecutor | None = None

    def run(self, work: Callable[[int, int, int], Result]) -> list[Result]:
        """Call work(k, first, last) in each thread k for its environments; return the results by thread."""
        if len(self._ranges) == 1:
            return [work(0, *self._ranges[0])]
        if self._pool is None:
            self._pool = ThreadPoolExecutor(len(self._ranges) - 1, thread_name_prefix=self._name)
        others = [self._pool.submit(work, k, *self._ranges[k]) for k in range(1, len(self._ranges))]
        return [work(0, *self._ranges[0]), *(other.result() for other in others)]

    def close(self) -> None:
        """Stop the threads. A later `run` starts new ones."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


class Outputs(NamedTuple):
    """Results of one step. The planes, the numbers or both have no columns."""

    planes: NDArray[np.uint8]
    """[N, P]: the observation, after the reset if the episode ended in this step."""
    final_planes: NDArray[np.uint8]
    """[N, P]: the observation before that reset; the same array unless resets happen in the same step."""
    numbers: NDArray[np.float32]
    """[N, F]"""
    final_numbers: NDArray[np.float32]
    """[N, F]"""
    reward: NDArray[np.float32]
    terminated: Flags
    truncated: Flags
    info: NDArray[np.int32]
    """One row [N] for each of `info_names`, then the code of the cause; after the reset, like observations."""
    final_info: NDArray[np.int32]
    """The same before the reset."""


class KernelVectorEnv(VectorEnv[Observations, NDArray[np.int64], LaneValues]):
    """N games stepped by one kernel call. A subclass provides the game: `_run`, `_drawer`, `_check_restored`.

    By default a game whose episode ends is reset in the same step (`autoreset_mode`). The step's `info` then has
    `final_obs` and `final_info` with the masks `_final_obs` and `_final_info`. `final_obs` [N, ...] has a row for every
    game: where no episode ended it equals the observation, so `info.get("final_obs", obs)` is the true next observation
    of every game. The caller may keep every array returned, change it, or store it in a replay buffer without a copy.

    Attributes:
        game: Name of the game.
        each: What messages call one lane.
        fps: Frames per second of a rendered episode.
        info_names: Entries of an info, in the order of the rows of `Outputs.info`.
        cause_names: Why an episode ended, by the kernel's code, objects.
        bounds: Columns of `vitals`, and their smallest and largest value in any game.
        over_column: Column of `vitals` that tells whether an episode has ended.
        random_column: Column of `vitals` with the random state.
    """

    game: ClassVar[str]
    each: ClassVar[str]
    fps: ClassVar[int]
    info_names: ClassVar[tuple[str, ...]]
    cause_names: ClassVar[NDArray[np.object_]]
    bounds: dict[str, tuple[int, int, int]]
    over_column: ClassVar[int]
    random_column: ClassVar[int]

    _vitals: NDArray[np.int64]
    """A row of integers for each game."""
    _saved: dict[str, np.ndarray]
    """The arrays that make up the state, by name."""

    def __init__(
        self,
        num_envs: int,
        spaces_of_one: tuple[spaces.Box, spaces.Discrete],
        render_mode: str | None,
        autoreset_mode: AutoresetMode | str,
        threads: int | None,
    ) -> None:
        self.num_envs = at_least_one("num_envs", num_envs)
        self.threads = min(at_least_one("threads", 1 if threads is None else threads), self.num_envs)
        self.autoreset_mode = autoreset.parse_autoreset_mode(autoreset_mode)
        check_render_mode(render_mode, RENDER_MODES)
        self.render_mode = render_mode
        self.metadata = {
            "render_modes": list(RENDER_MODES),
            "render_fps": self.fps,
            "autoreset_mode": self.autoreset_mode,
        }
        self.single_observation_space, self.single_action_space = spaces_of_one
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._shape = shape = spaces_of_one[0].shape
        real = spaces_of_one[0].dtype == np.float32
        self._planes = ArrayPool((self.num_envs, 0 if real else math.prod(shape)), np.uint8)
        self._numbers_shape = (self.num_envs, math.prod(shape) if real else 0)
        self._same_step = self.autoreset_mode is AutoresetMode.SAME_STEP
        self._disabled = self.autoreset_mode is AutoresetMode.DISABLED
        self._was_reset = False
        self._threads = LaneThreads(self.num_envs, self.threads, f"hotloop-{self.game}")

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: Info | None = None
    ) -> tuple[Observations, Info]:
        """Start an episode in every game, or only where `options={"reset_mask": bool [N]}` is true.

        Game i gets seed + i, or the i-th of a sequence; without a seed, each game's random stream continues.
        """
        return self._start_episodes(self._seed_games(seed, options), autoreset.RESET)

    def step(self, actions: NDArray[np.integer]) -> StepResult:
        """Play one action, a whole number, in every game [N].

        Returns observations [N, ...], rewards float32 [N], terminated bool [N], truncated bool [N], info.
        """
        over = self._vitals[:, self.over_column] != 0 if self._disabled else None
        checked = check_actions(actions, over, self._was_reset, self.each, self.num_envs)
        out = self._outputs()
        ended = self._run(checked, out)
        info = self._info(out)
        if ended:
            over = out.terminated | out.truncated
            if self._same_step:
                *values, cause = out.final_info
                rows = (*values, self.cause_names.take(cause))
                info["final_obs"], info["_final_obs"] = self._final_observations(out, over), over
                info["final_info"], info["_final_info"] = lane_info((*self.info_names, "cause"), rows, over), over
            else:
                info["cause"], info["_cause"] = self.cause_names[out.info[-1]], over
        return self._observations(out), out.reward, out.terminated, out.truncated, info

    def get_state(self) -> dict[str, np.ndarray]:
        """Return a copy of all games. After `set_state` with it, they continue with exactly the same results."""
        return {name: array.copy() for name, array in self._saved.items()}

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Continue from a state that `get_state` returned for the same number and size of games."""
        remedy = "restore it with the num_envs and board size that it was saved with"
        restored = {name: array_of(state, name, own, remedy=remedy) for name, own in self._saved.items()}
        for name, (column, low, high) in self.bounds.items():
            require_values(restored["vitals"][:, column], f"vitals.{name}", low, high)
        self._check_restored(restored)
        for name, own in self._saved.items():
            own[...] = restored[name]
        self._was_reset = True

    def render(self) -> tuple[Frame, ...] | None:
        """Return a picture of each game, uint8 [H, W, 3] or text depending on `render_mode`."""
        if self.render_mode is None:
            return None
        return tuple(map(self._drawer(as_text=self.render_mode == "ansi"), range(self.num_envs)))

    def close_extras(self, **kwargs: Any) -> None:
        """Stop the threads."""
        self._threads.close()

    def _seed_games(self, seed: int | Sequence[int] | None, options: Info | None) -> Flags:
        """Return the games to reset, after giving them their random states if there is a seed or none has one yet."""
        mask = check_reset_mask((options or {}).get("reset_mask"), self.num_envs, self._was_reset, self.each)
        if seed is not None or not self._was_reset:
            self._vitals[mask, self.random_column] = random_states(self._seeds(seed))[mask]
        return mask

    def _seeds(self, seed: int | Sequence[int] | None) -> Sequence[int]:
        """Return a seed for each game. An integer also seeds this object's generator, which draws them if None."""
        if seed is None:
            return [int(drawn) for drawn in self.np_random.integers(0, 1 << 62, self.num_envs)]
        if isinstance(seed, int | np.integer):
            VectorEnv.reset(self, seed=int(seed))
        return seeds_per_env(seed, self.num_envs, self.each)

    def _start_episodes(self, mask: Flags, action: int) -> tuple[Observations, Info]:
        """Apply an action that starts an episode where `mask` is true, and observe all games."""
        self._was_reset = True
        out = self._outputs()
        self._run(np.where(mask, action, autoreset.HOLD), out, resetting=True)
        return self._observations(out), self._info(out)

    def _info(self, out: Outputs) -> Info:
        return lane_info(self.info_names, out.info, np.ones(self.num_envs, np.bool_))

    def _outputs(self) -> Outputs:
        """Allocate the results of a step."""
        n, shape, empty = self.num_envs, self._numbers_shape, np.empty
        planes, numbers, rows = self._planes.take(), empty(shape, np.float32), len(self.info_names) + 1
        return Outputs(
            planes,
            self._planes.take() if self._same_step else planes,
            numbers,
            empty(shape, np.float32) if self._same_step else numbers,
            empty(n, np.float32),
            empty(n, np.bool_),
            empty(n, np.bool_),
            empty((rows, n), np.int32),
            empty((rows, n), np.int32),
        )

    def _observations(self, out: Outputs) -> Observations:
        """Return the observations after the step."""
        return self._shaped(out.planes, out.numbers)

    def _final_observations(self, out: Outputs, over: Flags) -> Observations | NDArray[np.object_]:
        """Return the observations before games where `over` is true were reset."""
        return self._shaped(out.final_planes, out.final_numbers)

    def _shaped(self, planes: NDArray[np.uint8], numbers: NDArray[np.float32]) -> Observations:
        return numbers if self._numbers_shape[1] else planes.reshape(self.num_envs, *self._shape)

    def _run(self, actions: NDArray[np.int64], out: Outputs, resetting: bool = False) -> int:
        """Step all games; return how many episodes ended. Only if `resetting`, actions of `autoreset` are valid."""
        raise NotImplementedError

    def _drawer(self, as_text: bool) -> Callable[[int], Frame]:
        """Return a function that draws game i."""
        raise NotImplementedError

    def _check_restored(self, restored: dict[str, np.ndarray]) -> None:
        """Reject arrays, of the right shapes and types, that are not a possible state."""
        raise NotImplementedError


class SingleEnv(gymnasium.Env[Observations, int]):
    """The only lane of a vector environment, which has autoreset disabled."""

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


def lane_info(names: Sequence[str], rows: Sequence[np.ndarray] | np.ndarray, mask: Flags) -> Info:
    """Return a Gymnasium vector info: for each name its row [N], and under `_name` the mask of valid ones, bool [N].

    Further rows are ignored.
    """
    info: Info = dict(zip(names, rows, strict=False))
    for name in names:
        info["_" + name] = mask
    return info
