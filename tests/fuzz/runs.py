"""Fuzzing of run directories: every command that reads a damaged run must print a report or one clear line.

    python tests/fuzz/runs.py --count 2000 --seed 0

Real runs are recorded once. Each case is a damaged copy of one, read by every command in a forked child with limits on
memory and time. A case fails on a traceback, a signal, an exit code other than 0 or 2, invalid JSON, or a timeout.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.fuzz.damage import Chooser, damage  # noqa: E402
from tests.scripted import scripted_run  # noqa: E402

from hotloop.clock import now_ns  # noqa: E402

TIMEOUT_NS = 60_000_000_000
MEMORY = 2 << 30
CHARTS_EVERY = 8
"""Charts take longer than all other commands combined."""
PLAIN = """
import time
from hotloop import count, span
total = 0
for i in range(int(150)):
    with span("rollout"):
        with span("env.step"):
            count("env_steps")
            time.sleep(0.004)
        with span("replay.add"):
            total += sum(range(2000))
    if i % 20 == 19:
        with span("loss"):
            count("updates")
            count("episodes")
            time.sleep(0.01)
        with span("evaluate"), span("env.step"):
            count("env_steps")
        print(f"step {i}: loss took {0.01:.3f} s")
"""
WORKERS = """
import multiprocessing, time
from hotloop import count, span

def work(n):
    for _ in range(n):
        with span("env.step"):
            count("env_steps")
            time.sleep(0.005)

if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=work, args=(150,)) for _ in range(2)]
    for each in workers:
        each.start()
    while any(each.is_alive() for each in workers):
        with span("learn"):
            count("updates")
            time.sleep(0.02)
    for each in workers:
        each.join()
"""
LOOKS = """
import time, torch
from hotloop import count, span
torch.set_num_threads(1)
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))
optimiser = torch.optim.Adam(net.parameters())
until = time.time() + 1.2
while time.time() < until:
    with span("env.step"):
        count("env_steps")
        x = torch.randn(4, 8)
    loss = net(x).square().mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    print(f"  forward: {0.5:.2f} ms")
