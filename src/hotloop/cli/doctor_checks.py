"""The checks of `hotloop doctor`. Each returns what it found and, if that is bad, the remedy."""

from __future__ import annotations

import importlib.util
import itertools
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
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
    checks: tuple[Callable[[], Check], ...] = (
        lambda: _python(versions),
        lambda: _torch(versions),
        lambda: _cores(cores),
        lambda: _torch_threads(cores),
        lambda: _thread_variables(cores),
        lambda: _load(cores),
        _governor,
        _memory,
        _shared_memory,
        _temporary,
        _disk,
        _gpu,
        lambda: _arithmetic(machine),
        lambda: _copying(machine),
        _clock,
    )
    return [check() for check in checks]


def _python(versions: Mapping[str, str]) -> Check:
    libraries = ", ".join(f"{name} {version}" for name, version in versions.items() if name != "torch")
    return Check("versions", "ok", f"Python {sys.version.split()[0]}, {libraries}")


def _torch(versions: Mapping[str, str]) -> Check:
    if "torch" not in versions:
        return Check("torch", "note", "not installed", "needed to train, not to record: pip install torch")
    return Check("torch", "ok", versions["torch"])


def _cores(cores: int) -> Check:
    present = os.cpu_count() or cores
    quota = _quota()
    value = f"{cores} of {present} usable"
    if quota is not None and quota < cores:
        return Check(
            "cores",
            "problem",
            f"{value}, but this container may use only {quota:.1f} at a time",
            f"threads beyond that are stopped and started: set OMP_NUM_THREADS={max(1, int(quota))}",
        )
    if cores < present:
        return Check("cores", "note", value, "this process is pinned to some of the cores (taskset, container)")
    return Check("cores", "ok", value)


def _quota() -> float | None:
    """Return how many cores the control group grants, None where it sets no limit."""
    try:
        limit, period = CPU_QUOTA.read_text().split()
        return None if limit == "max" else int(limit) / int(period)
    except (OSError, ValueError):
        return None


def _torch_threads(cores: int) -> Check:
    if importlib.util.find_spec("torch") is None:
        return Check("torch threads", "ok", "no torch, none to check")
    import torch

    threads = torch.get_num_threads()
    value = f"{threads} within an operation, {torch.get_num_interop_threads()} between operations"
    if threads > cores:
        remedy = f"more threads than cores fight for them: set OMP_NUM_THREADS={cores}"
        return Check("torch threads", "problem", value, remedy)
    if threads > 1:
        remedy = "small networks are often faster with torch.set_num_threads(1), and so are worker processes"
        return Check("torch threads", "note", value, remedy)
    return Check("torch threads", "ok", value)


def _thread_variables(cores: int) -> Check:
    seen = {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ}
    value = ", ".join(f"{name}={number}" for name, number in seen.items()) or "none set"
    too_many = [name for name, number in seen.items() if number.isdigit() and int(number) > cores]
    if too_many:
        return Check("thread settings", "problem", value, f"set {too_many[0]} to {cores} or less")
    if len(set(seen.values())) > 1:
        return Check("thread settings", "note", value, "these disagree: give them one value")
    return Check("thread settings", "ok", value)


def _load(cores: int) -> Check:
    try:
        load = psutil.getloadavg()[0]
    except (OSError, AttributeError):
        return Check("load", "ok", "not known on this system")
    value = f"{load:.1f} programs running on {cores} cores over the last minute"
    if load > 0.5 * cores:
        return Check("load", "note", value, "others are at work here: timings will be noisy")
    return Check("load", "ok", value)


def _governor() -> Check:
    try:
        governor = GOVERNOR.read_text().strip()
    except OSError:
        return Check("CPU speed", "ok", "no governor to be seen")
    if governor == "powersave":
        return Check("CPU speed", "note", governor, "sudo cpupower frequency-set -g performance")
    return Check("CPU speed", "ok", governor)


def _memory() -> Check:
    memory = psutil.virtual_memory()
    total, free = memory.total, memory.available
    try:
        total = min(total, int(MEMORY_LIMIT.read_text()))
        free = min(free, total)
    except (OSError, ValueError):
        pass  # no limit, or no control groups
    value = f"{numbers.size(free)} free of {numbers.size(total)}"
    if free < LITTLE_MEMORY_BYTES:
        return Check("memory", "note", value, "keep frames as uint8 and the replay small, or end other programs")
    return Check("memory", "ok", value)


