"""The machine and its peak performance. Every run records them, so that impossible timings can be detected.

The peaks (FLOP/s of a large matrix product, bytes per second of a large copy) are measured once in a separate process,
with one thread and with all, and stored in the user's cache folder.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import psutil

from hotloop.cache import cache_folder
from hotloop.clock import now_ns
from hotloop.json_types import Json
from hotloop.profiling.trace.host import this_host

LIBRARIES = (
    "hotloop",
    "torch",
    "numpy",
    "gymnasium",
    "gym",
    "stable-baselines3",
    "sb3-contrib",
    "torchrl",
    "numba",
    "pyarrow",
    "ray",
    "tensorboard",
    "wandb",
)
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def describe_machine(measure: bool = True) -> dict[str, Json]:
    """Describe the machine; with `measure`, its peaks too (0.0 if they could not be measured)."""
    peaks = _peaks() if measure else {}
    return {
        "cores": usable_cores(),
        "memory_bytes": psutil.virtual_memory().total,
        "cpu": _cpu_name(),
        "platform": f"{platform.system()}-{platform.release()}-{platform.machine()}",
        "python": platform.python_version(),
        "gpu": None,
        "threads": {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ},
        "peak_flops": peaks.get("flops", 0.0),
        "peak_flops_1": peaks.get("flops_1", 0.0),
        "copy_bytes_per_s": peaks.get("copy_bytes_per_s", 0.0),
    }


def describe_host() -> dict[str, str]:
    """Identify the machine, its boot and the process namespace of this process."""
    return asdict(this_host())


def library_versions() -> dict[str, str]:
    """Return the versions of installed libraries that matter for training speed."""
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _peaks() -> dict[str, float]:
    key = hashlib.sha256(f"{_cpu_name()} {usable_cores()} {platform.node()}".encode()).hexdigest()[:12]
    cache = cache_folder() / f"peaks-{key}.json"
    try:
        return json.loads(cache.read_text())
    except (OSError, ValueError):
        pass
    everything, one = _measure_in_process(None), _measure_in_process("1")
    if not everything or not one:
        return {}
    # On a busy machine the result may be too low, so make sure that all threads are at least as fast as one.
    peaks = {name: max(everything[name], one[name]) for name in everything} | {"flops_1": one["flops"]}
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        cache.write_text(json.dumps(peaks))
    except OSError:
        pass  # The folder may be read-only. Measure again next time.
    return peaks


def _measure_in_process(threads: str | None) -> dict[str, float]:
    environment = {key: value for key, value in os.environ.items() if key not in THREAD_VARIABLES}
    if threads:
        environment |= dict.fromkeys(THREAD_VARIABLES, threads)
    try:
        run = subprocess.run(
            [sys.executable, "-c", "from hotloop.profiling.recorder.machine import _print_peaks; _print_peaks()"],
            env=environment,
            capture_output=True,
            timeout=20,
            check=True,
        )
        return json.loads(run.stdout)
    except (subprocess.SubprocessError, OSError, ValueError):
        return {}


def _print_peaks() -> None:
    import numpy as np

    a = np.ones((1024, 1024), np.float32)
    source, target = np.ones(8 << 20, np.uint8), np.zeros(8 << 20, np.uint8)
    product_ns = min(_time_ns(lambda: a @ a) for _ in range(8))
    copy_ns = min(_time_ns(lambda: np.copyto(target, source)) for _ in range(12))
    print(json.dumps({"flops": 2 * 1024**3 / product_ns * 1e9, "copy_bytes_per_s": len(source) / copy_ns * 1e9}))


def _time_ns(work: Callable) -> int:
    begin = now_ns()
    work()
    return now_ns() - begin