"""
OBSERVED = {
    "places": [
        {
            "id": i, "file": "plain.py", "function": "f", "first_line": 1, "line": i, "end_line": i, "column": 0,
            "end_column": 9, "operation": "CALL", "callee": "torch.stack", "operands": ["list of 9 × tensor int8 [2]"],
        }
        for i in range(1, 20)
    ],
    "windows": [{"counts": {"env_steps": 7}, "rows": ["3 1 2 5 6 7", "4 1 1 7 8"]}] * 3,
}  # fmt: skip
"""As a recorder on any version of Python would write it, had it followed the main thread."""
RECORDED = (
    ("plain", PLAIN, ()),
    ("workers", WORKERS, ()),
    ("looks", LOOKS, ("--functions", "5", "--ops", "5", "--modules", "2", "--warmup", "5")),
)


def record_runs(folder: Path) -> list[Path]:
    """Record the runs to damage."""
    going = []
    for name, script, options in RECORDED:
        (folder / f"{name}.py").write_text(script)
        words = [sys.executable, "-m", "hotloop", "run", *options, "--out", str(folder / name), f"{name}.py"]
        going.append(subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    codes = [each.wait(timeout=120) for each in going]
    if any(codes):
        raise RuntimeError("the runs to be damaged could not be recorded")
    return [*(folder / name for name, _, _ in RECORDED), _script_long_run(folder / "long")]


def _script_long_run(folder: Path) -> Path:
    """Record a run of many windows with steps that become slower, using a simulated clock."""
    ms = 1_000_000
    with pytest.MonkeyPatch.context() as patch, scripted_run(folder, patch) as run:
        for second in range(24):
            for _ in range(4):
                with run.open("rollout"):
                    for _ in range(5):
                        run.during("env.step", (20 + second) * ms, "env_steps")
                    run.during("env.reset", 2 * ms, "episodes")
                run.spend(5 * ms)
                run.during("loss", 50 * ms, "updates")
            run.second()
        run.recorder._writer.totals(run.recorder.accounts)
    (folder / "process" / "observed.json").write_text(json.dumps(OBSERVED))
    return folder


def fuzz_runs(count: int, seed: int, seconds: float | None = None, thorough: bool = True) -> list[str]:
    """Damage runs at random and read them; return the failures, each with how to reproduce it.

    Args:
        count: Number of cases.
        seed: Random seed.
        seconds: Stop early after this time.
        thorough: Read each case with every command, not only some.
    """
    failures: list[str] = []
    with tempfile.TemporaryDirectory(prefix="hotloop-fuzz-") as place:
        folder = Path(place)
        recorded = record_runs(folder)
        _import_all()
        began = now_ns()
        for number in range(count):
            if seconds is not None and now_ns() - began > seconds * 1e9:
                break
            for each in run_case(folder, recorded, seed, number, thorough):
                failures.append(f"--seed {seed} --only {number}: {each}")
                print(failures[-1], file=sys.stderr, flush=True)
            if number % 100 == 99:
                print(f"{number + 1} cases, {len(failures)} failures", file=sys.stderr, flush=True)
    return failures


def run_case(folder: Path, recorded: list[Path], seed: int, number: int, thorough: bool = True) -> list[str]:
    """Create and read one case; return its failure."""
    chosen = None if thorough else number
    return try_damaged(folder, recorded, random.Random(f"{seed} {number}"), number % CHARTS_EVERY == 0, chosen)


def try_damaged(
    folder: Path, recorded: list[Path], choose: Chooser, charts: bool = False, chosen: int | None = None
) -> list[str]:
    """Damage a copy of a run and read it; return the failure.

    Args:
        folder: Working directory.
        recorded: The runs to choose from.
        choose: Selects the run and its damage.
        charts: Also draw charts.
        chosen: Read it with `explain --json` and the command of this number; None for all commands.
    """
    root, out = folder / "runs", folder / "out"
    for each in (root, out):
        shutil.rmtree(each, ignore_errors=True)
        each.mkdir()
    run = root / "damaged"
    shutil.copytree(choose.choice(recorded), run)
    shutil.copytree(recorded[0], root / "sound")
    done = [damage(run, choose) for _ in range(1 + choose.randrange(3))]
    commands = _commands(root, run, out, charts)
    if chosen is not None:
        commands = [commands[0], commands[1 + chosen % (len(commands) - 1)]]
    problem = _in_child(commands, out)
    return [f"{', '.join(done)}: {problem}"] if problem else []


def _commands(root: Path, run: Path, out: Path, charts: bool) -> list[list[str]]:
    explain = ["explain", str(run), "--json", "--detailed", str(out / "all.json"), "--output", str(out / "report.txt")]
    return [
        explain,
        ["ls", "--dir", str(root)],
        ["ls", "--dir", str(root), "--json"],
        ["prune", "--dir", str(root), "--keep", "0", "--dry-run", "--json"],
        ["explain", str(run), *(["--charts", str(out / "charts.png")] if charts else [])],
        *(
            ["export", str(run), "--to", to, "--output", str(out / f"export-{to}"), "--json"]
            for to in ("perfetto", "speedscope", "csv", "tensorboard")
        ),
    ]


def _in_child(commands: list[list[str]], out: Path) -> str:
    """Run commands in a forked child; return what went wrong, or ""."""
    child = os.fork()
    if child == 0:
        os._exit(_run_commands(commands, out))
    until = now_ns() + TIMEOUT_NS
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            break
        if now_ns() > until:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return f"hangs in: {_text(out / 'command')}"
        time.sleep(0.005)
    code = os.waitstatus_to_exitcode(status)
    if code == 0:
        return ""
    return f"{_text(out / 'command')}: {_text(out / 'problem') or f'ended by signal {-code}'}"


def _run_commands(commands: list[list[str]], out: Path) -> int:
    """Run commands in this process with a memory limit; return 0 if all ended properly."""
    from hotloop.cli.main import main

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for words in commands:
        (out / "command").write_text(" ".join(words))
        with (
            open(out / "stdout", "w+") as stdout,
            open(out / "stderr", "w+") as stderr,
            contextlib.redirect_stdout(stdout),
            contextlib.redirect_stderr(stderr),
        ):
            try:
                code: object = main(words)
            except BaseException as error:
                import traceback

                last = traceback.extract_tb(error.__traceback__)[-1]
                code = f"{type(error).__name__}: {error} ({last.filename}:{last.lineno})"
        problem = _problem(code, words, _text(out / "stdout"), _text(out / "stderr"))
        if problem:
            (out / "problem").write_text(problem, errors="backslashreplace")
            return 1
    return 0


def _problem(code: object, words: list[str], stdout: str, stderr: str) -> str:
    if code not in (0, 2):
        return f"exit code {code}: {stderr[-500:]}"
    if "Traceback" in stderr or "Warning: " in stderr:
        return stderr[-1000:]
    if code == 2 and sum(line.startswith("hotloop: ") for line in stderr.splitlines()) != 1:
        return f"not one line of explanation: {stderr[-500:]!r}"
    if words[0] in ("ls", "prune") and code != 0:
        return f"one bad run breaks the command for all: {stderr[-500:]}"
    if code == 0 and "--json" in words:
        try:
            json.loads(stdout, parse_constant=_refuse)
        except ValueError as error:
            return f"no valid JSON ({error}): {stdout[:200]!r}"
    return ""


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def _import_all() -> None:
    """Import the dependencies of the commands before forking."""
    import hotloop.cli.explain
    import hotloop.cli.export
    import hotloop.cli.ls
    import hotloop.cli.prune
    import hotloop.profiling.diagnosis
    import hotloop.profiling.report.charts
    import hotloop.profiling.report.export.perfetto
    import hotloop.profiling.report.export.scalars
    import hotloop.profiling.report.export.speedscope
    import hotloop.profiling.report.export.tables
    import hotloop.profiling.report.text
    import hotloop.profiling.trace.load  # noqa: F401

    with contextlib.suppress(ImportError):
        from tensorboard.compat.proto import event_pb2  # noqa: F401
        from tensorboard.summary.writer import record_writer  # noqa: F401


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, help="stop early after this time")
    parser.add_argument("--only", type=int, metavar="N", help="repeat case N")
    arguments = parser.parse_args()
    if arguments.only is not None:
        with tempfile.TemporaryDirectory(prefix="hotloop-fuzz-") as place:
            recorded = record_runs(Path(place))
            _import_all()
            failures = run_case(Path(place), recorded, arguments.seed, arguments.only)
    else:
        failures = fuzz_runs(arguments.count, arguments.seed, arguments.seconds)
    print(f"{len(failures)} failures")
    for each in failures:
        print(each)
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
