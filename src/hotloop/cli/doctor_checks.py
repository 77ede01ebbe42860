"""The checks of `hotloop doctor`. Each returns what it found and, if that is bad, the remedy."""

from __future__ import annotations

import importlib.util
import itertools
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil

from hotloop import clock, numbers
from hotloop.profiling.recorder.machine import THREAD_VARIABLES

Verdict = Literal["ok", "note", "problem"]
SHARED_MEMORY = Path("/dev/shm")
CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")
MEMORY_LIMIT = Path("/sys/fs/cgroup/memory.max")
GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")
SMALL_SHARED_BYTES = 512 << 20
LITTLE_MEMORY_BYTES = 2 << 30
LITTLE_DISK_BYTES = 1 << 30
SLOW_COPY_BYTES_PER_S = 2e9
COARSE_CLOCK_NS = 2000


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the doctor's report."""

    name: str
    verdict: Verdict
    value: str
    remedy: str = ""


def all_checks(machine: Mapping[str, Any], versions: Mapping[str, str]) -> list[Check]:
    """Return every check of this machine, described by `recorder.machine`."""
    cores = int(machine["cores"])
    return [
        _python(versions),
        _torch(versions),
        _cores(cores),
        _torch_threads(cores),
        _thread_variables(cores),
        _load(cores),
        _governor(),
        _memory(),
        _shared_memory(),
        _temporary(),
        _disk(),
        _gpu(),
        _arithmetic(cores, float(machine["peak_flops"]), float(machine["peak_flops_1"])),
        _copying(float(machine["copy_bytes_per_s"])),
        _clock(),
    ]


def _check(name: str, value: str, *, note: str = "", problem: str = "") -> Check:
    """Return a check with the remedy of a problem, or advice, if there is any."""
    return Check(name, "problem" if problem else "note" if note else "ok", value, problem or note)


def _python(versions: Mapping[str, str]) -> Check:
    libraries = ", ".join(f"{name} {version}" for name, version in versions.items() if name != "torch")
    return _check("versions", f"Python {sys.version.split()[0]}, {libraries}")


def _torch(versions: Mapping[str, str]) -> Check:
    if "torch" not in versions:
        return _check("torch", "not installed", note="needed to train, not to record: pip install torch")
    return _check("torch", versions["torch"])


def _cores(cores: int) -> Check:
    present, quota = os.cpu_count() or cores, _quota()
    value = f"{cores} of {present} usable"
    if quota is not None and quota < cores:
        problem = f"threads beyond that are stopped and started: set OMP_NUM_THREADS={max(1, int(quota))}"
        return _check("cores", f"{value}, but this container may use only {quota:.1f} at a time", problem=problem)
    pinned = "this process is pinned to some of the cores (taskset, container)"
    return _check("cores", value, note=pinned if cores < present else "")


def _quota() -> float | None:
    """Return the CPU limit of the control group in cores, or None if there is none."""
    try:
        limit, period = CPU_QUOTA.read_text().split()
        return None if limit == "max" else int(limit) / int(period)
    except (OSError, ValueError):
        return None


def _torch_threads(cores: int) -> Check:
    if importlib.util.find_spec("torch") is None:
        return _check("torch threads", "torch is not installed")
    import torch

    threads = torch.get_num_threads()
    value = f"{threads} within an operation, {torch.get_num_interop_threads()} between operations"
    if threads > cores:
        problem = f"more threads than cores compete for them: set OMP_NUM_THREADS={cores}"
        return _check("torch threads", value, problem=problem)
    note = "small networks are often faster with torch.set_num_threads(1), and so are worker processes"
    return _check("torch threads", value, note=note if threads > 1 else "")


def _thread_variables(cores: int) -> Check:
    seen = {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ}
    value = ", ".join(f"{name}={number}" for name, number in seen.items()) or "none set"
    too_many = [name for name, number in seen.items() if number.isdigit() and int(number) > cores]
    problem = f"set {too_many[0]} to {cores} or less" if too_many else ""
    note = "these disagree: give them one value" if len(set(seen.values())) > 1 else ""
    return _check("thread settings", value, note=note, problem=problem)


def _load(cores: int) -> Check:
    try:
        load = psutil.getloadavg()[0]
    except (OSError, AttributeError):
        return _check("load", "not known on this system")
    value = f"{load:.1f} programs running on {cores} cores over the last minute"
    return _check("load", value, note="other programs are busy: timings will be noisy" if load > 0.5 * cores else "")


