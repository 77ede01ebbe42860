"""Warming up before the clock starts: compile kernels, and choose the learner's by measuring.

The first run on a machine compiles for ten seconds or more. Compilers hold a lock, so a second process compiles the
learner at the same time and leaves the result in numba's cache on disk.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hotloop.json_types import Json
from hotloop.training.run.config_checks import Config
from hotloop.training.worker_process import start_worker, without_recording

if TYPE_CHECKING:
    from hotloop.training.learn.kernel_choice import Learner

MOST_UPDATES = 8
"""Updates of one trial: more would only make it longer."""
LONGEST_S = 60.0


def settle_kernel(learner: Learner, wanted: str, updates_per_call: int) -> str:
    """Make a learner use the wanted kernel, or for "auto" the fastest, and compile it; return its name.

    Kernels are tried on copies of the learner, so its state and random numbers do not change.
    """
    from hotloop.training.learn import choose_kernel

    tried = min(updates_per_call, MOST_UPDATES)
    if wanted != "auto":
        learner.use(wanted)
        choose_kernel(learner, tried, candidates=[wanted])
        return wanted
    chosen = choose_kernel(learner, tried).kernel
    learner.use(chosen)
    return chosen


@contextmanager
def learner_compiled_ahead(
    pipeline: str, config: Config, kernels: str, supported: Collection[str] = ("numba",)
) -> Iterator[None]:
    """Compile the learner in another process while the block runs, if that was never done; then wait for it.

    Nothing is done if numba's cache has the module `kernels`, or if numba is not among the supported kernels.
    """
    if config.kernel not in ("auto", "numba") or "numba" not in supported or not is_cold(kernels):
        yield
        return
    settings = json.dumps(asdict(config))
    program = f"import json; from {__name__} import compile_learner; "
    program += f"compile_learner({pipeline!r}, json.loads({settings!r}))"
    quiet = subprocess.DEVNULL
    process = start_worker(program, stdin=quiet, stdout=quiet, stderr=quiet, env=without_recording())
    try:
        yield
        process.wait(LONGEST_S)
    except subprocess.TimeoutExpired:
        pass  # the learner is compiled in this process instead
    finally:
        process.kill()
        process.wait()


def is_cold(module: str) -> bool:
    """Return whether numba's cache on disk has nothing of a module. A wrong guess costs only time."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return False
    file = Path(spec.origin)
    index = f"{file.stem}.*.nbi"
    # Numba's folder in a cache that modules share is named after the module's own folder and a hash.
    shared = os.environ.get("NUMBA_CACHE_DIR") or Path.home() / ".cache" / "numba"
    if any(Path(shared).glob(f"{file.parent.name}_*/{index}")):
        return False
    return bool(os.environ.get("NUMBA_CACHE_DIR")) or not any((file.parent / "__pycache__").glob(index))


def compile_learner(name: str, settings: dict[str, Json]) -> None:
    """Compile the numba kernels of a pipeline's learner into the cache."""
    import numpy as np

    from hotloop.training.registry import pipeline
    from hotloop.training.run import configuration

    module = pipeline(name)
    config = replace(configuration.with_settings(module.Config(), settings, "the call"), kernel="numba")
    agent = module.Agent(config)
    settle_kernel(agent.learner, "numba", 1)
    agent.explore(np.zeros((config.envs, *agent.observation_shape), np.float32), 0, np.random.default_rng(0))
