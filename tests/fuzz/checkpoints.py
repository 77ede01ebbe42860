"""Fuzzing of checkpoints: `python tests/fuzz/checkpoints.py --count 1000 --seed 0`.

Real checkpoints are damaged at random and loaded. Half of the cases keep the digests; the others recompute them, to
reach the code behind the digest check. A command must end with exit code 0 or 2 and without a traceback, a signal, a
hang or too much memory.

One process trains small agents, which compiles everything, and forks once per damaged checkpoint.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hotloop.clock import now_ns
from hotloop.training.run import checkpoint
from hotloop.training.run.checkpoint_files import META, SUFFIX, _digest_of

SNAKE = "--envs 8 --board 6 --features basic --hidden 16 16 --kernel numba"
FLAGS = {
    "dqn-snake": f"{SNAKE} --buffer 1200 --learning-starts 200 --updates-per-step 1 --batch 32 "
    "--prioritised --n-step 3",
    "ppo-snake": f"{SNAKE} --rollout 8 --minibatch 32 --epochs 2",
    "ppo-ricochet": "--size 8 --bank-boards 60 --envs 8 --boards 4 --rollout 4 --channels 4 --hidden 16 --epochs 2",
    "sac-carracing": "--preset vector --envs 2 --workers 0 --batch 16 --learning-starts 20 --buffer 500 "
    "--max-frames 40 --hidden 16 --kernel lean --updates-per-step 1",
    "dqn-mario": "--workers 0 --batch 8 --learning-starts 60 --buffer 1000 --max-steps 20 --epsilon-steps 100 "
    "--channels 4 4 4 --hidden 16 --epoch 4 --kernel lean",
}
"""The pipelines, with the smallest agents that use all of their parts."""
STEPS = {"dqn-snake": 512, "ppo-snake": 512, "ppo-ricochet": 96, "sac-carracing": 60, "dqn-mario": 120}
MORE_STEPS = 64
QUIET = "--quiet --no-profile --no-tensorboard --eval-episodes 0"
HOSTILE: tuple[Any, ...] = (
    None, True, 10**30, 1 << 62, -1, 0, 1e999, -1e308, float("nan"), "", "../../x", "\x00", [], {}, [[[]]], [None] * 9,
    {"state": None}, 3.5, "9" * 5000,
)  # fmt: skip
MEMORY_BYTES = 2 << 30
CPU_S = 60
HANG_S = 180.0
EXPECTED = (0, 2)
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Failure:
    """A damaged checkpoint that was not rejected properly."""

    number: int
    command: str
    damage: str
    problem: str
    output: str


def fuzz_checkpoints(
    count: int, seed: int, seconds: float | None = None, pipelines: Sequence[str] = tuple(FLAGS)
) -> list[Failure]:
    """Load damaged checkpoints; return what went wrong.

    Args:
        count: Number of damaged checkpoints.
        seed: The same seed gives the same damages.
        seconds: Stop early after this time.
        pipelines: Pipelines to create checkpoints with.
    """
    with tempfile.TemporaryDirectory(prefix="hotloop-fuzz-") as folder:
        report = Path(folder) / "report.json"
        words = [sys.executable, __file__, "--count", str(count), "--seed", str(seed), "--report", str(report)]
        words += ["--seconds", str(seconds or 0), "--pipelines", *pipelines]
        alone = {"OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": str(Path(folder) / "cache")}
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(words, env=os.environ | alone | {"PYTHONPATH": path}, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"the fuzzer itself failed: {done.stderr[-2000:]}")
        return [Failure(**each) for each in json.loads(report.read_text())]


def _fuzz(count: int, seed: int, seconds: float, pipelines: Sequence[str], folder: Path) -> list[Failure]:
    """Implement `fuzz_checkpoints` in this process, which must have no threads."""
    originals = {name: _train(name, folder / name) for name in pipelines}
    _check_undamaged(originals, folder)
    begin, failures = now_ns(), []
    for number in range(count):
        if seconds and now_ns() - begin > seconds * 1e9:
            break
        rng = np.random.default_rng([seed, number])
        name = str(rng.choice(list(originals)))
        run = folder / f"damaged-{number}"
        target = checkpoint.step_path(run, STEPS[name])
        shutil.copytree(originals[name], target)
        damage = _damage(rng, target, originals)
        words = _command(rng, name, run, folder / "out")
        problem, output = _try(words, folder / "output.txt")
        if problem:
            failures.append(Failure(number, " ".join(words), f"{name}: {damage}", problem, output[-3000:]))
        shutil.rmtree(run, ignore_errors=True)
        shutil.rmtree(folder / "out", ignore_errors=True)
    return failures


def _train(name: str, run: Path) -> Path:
    from hotloop.cli.main import main

    words = f"train {name} {FLAGS[name]} {QUIET} --steps {STEPS[name]} --out {run}".split()
    if main(words):
        raise RuntimeError(f"{name} cannot be trained")
    path = checkpoint.find(run)
    # The name must not depend on how the step count was rounded up.
    return path.rename(path.with_name(checkpoint.step_path(run, STEPS[name]).name))


def _check_undamaged(originals: dict[str, Path], folder: Path) -> None:
    """Make sure that both commands work undamaged, or rejecting everything would look like success."""
    for name, path in originals.items():
        for words in (_evaluation(path), _resumption(name, path, folder / "out")):
            code = _try(words, folder / "output.txt", expected=(0,))
            if code[0]:
                raise RuntimeError(f"hotloop {' '.join(words)}: {code}")
            shutil.rmtree(folder / "out", ignore_errors=True)


def _command(rng: np.random.Generator, name: str, run: Path, out: Path) -> list[str]:
    if rng.random() < 0.25:
        return _evaluation(run)
    return _resumption(name, run, out)


def _evaluation(run: Path) -> list[str]:
    return ["evaluate", str(run), "--episodes", "2", "--max-steps", "20"]


def _resumption(name: str, run: Path, out: Path) -> list[str]:
    steps = STEPS[name] + MORE_STEPS
    return f"train {name} --resume {run} --steps {steps} --seconds 3 {QUIET} --out {out}".split()


def _try(words: list[str], log: Path, expected: tuple[int, ...] = EXPECTED) -> tuple[str, str]:
    """Run a command in a forked child; return what went wrong, if anything, and its output."""
    child = os.fork()
    if not child:
        _be_child(words, log)
    ended, status, until = 0, 0, now_ns() + HANG_S * 1e9
    while not ended and now_ns() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if not ended:
            time.sleep(0.005)
    if not ended:
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
    output = log.read_text(errors="replace")
    if not ended:
        return "hang", output
    if os.WIFSIGNALED(status):
        return f"signal {signal.Signals(os.WTERMSIG(status)).name}", output
    code = os.waitstatus_to_exitcode(status)
    if code not in expected or "Traceback" in output:
        return f"exit code {code}", output
    if code and len([line for line in output.splitlines() if line.startswith("hotloop: ")]) != 1:
        return "not one line", output
    return "", output


def _be_child(words: list[str], log: Path) -> None:
    os.setsid()
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, used + MEMORY_BYTES))
    spent = int(time.process_time()) + CPU_S
    resource.setrlimit(resource.RLIMIT_CPU, (spent, spent + 5))
    code = 99
    try:
        from hotloop.cli.main import main

        code = main(words)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 98
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _damage(rng: np.random.Generator, path: Path, originals: dict[str, Path]) -> str:
    """Damage a checkpoint; return a description of the damage."""
    kinds: list[Callable[..., str]] = [_value, _entry, _bytes, _signed_bytes, _replace_file, _outer]
    kind = kinds[int(rng.choice(len(kinds), p=[0.45, 0.2, 0.1, 0.1, 0.1, 0.05]))]
    return kind(rng, path, originals) if kind is _replace_file else kind(rng, path)


def _bytes(rng: np.random.Generator, path: Path) -> str:
    """Change bytes of a file, but no digest."""
    file = _pick(rng, path)
    data, what = _changed(rng, file.read_bytes())
    file.write_bytes(data)
    return f"{file.name}: {what}"


def _signed_bytes(rng: np.random.Generator, path: Path) -> str:
    """Change bytes of an array file, half of the time in its header, and recompute its digest."""
    import hashlib

    file = _pick(rng, path, arrays=True)
    data = file.read_bytes()
    head = 8 + int.from_bytes(data[:8], "little")
    if rng.random() < 0.5:
        part, what = _changed(rng, data[:head])
        data = part + data[head:]
    else:
        data, what = _changed(rng, data)
    file.write_bytes(data)
    outer = json.loads((path / META).read_text())
    outer["digests"][file.name] = hashlib.sha256(data).hexdigest()
    _write_outer(path, outer)
    return f"{file.name}: {what}, with its digest"


def _changed(rng: np.random.Generator, data: bytes) -> tuple[bytes, str]:
    place, some = int(rng.integers(max(1, len(data)))), bytes(rng.integers(0, 256, int(rng.integers(1, 40)), np.uint8))
    what = str(rng.choice(["flip", "cut", "zero", "insert", "empty"], p=[0.5, 0.15, 0.15, 0.15, 0.05]))
    if what == "flip":
        changed = bytearray(data or b"\x00")
        changed[place] ^= 1 << int(rng.integers(8))
        return bytes(changed), f"a bit of byte {place} flipped"
    if what == "cut":
        return data[:place], f"cut at {place}"
    if what == "zero":
        return data[:place] + bytes(len(some)) + data[place + len(some) :], f"{len(some)} bytes from {place} zero"
    return (b"", "empty") if what == "empty" else (data[:place] + some + data[place:], f"bytes inserted at {place}")


def _value(rng: np.random.Generator, path: Path) -> str:
    """Change some numbers of an array, its shape or its type."""
    found = checkpoint.read(path)
    groups = {name: dict(arrays) for name, arrays in found.groups.items()}
    # Integers address memory, but most arrays are float weights: each type gets half of the tries.
    wanted = "iu" if rng.random() < 0.5 else "fb"
    known = [(name, key) for name, each in groups.items() for key in each if each[key].dtype.kind in wanted]
    group, key = known[int(rng.integers(len(known)))]
    array = np.array(groups[group][key])
    what = str(
        rng.choice(["number", "all", "type", "shape", "missing", "more"], p=[0.75, 0.05, 0.05, 0.05, 0.05, 0.05])
    )
    if what == "missing":
        del groups[group][key]
    elif what == "more":
        groups[group]["../x"] = array
    elif what == "type":
        kinds = (np.float64, np.int8, np.uint64, np.bool_, np.float16)
        groups[group][key] = np.nan_to_num(array).astype(kinds[int(rng.integers(len(kinds)))])
    elif what == "shape":
        groups[group][key] = array.reshape(-1)[: int(rng.integers(array.size + 1))]
    else:
        number = _hostile_number(rng, array.dtype)
        where: Any = ...
        if what == "number" and array.size:
            # One entry, or the same entry of all rows: a row often holds numbers of one game or step.
            where = tuple(int(rng.integers(each)) for each in array.shape)
            where = (..., where[-1]) if array.ndim > 1 and rng.random() < 0.5 else where
        array[where] = number
        what = f"{where} = {number}"
        groups[group][key] = array
    checkpoint.write(path, groups, found.meta)
    return f"{group}.{key}: {what}"


def _hostile_number(rng: np.random.Generator, dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "f":
        return rng.choice([np.nan, np.inf, -np.inf, -1.0, 0.0, 1e30, 1e-40]).astype(dtype)
    if dtype.kind == "b":
        return bool(rng.integers(2))
    limits = np.iinfo(dtype)
    numbers = [limits.min, limits.max, limits.max // 2, 0, 1, 7, 63, 64, int(rng.integers(min(limits.max, 1 << 62)))]
    return dtype.type(numbers[int(rng.integers(len(numbers)))])


def _entry(rng: np.random.Generator, path: Path) -> str:
    """Replace or remove a JSON value at any depth, and recompute the digest."""
    outer = json.loads((path / META).read_text())
    where, places = outer, []
    while True:
        keys = list(where) if isinstance(where, dict) else list(range(len(where)))
        key = keys[int(rng.integers(len(keys)))]
        places.append(str(key))
        if not isinstance(where[key], dict | list) or not where[key] or rng.random() < 0.15:
            break
        where = where[key]
    if rng.random() < 0.15:
        del where[key]
        what = "removed"
    elif rng.random() < 0.1:
        deep: Any = 1
        for _ in range(int(rng.choice([30, 900, 100_000]))):
            deep = [deep]
        where[key], what = None, "nested"
        text = _dumped(outer | {"digest": "0"}).replace("null", "[" * 50_000 + "]" * 50_000, 1)
        (path / META).write_text(text)
        return f"{META} {'.'.join(places)}: {what}"
    else:
        where[key] = HOSTILE[int(rng.integers(len(HOSTILE)))]
        what = f"{where[key]!r:.40}"
    _write_outer(path, outer)
    return f"{META} {'.'.join(places)}: {what}"


def _outer(rng: np.random.Generator, path: Path) -> str:
    """Make the digests name another file, or replace the JSON."""
    import hashlib

    outer = json.loads((path / META).read_text())
    name = str(rng.choice(["../x.safetensors", "/etc/hostname", "a/b.safetensors", "..", "", "x.safetensors", META]))
    (path.parent / "x.safetensors").write_bytes(b"")
    outer["digests"][name] = hashlib.sha256(b"").hexdigest()
    _write_outer(path, outer)
    return f"{META} names {name!r}"


def _replace_file(rng: np.random.Generator, path: Path, originals: dict[str, Path]) -> str:
    """Replace a file by something else."""
    file = _pick(rng, path)
    other = _pick(rng, originals[str(rng.choice(list(originals)))])
    file.unlink()
    what = str(rng.choice(["removed", "swapped", "link", "pipe", "directory", "sparse"]))
    if what == "swapped":
        shutil.copyfile(other, file)
    elif what == "link":
        file.symlink_to(other)
    elif what == "pipe":
        os.mkfifo(file)
    elif what == "directory":
        file.mkdir()
    elif what == "sparse":
        with file.open("wb") as stream:
            stream.truncate(1 << 42)
    return f"{file.name}: {what}"


def _pick(rng: np.random.Generator, path: Path, arrays: bool = False) -> Path:
    files = sorted(each for each in path.iterdir() if not arrays or each.suffix == SUFFIX)
    return files[int(rng.integers(len(files)))]


def _write_outer(path: Path, outer: Any) -> None:
    """Write the JSON, with its digest if one can be computed."""
    try:
        digest = _digest_of({name: value for name, value in outer.items() if name != "digest"})
    except (ValueError, TypeError):
        digest = "0" * 64
    (path / META).write_text(_dumped({**outer, **({"digest": digest} if "digest" in outer else {})}))


def _dumped(value: Any) -> str:
    return json.dumps(value).replace("Infinity", "1e999")


def main() -> int:
    """Fuzz and print what went wrong; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.0, help="stop after this time; 0: no limit")
    parser.add_argument("--pipelines", nargs="+", default=list(FLAGS), choices=list(FLAGS))
    parser.add_argument("--report", type=Path, help="fuzz in this process and write the failures to this file")
    options = parser.parse_args()
    if options.report:
        with tempfile.TemporaryDirectory(prefix="hotloop-fuzz-") as folder:
            chosen = (options.count, options.seed, options.seconds, options.pipelines)
            found = _fuzz(*chosen, Path(folder))
        options.report.write_text(json.dumps([asdict(each) for each in found]))
        return 0
    failures = fuzz_checkpoints(options.count, options.seed, options.seconds, options.pipelines)
    for each in failures:
        print(f"{each.number}: {each.problem}: {each.damage}\n  hotloop {each.command}\n{each.output}\n")
    print(f"{len(failures)} failures in up to {options.count} damaged checkpoints")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
