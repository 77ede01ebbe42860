"""Many cars behind Gymnasium's `VectorEnv`, in worker processes or in this one.

Box2D's binding holds Python's global lock in every call, so threads would not run in parallel; processes do.
Every array returned is newly allocated, so the caller may keep it, change it, or store it in a replay buffer.
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
from hotloop.training.envs.autoreset import parse_autoreset_mode
from hotloop.training.envs.carracing.config import CarRacingConfig
from hotloop.training.envs.carracing.env import RENDER_MODES, action_space, observation_space
from hotloop.training.envs.carracing.env_batch import (
    FRAMES_ROW,
    LAP_ROW,
    NO_LAP,
    TILES_ROW,
    EnvBatch,
    SharedArrays,
    shared_fields,
)
from hotloop.training.envs.carracing.workers import STEP, Job, Worker, WorkerDied
from hotloop.training.envs.gym_types import Flags, Info, LaneValues, Observations, StepResult
from hotloop.training.envs.kernel_vector import lane_info
from hotloop.training.envs.validate import (
    at_least_one,
    build_config,
    check_render_mode,
    check_reset_mask,
    seeds_per_env,
)
from hotloop.training.shared_memory import allocate

Actions = NDArray[np.floating | np.integer]


class CarRacingVectorEnv(VectorEnv[Observations, Actions, LaneValues]):
    """N cars, each on its own track.

    By default a car whose episode ends is reset in the same step (`autoreset_mode`). The step's `info` then has
    `final_obs` and `final_info` with the masks `_final_obs` and `_final_info`. `final_obs` [N, ...] has a row for every
    car: where no episode ended it equals the observation, so `info.get("final_obs", obs)` is the true next observation
    of every car.

    `step` is `send` followed by `receive`. With worker processes, the caller can do other work in between.

    A worker that dies is replaced, with a warning, and the episodes of its cars are truncated.

    Args:
        num_envs: N.
        render_mode: "rgb_array" or None; with a render mode, all cars run in this process.
        autoreset_mode: Gymnasium's `AutoresetMode` or its value, "SameStep", "NextStep", "Disabled".
        workers: Number of worker processes; 0: step the cars in this process. None: one for each core but at most one
            per car, and 0 for a single car.
        recorded: Whether workers record themselves into this process's run, if there is one.
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
        self.config = build_config("CarRacing", CarRacingConfig, options)
        self.num_envs = at_least_one("num_envs", num_envs)
        self.autoreset_mode = parse_autoreset_mode(autoreset_mode)
        check_render_mode(render_mode, RENDER_MODES)
        self.render_mode = render_mode
        self.metadata = {"render_modes": list(RENDER_MODES), "render_fps": 50, "autoreset_mode": self.autoreset_mode}
        self.single_observation_space = observation_space(self.config)
        self.single_action_space = action_space(self.config)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.workers = _count_workers(workers, self.num_envs, render_mode)
        self._over = np.zeros(self.num_envs, np.bool_)
        self._was_reset = self._stepping = False
        self._last: Observations | None = None
        self._batch: EnvBatch | None = None
        self._workers: list[Worker] = []
        self._waiting = span("env.wait", Phase.WAIT)
        self._block = allocate(shared_fields(self.config, self.num_envs), "shared" if self.workers else "memory")
        self._arrays = SharedArrays(**self._block.arrays)
        if self.workers:
            self._start(recorded)
        else:
            self._batch = EnvBatch(self.config, self._arrays, 0, self.num_envs, self.autoreset_mode, render_mode)

    def reset(
        self,
        *,
        seed: int | Sequence[int] | None = None,
        options: Info | None = None,
    ) -> tuple[Observations, Info]:
        """Start an episode of every car, or only where `options={"reset_mask": bool [N]}` is true.

        Car i gets seed + i, or the i-th of a sequence; without a seed, each car's random stream continues. Another
        option is `randomize`, as in Gymnasium's own environment.
        """
        car_options = dict(options or {})
        mask = check_reset_mask(car_options.pop("reset_mask", None), self.num_envs, self._was_reset, "car")
        if self._stepping:
            self.receive()
        self._reset(self._seeds(seed), mask.tolist(), car_options or None)
        self._was_reset = True
        self._over &= ~mask
        self._last = self._arrays.observations.copy()
        return self._last, _info(self._arrays.info)

    def step(self, actions: Actions) -> StepResult:
        """Drive every car; see `CarRacingEnv.step`.

        Actions are float [N, 3] or [N, 2], or whole numbers [N], depending on `action_form`. Returns observations [N,
        ...], rewards float32 [N], terminated bool [N], truncated bool [N], info.
        """
        self.send(actions)
        return self.receive()

    def send(self, actions: Actions) -> None:
        """Start a step. Without workers it is completed at once."""
        self._arrays.actions[:] = self._check_actions(actions)
        self._stepping = True
        if self._batch is not None:
            self._batch.step()
        for worker in self._workers:
            worker.send(STEP)

    def receive(self) -> StepResult:
        """Wait for the step that `send` started; return the same as `step`."""
        if not self._stepping:
            raise HotloopError("receive was called without send: call send with actions first")
        self._stepping = False
        for k, worker in enumerate(self._workers):
            try:
                with self._waiting:
                    worker.receive()
            except WorkerDied as death:
                self._replace(k, death)
        arrays = self._arrays
        observations, over = arrays.observations.copy(), arrays.terminated | arrays.truncated
        self._over, self._last = over, observations
        info = _info(arrays.info)
        if over.any():
            if self.autoreset_mode is AutoresetMode.SAME_STEP:
                info["final_obs"], info["_final_obs"] = arrays.final_observations.copy(), over
                info["final_info"], info["_final_info"] = _info(arrays.final_info, over), over
            else:
                info |= _lap(arrays.info[LAP_ROW], over)
        return observations, arrays.rewards.copy(), arrays.terminated.copy(), arrays.truncated.copy(), info

    def render(self) -> tuple[Any, ...] | None:
        """Return Gymnasium's own picture of each car, uint8 [400, 600, 3]."""
        return None if self._batch is None else tuple(car.render() for car in self._batch.cars)

    def close_extras(self, **kwargs: Any) -> None:
        """Stop the workers and release the shared memory."""
        for worker in self._workers:
            worker.close()
        self._workers = []
        if self._batch is not None:
            self._batch.close()
        self._block.close()
        # Dropping the arrays releases the memory even if the caller keeps this environment.
        self._block.arrays.clear()
        self._arrays, self._was_reset = SharedArrays(*[np.empty(0)] * len(SharedArrays._fields)), False

    def _start(self, recorded: bool) -> None:
        bounds = [self.num_envs * k // self.workers for k in range(self.workers + 1)]
        path = str(self._block.path)
        try:
            for first, last in itertools.pairwise(bounds):
                job = Job(self.config, path, self.num_envs, first, last, self.autoreset_mode.value)
                self._workers.append(Worker(job, recorded))
            for worker in self._workers:
                worker.receive()
        except HotloopError:
            self.close_extras()
            raise

    def _replace(self, k: int, death: WorkerDied) -> None:
        """Replace a worker that died. Its results in the shared arrays may be incomplete, so they are overwritten."""
        warnings.warn(f"{death}: it is replaced, and its episodes are truncated", RuntimeWarning, stacklevel=4)
        old, arrays, last = self._workers[k], self._arrays, self._last
        assert last is not None
        old.close()
        own, cars = slice(old.job.first, old.job.last), old.job.last - old.job.first
        arrays.final_observations[own], arrays.final_info[:, own] = last[own], arrays.info[:, own]
        self._workers[k] = new = Worker(old.job, old.recorded)
        new.receive()
        new.reset([int(each) for each in self.np_random.integers(0, 1 << 31, cars)], [True] * cars, None)
        new.receive()
        arrays.truncated[own] = True

    def _reset(self, seeds: Sequence[int | None], mask: list[bool], options: Info | None) -> None:
        if self._batch is not None:
            self._batch.reset(seeds, mask, options)
        for worker in self._workers:
            own = slice(worker.job.first, worker.job.last)
            worker.reset(list(seeds[own]), mask[own], options)
        for worker in self._workers:
            worker.receive()

    def _check_actions(self, actions: Actions) -> Actions:
        actions = np.asarray(actions)
        shape, discrete = self.action_space.shape, isinstance(self.single_action_space, spaces.Discrete)
        right_kind = actions.dtype.kind in ("iu" if discrete else "fiu")
        if actions.shape != shape or not right_kind:
            kind = "whole numbers" if discrete else "numbers"
            raise HotloopError(f"actions are {actions.dtype} {actions.shape}: give {kind} of shape {shape}")
        wrong = (actions < 0) | (actions > 4) if discrete else ~np.isfinite(actions).all(axis=1)
        if wrong.any():
            which = int(wrong.argmax())
            valid = "a whole number from 0 to 4" if discrete else "finite numbers"
            raise HotloopError(f"action of car {which} is {actions[which]}: give {valid}")
        if not self._was_reset or self._stepping:
            raise HotloopError("step was called before reset, or send before receive: call that first")
        if self.autoreset_mode is AutoresetMode.DISABLED and self._over.any():
            raise HotloopError(f"the episode of car {int(self._over.argmax())} is over: reset it before the next step")
        return actions

    def _seeds(self, seed: int | Sequence[int] | None) -> Sequence[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, int | np.integer):
            super().reset(seed=int(seed))
        return [None if each is None else int(each) for each in seeds_per_env(seed, self.num_envs, "car")]


def _count_workers(requested: int | None, cars: int, render_mode: str | None) -> int:
    """Return the number of worker processes. Rendering works only for cars in this process."""
    if requested is not None and requested != 0:
        at_least_one("workers", requested)
    if render_mode is not None:
        return 0
    if requested is None:
        return 0 if cars == 1 else min(cars, _cores())
    return min(requested, cars)


def _cores() -> int:
    """Return the number of cores that this process may use, or of all cores if unknown, as on macOS."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _info(rows: NDArray[np.int32], known: Flags | None = None) -> Info:
    mask = np.ones(rows.shape[1], np.bool_) if known is None else known
    info = lane_info(("frames", "tiles"), (rows[FRAMES_ROW].copy(), rows[TILES_ROW].copy()), mask)
    return info if known is None else info | _lap(rows[LAP_ROW], known)


def _lap(row: NDArray[np.int32], over: Flags) -> Info:
    return {"lap_finished": row == 1, "_lap_finished": over & (row != NO_LAP)}
