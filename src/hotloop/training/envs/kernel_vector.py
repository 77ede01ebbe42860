"""Code shared by the vector environments that a compiled kernel steps: threads, seeds and infos."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from hotloop.training.envs.validate import seeds_per_env

Array = NDArray[Any]
Result = TypeVar("Result")


class LaneThreads:
    """Splits N environments evenly over threads, of which the calling thread is the first.

    Args:
        num_envs: N.
        threads: Number of threads, at most N.
        name: Prefix of the threads' names.
    """

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


def choose_seeds(env: VectorEnv[Any, Any, Any], seed: int | Sequence[int] | None, each: str) -> Sequence[int]:
    """Return one seed per environment; without a seed they are drawn from the vector environment's generator.

    Args:
        env: The vector environment. An integer seed also seeds its generator, as in Gymnasium.
        seed: As given to `reset`.
        each: What messages call one environment.
    """
    if seed is None:
        return [int(drawn) for drawn in env.np_random.integers(0, 1 << 62, env.num_envs)]
    if isinstance(seed, int | np.integer):
        VectorEnv.reset(env, seed=int(seed))
    return seeds_per_env(seed, env.num_envs, each)


def lane_info(names: Sequence[str], rows: Sequence[Array] | Array, mask: Array) -> dict[str, Any]:
    """Return a Gymnasium vector info: for each name its values [N], and under `_name` the mask of valid ones.

    Args:
        names: Keys of the info, in the order of `rows`.
        rows: Values, one row [N] for each name; further rows are ignored.
        mask: Where the values are valid, bool [N].
    """
    info: dict[str, Any] = dict(zip(names, rows, strict=False))
    for name in names:
        info["_" + name] = mask
    return info


def final_info(names: Sequence[str], rows: Array, cause_names: Array, over: Array) -> dict[str, Any]:
    """Return the info of the episodes that ended. The row after the named ones holds the code of the cause."""
    *values, cause = rows
    return lane_info((*names, "cause"), (*values, cause_names.take(cause)), over)