def _governor() -> Check:
    try:
        governor = GOVERNOR.read_text().strip()
    except OSError:
        return _check("CPU speed", "no governor found")
    note = "sudo cpupower frequency-set -g performance" if governor == "powersave" else ""
    return _check("CPU speed", governor, note=note)


def _memory() -> Check:
    memory = psutil.virtual_memory()
    total, free = memory.total, memory.available
    try:
        total = min(total, int(MEMORY_LIMIT.read_text()))
        free = min(free, total)
    except (OSError, ValueError):
        pass  # no limit, or no control groups
    note = "keep frames as uint8 and the replay small, or end other programs" if free < LITTLE_MEMORY_BYTES else ""
    return _check("memory", f"{numbers.size(free)} free of {numbers.size(total)}", note=note)


def _shared_memory() -> Check:
    if not SHARED_MEMORY.is_dir():
        return _check("shared memory", "no separate limit on this system")
    usage = shutil.disk_usage(SHARED_MEMORY)
    value = f"{numbers.size(usage.free)} free of {numbers.size(usage.total)} in {SHARED_MEMORY}"
    # hotloop's own replay and collectors do not use it.
    note = "torch's DataLoader and multiprocessing share through it: docker run --shm-size=2g, or enlarge it"
    return _check("shared memory", value, note=note if usage.free < SMALL_SHARED_BYTES else "")


def _temporary() -> Check:
    try:
        folder = tempfile.gettempdir()
        with tempfile.TemporaryFile() as file:
            file.write(b"hotloop")
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return _check("temporary files", str(error), problem="set TMPDIR to a writable folder")
    note = "make room, or set TMPDIR to a larger disk" if free < LITTLE_DISK_BYTES else ""
    return _check("temporary files", f"{numbers.size(free)} free in {folder}", note=note)


def _disk() -> Check:
    here = Path.cwd()
    free = shutil.disk_usage(here).free
    value = f"{numbers.size(free)} free here"
    if not os.access(here, os.W_OK):
        return _check("runs", f"{value}, not writable", problem="use hotloop run --out in a writable folder")
    return _check("runs", value, note="remove old runs: hotloop prune" if free < LITTLE_DISK_BYTES else "")


def _gpu() -> Check:
    driver = NVIDIA_DRIVER.exists() or shutil.which("nvidia-smi") is not None
    if importlib.util.find_spec("torch") is None:
        return _check("GPU", "driver found, no torch to use it" if driver else "none")
    import torch

    if torch.cuda.is_available():
        names = {torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())}
        return _check("GPU", f"{torch.cuda.device_count()}: {', '.join(sorted(names))}")
    if not driver:
        return _check("GPU", "none: training runs on the CPU")
    if torch.version.cuda is None:
        problem = "install a CUDA build of torch, see pytorch.org/get-started"
        return _check("GPU", "there is one, but this torch is a CPU build", problem=problem)
    problem = "run nvidia-smi: the driver may be older than torch needs"
    return _check("GPU", "there is a driver, but torch cannot use it", problem=problem)


def _arithmetic(cores: int, all_threads: float, one_thread: float) -> Check:
    if not all_threads:
        return _check("arithmetic", "could not be measured", note="impossible timings cannot be detected")
    value = f"{all_threads / 1e9:,.0f} GFLOP/s with all threads, {one_thread / 1e9:,.0f} with one (float32)"
    slow = cores > 1 and all_threads < 1.1 * one_thread
    note = "more threads are no faster here (or other programs were busy during the measurement)"
    return _check("arithmetic", value, note=note if slow else "")


def _copying(bytes_per_s: float) -> Check:
    if not bytes_per_s:
        return _check("copying", "could not be measured", note="impossible timings cannot be detected")
    note = "memory is slow here: keep frames as uint8" if bytes_per_s < SLOW_COPY_BYTES_PER_S else ""
    return _check("copying", f"{numbers.size(bytes_per_s)}/s", note=note)


def _clock() -> Check:
    readings = [clock.now_ns() for _ in range(2000)]
    steps = sorted(b - a for a, b in itertools.pairwise(readings) if b > a)
    step_ns = steps[len(steps) // 2] if steps else 0
    note = "recording costs more here: use fewer, longer spans" if step_ns > COARSE_CLOCK_NS else ""
    return _check("clock", f"one reading takes {step_ns} ns", note=note)
