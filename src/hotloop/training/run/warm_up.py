"""Warming up before the clock starts: kernels are compiled, and the learner's is chosen by measuring.

The very first run on a machine compiles for ten seconds and more. Compilers hold a lock, so a second process
compiles the learner meanwhile and leaves the result in numba's cache on disk.
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
from typing import Any

from hotloop.training.worker_process import start_worker

MOST_UPDATES = 8
"""Updates of one trial: more would only make it longer."""
LONGEST_S = 60.0


def settle_kernel(learner: Any, wanted: str, updates_per_call: int) -> str:
    """Let a learner use the wanted kernel, or for "auto" the fastest, compiled; return its name.

    What is measured is a copy: the learner's state and random numbers stay as they are.
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
    pipeline: str, config: Any, kernels: str, supported: Collection[str] = ("numba",)
) -> Iterator[None]:
    """Compile the learner in another process while the block runs, if that was never done; then wait for it.

    Args:
        pipeline: Its name.
        config: Its configuration.
        kernels: Module of the learner's numba kernels, by which it is seen whether they were ever compiled.
        supported: Kernels that can run the network; without "numba" there is nothing to compile.
    """
    if config.kernel not in ("auto", "numba") or "numba" not in supported or not is_cold(kernels):
        yield
        return
    settings = json.dumps(asdict(config))
    program = f"import json; from {__name__} import compile_learner; "
    program += f"compile_learner({pipeline!r}, json.loads({settings!r}))"
    # A recording that follows processes must not take this one for a part of the training.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOTLOOP_")}
    quiet = subprocess.DEVNULL
    process = start_worker(program, stdin=quiet, stdout=quiet, stderr=quiet, env=environment)
    try:
        yield
        process.wait(LONGEST_S)
    except subprocess.TimeoutExpired:
        pass  # then it is compiled here
    finally:
        process.kill()
        process.wait()


def is_cold(module: str) -> bool:
    """Say whether numba's cache on disk has nothing of a module. A wrong guess costs time and nothing else."""
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


def compile_learner(name: str, settings: dict[str, Any]) -> None:
    """Compile the numba kernels of a pipeline's learner, so that they are in the cache."""
    import numpy as np

    from hotloop.training.registry import pipeline
    from hotloop.training.run import configuration

    module = pipeline(name)
    config = replace(configuration.with_settings(module.Config(), settings, "the call"), kernel="numba")
    agent = module.Agent(config)
    settle_kernel(agent.learner, "numba", 1)
    agent.explore(np.zeros((config.envs, *agent.observation_shape), np.float32), 0, np.random.default_rng(0))
