"""Many cars behind Gymnasium's `VectorEnv`, in worker processes or in this one.

Box2D's binding holds Python's lock in every call, so threads would take turns; processes do not.
Everything that a call hands out is fresh: it may be kept, changed, or put into replay without a copy.
"""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from hotloop.errors import HotloopError
from hotloop.phases import Phase
from hotloop.spans import span
from hotloop.training.envs.carracing.config import build
from hotloop.training.envs.carracing.env import RENDER_MODES, action_space, check_render_mode, observation_space
from hotloop.training.envs.carracing.env_batch import FRAMES_ROW, LAP_ROW, NO_LAP, TILES_ROW, Board, Group, board_fields
from hotloop.training.envs.carracing.workers import STEP, Worker, WorkerDied
from hotloop.training.envs.validate import at_least_one, reset_mask, seeds_of
from hotloop.training.envs.validate import autoreset_mode as asked_mode
from hotloop.training.shared_memory import allocate

Array = NDArray[Any]
Played = tuple[Array, Array, Array, Array, dict[str, Any]]


class CarRacingVectorEnv(VectorEnv[Array, Array, Array]):
    """N cars, each on a track of its own.

    An episode that ends is begun anew in the same step (`autoreset_mode`). The step's `info` then has `final_obs` and
    `final_info` with the masks `_final_obs` and `_final_info`. `final_obs` [N, ...] is whole: where no episode ended
    it equals the observation, so that `info.get("final_obs", obs)` is the true next observation of every car.

    `step` is `send` and then `receive`. With worker processes, other work can be done in between.

    A worker that dies is replaced, with a warning: its cars' episodes are truncated where they were.

    Args:
        num_envs: N.
        render_mode: "rgb_array" or None; with it the cars are in this process.
        autoreset_mode: Gymnasium's `AutoresetMode` or its value, "SameStep", "NextStep", "Disabled".
        workers: Processes over which the cars are spread; 0: none, they are stepped here. Without a number, one for
            each core, but not more than cars; 0 for a single car.
        recorded: Whether workers record themselves into the run of this process, if there is one.
        options: The fields of `CarRacingConfig`.
    """

    def __init__(
        self,
        num_envs: int = 8,
        *,
        render_mode: str | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        workers: int | None = None,
        recorded: bool = False,
        **options: Any,
    ) -> None:
        self.config = build(options)
        self.num_envs = at_least_one("num_envs", num_envs)
        self.autoreset_mode = asked_mode(autoreset_mode)
        check_render_mode(render_mode)
        self.render_mode = render_mode
        self.metadata = {"render_modes": list(RENDER_MODES), "render_fps": 50, "autoreset_mode": self.autoreset_mode}
        self.single_observation_space = observation_space(self.config)
        self.single_action_space = action_space(self.config)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.workers = _workers(workers, self.num_envs, render_mode)
        self._over = np.zeros(self.num_envs, np.bool_)
        self._begun = self._stepping = False
        self._last: Array | None = None
        self._group: Group | None = None
        self._workers: list[Worker] = []
        self._waiting = span("env.wait", Phase.WAIT)
        self._block = allocate(board_fields(self.config, self.num_envs), "shared" if self.workers else "memory")
        self._board = Board(**self._block.arrays)
        if self.workers:
            self._start(options, recorded)
        else:
            self._group = Group(options, self._board, 0, self.num_envs, self.autoreset_mode, render_mode)

    def reset(
        self,
        *,
        seed: int | Sequence[int] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Array, dict[str, Any]]:
        """Begin an episode of every car, or of those of `options={"reset_mask": bool [N]}`.

        Args:
            seed: Car i gets seed + i, or the i-th of a sequence; without one, each car's random numbers go on.
            options: As above, and `randomize` as in Gymnasium's own environment.

        Returns:
            Observations [N, ...] and info.
        """
        own = dict(options or {})
        mask = reset_mask(own.pop("reset_mask", None), self.num_envs, self._begun, "car")
        if self._stepping:
            self.receive()
        self._reset(self._seeds(seed), mask.tolist(), own or None)
        self._begun = True
        self._over &= ~mask
        self._last = self._board.observations.copy()
        return self._last, _info(self._board.info)

    def step(self, actions: Array) -> Played:
        """Drive every car; see `CarRacingEnv.step`.

        Args:
            actions: float [N, 3] or [N, 2], or whole numbers [N], as `action_form` says.

        Returns:
            Observations [N, ...], rewards float32 [N], terminated bool [N], truncated bool [N], info.
        """
        self.send(actions)
        return self.receive()

    def send(self, actions: Array) -> None:
        """Begin a step. Without workers it is done here and now."""
        self._board.actions[:] = self._checked(actions)
        self._stepping = True
        if self._group is not None:
            self._group.step()
        for worker in self._workers:
            worker.send(STEP)

    def receive(self) -> Played:
        """Wait for the step that was begun, and return what `step` does."""
        if not self._stepping:
            raise HotloopError("receive was called without send: call send with actions first")
        self._stepping = False
        for k, worker in enumerate(self._workers):
            try:
                with self._waiting:
                    worker.receive()
            except WorkerDied as death:
                self._replace(k, death)
        board = self._board
        seen, over = board.observations.copy(), board.terminated | board.truncated
        self._over, self._last = over, seen
        info = _info(board.info)
        if over.any():
            if self.autoreset_mode is AutoresetMode.SAME_STEP:
                info["final_obs"], info["_final_obs"] = board.final_observations.copy(), over
                info["final_info"], info["_final_info"] = _info(board.final_info, over), over
            else:
                info |= _lap(board.info[LAP_ROW], over)
        return seen, board.rewards.copy(), board.terminated.copy(), board.truncated.copy(), info

    def render(self) -> tuple[Any, ...] | None:
        """Return Gymnasium's own picture of each car, uint8 [400, 600, 3]."""
        return None if self._group is None else tuple(car.render() for car in self._group.cars)

    def close_extras(self, **kwargs: Any) -> None:
        """End the processes and give back the shared memory."""
        for worker in self._workers:
            worker.close()
        self._workers = []
        if self._group is not None:
            self._group.close()
        self._block.close()
        # Without its arrays the memory is given back now, though somebody may keep this environment.
        self._block.arrays.clear()
        self._board, self._begun = Board(*[np.empty(0)] * len(Board._fields)), False

    def _start(self, options: dict[str, Any], recorded: bool) -> None:
        bounds = [self.num_envs * k // self.workers for k in range(self.workers + 1)]
        shared = {
            "options": options, "path": str(self._block.path), "count": self.num_envs,
            "autoreset": self.autoreset_mode.value, "render_mode": None,
        }  # fmt: skip
        try:
            for first, last in itertools.pairwise(bounds):
                self._workers.append(Worker(shared | {"first": first, "last": last}, recorded))
            for worker in self._workers:
                worker.receive()
        except HotloopError:
            self.close_extras()
            raise

    def _replace(self, k: int, death: WorkerDied) -> None:
        """Put a new worker in the place of one that died. What it left on the board may be half a step."""
        warnings.warn(f"{death}: it is replaced, and its episodes are truncated", RuntimeWarning, stacklevel=4)
        old, board, last = self._workers[k], self._board, self._last
        assert last is not None
        old.close()
        own = slice(old.part["first"], old.part["last"])
        cars = old.part["last"] - old.part["first"]
        board.final_observations[own], board.final_info[:, own] = last[own], board.info[:, own]
        self._workers[k] = new = Worker(old.part, old.recorded)
        new.receive()
        new.reset([int(each) for each in self.np_random.integers(0, 1 << 31, cars)], [True] * cars, None)
        new.receive()
        board.truncated[own] = True

    def _reset(self, seeds: Sequence[int | None], mask: list[bool], options: dict[str, Any] | None) -> None:
        if self._group is not None:
            self._group.reset(seeds, mask, options)
        for worker in self._workers:
            own = slice(worker.part["first"], worker.part["last"])
            worker.reset(list(seeds[own]), mask[own], options)
        for worker in self._workers:
            worker.receive()

    def _checked(self, actions: Array) -> Array:
        actions = np.asarray(actions)
        wanted, discrete = self.action_space.shape, isinstance(self.single_action_space, spaces.Discrete)
        right_kind = actions.dtype.kind in ("iu" if discrete else "fiu")
        if actions.shape != wanted or not right_kind:
            kind = "whole numbers" if discrete else "numbers"
            raise HotloopError(f"actions are {actions.dtype} {actions.shape}: give {kind} of shape {wanted}")
        wrong = (actions < 0) | (actions > 4) if discrete else ~np.isfinite(actions).all(axis=1)
        if wrong.any():
            which = int(wrong.argmax())
            asked = "a whole number from 0 to 4" if discrete else "finite numbers"
            raise HotloopError(f"action of car {which} is {actions[which]}: give {asked}")
        if not self._begun or self._stepping:
            raise HotloopError("step was called before reset, or send before receive: call that first")
        if self.autoreset_mode is AutoresetMode.DISABLED and self._over.any():
            raise HotloopError(f"the episode of car {int(self._over.argmax())} is over: reset it before the next step")
        return actions

    def _seeds(self, seed: int | Sequence[int] | None) -> Sequence[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, int | np.integer):
            super().reset(seed=int(seed))
        return [None if each is None else int(each) for each in seeds_of(seed, self.num_envs, "car")]


def _workers(asked: int | None, cars: int, render_mode: str | None) -> int:
    """How many processes there will be. People look at cars of this process only."""
    if asked is not None and asked != 0:
        at_least_one("workers", asked)
    if render_mode is not None:
        return 0
    if asked is None:
        return 0 if cars == 1 else min(cars, _cores())
    return min(asked, cars)


def _cores() -> int:
    """How many cores this process may use; where the system does not tell, as on macOS, how many there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _info(rows: Array, known: Array | None = None) -> dict[str, Any]:
    everywhere = np.ones(rows.shape[1], np.bool_) if known is None else known
    told = {
        "frames": rows[FRAMES_ROW].copy(), "tiles": rows[TILES_ROW].copy(),
        "_frames": everywhere, "_tiles": everywhere,
    }  # fmt: skip
    return told if known is None else told | _lap(rows[LAP_ROW], known)


def _lap(row: Array, over: Array) -> dict[str, Any]:
    return {"lap_finished": row == 1, "_lap_finished": over & (row != NO_LAP)}