def _shared_memory() -> Check:
    if not SHARED_MEMORY.is_dir():
        return Check("shared memory", "ok", "no separate limit on this system")
    usage = shutil.disk_usage(SHARED_MEMORY)
    value = f"{numbers.size(usage.free)} free of {numbers.size(usage.total)} in {SHARED_MEMORY}"
    if usage.free < SMALL_SHARED_BYTES:
        # hotloop's own replay and collectors do not use it.
        remedy = "torch's DataLoader and multiprocessing share through it: docker run --shm-size=2g, or enlarge it"
        return Check("shared memory", "note", value, remedy)
    return Check("shared memory", "ok", value)


def _temporary() -> Check:
    try:
        folder = tempfile.gettempdir()
        with tempfile.TemporaryFile() as file:
            file.write(b"hotloop")
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Check("temporary files", "problem", str(error), "set TMPDIR to a folder that can be written")
    value = f"{numbers.size(free)} free in {folder}"
    if free < LITTLE_DISK_BYTES:
        return Check("temporary files", "note", value, "make room, or set TMPDIR to a larger disk")
    return Check("temporary files", "ok", value)


def _disk() -> Check:
    here = Path.cwd()
    free = shutil.disk_usage(here).free
    value = f"{numbers.size(free)} free here"
    if not os.access(here, os.W_OK):
        return Check("runs", "problem", f"{value}, not writable", "use hotloop run --out in a writable folder")
    if free < LITTLE_DISK_BYTES:
        return Check("runs", "note", value, "clear old runs: hotloop prune")
    return Check("runs", "ok", value)


def _gpu() -> Check:
    driver = NVIDIA_DRIVER.exists() or shutil.which("nvidia-smi") is not None
    if importlib.util.find_spec("torch") is None:
        return Check("GPU", "ok", "driver found, no torch to use it" if driver else "none")
    import torch

    if torch.cuda.is_available():
        names = {torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())}
        return Check("GPU", "ok", f"{torch.cuda.device_count()}: {', '.join(sorted(names))}")
    if driver and torch.version.cuda is None:
        remedy = "install a CUDA build of torch, see pytorch.org/get-started"
        return Check("GPU", "problem", "there is one, but this torch is a CPU build", remedy)
    if driver:
        remedy = "run nvidia-smi: the driver may be older than torch needs"
        return Check("GPU", "problem", "there is a driver, but torch cannot use it", remedy)
    return Check("GPU", "ok", "none: training runs on the CPU")


def _arithmetic(machine: Mapping[str, Any]) -> Check:
    every, one = float(machine["peak_flops"]), float(machine["peak_flops_1"])
    if not every:
        return Check("arithmetic", "note", "could not be measured", "impossible timings cannot be detected")
    value = f"{every / 1e9:,.0f} GFLOP/s with all threads, {one / 1e9:,.0f} with one (float32)"
    if machine["cores"] > 1 and every < 1.1 * one:
        return Check("arithmetic", "note", value, "more threads bring nothing here (or others were at work meanwhile)")
    return Check("arithmetic", "ok", value)


def _copying(machine: Mapping[str, Any]) -> Check:
    speed = float(machine["copy_bytes_per_s"])
    if not speed:
        return Check("copying", "note", "could not be measured", "impossible timings cannot be detected")
    value = f"{numbers.size(speed)}/s"
    if speed < SLOW_COPY_BYTES_PER_S:
        return Check("copying", "note", value, "memory is slow here: keep frames as uint8")
    return Check("copying", "ok", value)


def _clock() -> Check:
    readings = [clock.now_ns() for _ in range(2000)]
    steps = sorted(b - a for a, b in itertools.pairwise(readings) if b > a)
    step_ns = steps[len(steps) // 2] if steps else 0
    value = f"one reading takes {step_ns} ns"
    if step_ns > COARSE_CLOCK_NS:
        return Check("clock", "note", value, "recording costs more here: use fewer, longer spans")
    return Check("clock", "ok", value)
