"""How much slower is a script under `hotloop run`, and does `hotloop explain` say so?

Two plain processes and a recorded one of each script in `scripts/cost` take turns of 0.3 s in random order; the second
plain one shows how far two equal processes differ. A script ends its turn itself, at the first `tick()` after it is
asked to by a byte of shared memory: so turns hold whole iterations, and the check costs the same 0.1 µs in all three.
Then it stops with all its threads and children (SIGSTOP), so that nothing of the recorder runs in another's turn.

A recorder that is merely stopped would see three seconds pass for each that the script runs: its writing, which is due
by the clock, would cost three times as much, and its budget would allow three times as much. So before it stops, the
process tells its recorder that the time until it goes on has not been, as `correction.py` does. What `explain` says is
a share of the time from the first step to the last, rests included: it is scaled up to the time without them.

The recorder writes once a second and times some spans only in some blocks. A median over turns would leave out what
comes in a few of them, so the slow-down is the mean of the rounds' ratios, trimmed by a tenth at either end. The
median is shown, too: where the machine is shared, it varies less. So does the CPU time of the main thread per step: it
has what hooks and cold caches cost, but not the time in which the recorder's process takes a core from the script.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np
import psutil
from measure import SCHEMA, Estimate, Times, estimate, machine, mean_ratio_of, ratio_of, say
from scripts.cost import progress
from scripts.cost.progress import ASKED, BEGAN_NS, ENDED_NS, RESTED_NS, STEPS

from hotloop.clock import now_ns

SCRIPTS = Path(__file__).with_name("scripts") / "cost"
NAMES = tuple(sorted(path.stem for path in SCRIPTS.glob("*.py") if path.stem != "progress"))
NEEDS = {"sb3_dqn": "stable_baselines3"}
SECONDS, QUICK_SECONDS, TURN_S = 40.0, 2.0, 0.3
WARM_UP = 0.1
"""Part of the time of a script that each of its three processes runs before the turns begin."""
PLAIN, AGAIN, RECORDED = "plain", "plain again", "recorded"
HOTLOOP = [sys.executable, "-m", "hotloop"]
# Small networks on several threads of a shared machine measure the threads' waiting for each other.
SETTINGS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
HEADINGS = [
    "script",
    "slow-down (90 %)",
    "median (90 %)",
    "main thread CPU",
    "A/A (90 %)",
    "stated by explain",
    "difference",
    "start-up",
]
POLL_S = 0.001


@dataclass(frozen=True, slots=True)
class Cost:
    """What recording costs one script."""

    script: str
    slow_down: Estimate
    """Time per step, recorded / plain: a trimmed mean over rounds."""
    slow_down_median: Estimate
    cpu: Estimate
    """CPU time of the main thread per step, recorded / plain: a trimmed mean over rounds."""
    control: Estimate
    """Time per step of the two plain processes."""
    stated_share: float | None
    """What `explain` says recording took, as a share of the time that the script ran recorded; None if it failed."""
    step_us: float
    rounds: int
    start_up_s: float
    """Until the first `tick()`: of the faster plain process."""
    recorded_start_up_s: float

    @property
    def measured_share(self) -> float:
        """The slow-down as a share of the recorded time, as `explain` gives it."""
        return 1 - 1 / self.slow_down.value

    @property
    def difference_points(self) -> float | None:
        """Measured share - stated share, in percentage points: above 0, `explain` says too little."""
        return None if self.stated_share is None else 100 * (self.measured_share - self.stated_share)


class Player:
    """A process that takes turns."""

    def __init__(self, command: list[str], folder: Path, name: str) -> None:
        path = folder / name
        path.write_bytes(bytes(progress.BOARD_BYTES))
        self.board = progress.open_board(str(path))
        self.board[ASKED] = progress.REST
        self._errors = folder / f"{name}.err"
        environment = os.environ | SETTINGS | {progress.VARIABLE: str(path)}
        self._begin_ns = now_ns()
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, start_new_session=True
            )
        self._children: list[psutil.Process] = []
        self.cpu_ns: list[float] = []
        """CPU time of the main thread per step, by turn."""

    def start_up(self) -> float:
        """Wait until it rests after its first steps; return how long they took to come, in seconds."""
        self._await_rest()
        self._children = psutil.Process(self._process.pid).children(recursive=True)
        self._rest_children()
        return (self.board[ENDED_NS] - self._begin_ns) / 1e9

    def turn(self, seconds: float) -> float:
        """Run for a while; return the time of a step in ns."""
        before, cpu_ns = self.board[STEPS], self._main_cpu_ns()
        self.board[ASKED] = progress.GO
        os.killpg(self._process.pid, signal.SIGCONT)
        time.sleep(seconds)
        self.board[ASKED] = progress.REST
        self._await_rest()
        self._rest_children()
        steps = self.board[STEPS] - before
        self.cpu_ns.append((self._main_cpu_ns() - cpu_ns) / steps)
        return (self.board[ENDED_NS] - self.board[BEGAN_NS]) / steps

    def _main_cpu_ns(self) -> int:
        return int(Path(f"/proc/{self._process.pid}/task/{self._process.pid}/schedstat").read_text().split()[0])

    def leave(self) -> None:
        """End the script, in order."""
        self.board[ASKED] = progress.LEAVE
        os.killpg(self._process.pid, signal.SIGCONT)
        self._process.wait()

    def kill(self) -> None:
        """End the process and its children, if they still are."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def messages(self) -> str:
        """Return what it has printed."""
        return self._errors.read_text(encoding="utf-8", errors="replace").strip()

    def _await_rest(self) -> None:
        _, status = os.waitpid(self._process.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            raise RuntimeError(f"{self._process.args} ended during the bench: {self.messages()[-800:]}")

    def _rest_children(self) -> None:
        # A child waits for its next command, so it handles the signal at once.
        for child in self._children:
            child.send_signal(signal.SIGUSR1)
        while any(child.status() != psutil.STATUS_STOPPED for child in self._children):
            time.sleep(POLL_S)


@contextmanager
def players(script: str, folder: Path) -> Iterator[tuple[dict[str, Player], dict[str, float]]]:
    """Start the three processes of a script, one after the other; give them and their start-up times."""
    path = str(SCRIPTS / f"{script}.py")
    plain = [sys.executable, path]
    commands = {PLAIN: plain, RECORDED: [*HOTLOOP, "run", "--out", str(folder / "run"), path], AGAIN: plain}
    started: dict[str, Player] = {}
    start_up_s: dict[str, float] = {}
    try:
        for name, command in commands.items():
            started[name] = Player(command, folder, name)
            start_up_s[name] = started[name].start_up()
        yield started, start_up_s
    finally:
        for each in started.values():
            each.kill()


def measure_script(script: str, seconds: float) -> Cost:
    """Measure one script."""
    turn_s = min(TURN_S, seconds / 30)
    rounds = max(round(seconds * (1 - 3 * WARM_UP) / (3 * turn_s)), 2)
    with tempfile.TemporaryDirectory() as name, players(script, Path(name)) as (who, start_up_s):
        turns: dict[str, Callable[[float], float]] = {each: player.turn for each, player in who.items()}
        take_turns(turns, 1, WARM_UP * seconds)
        times = take_turns(turns, rounds, turn_s)
        rested_s = who[RECORDED].board[RESTED_NS] / 1e9
        for player in who.values():
            player.leave()
        if "stopped recording" in who[RECORDED].messages():
            raise RuntimeError(f"{script}: {who[RECORDED].messages()}")
        pair = slow_down_pair(times)
        cpu = slow_down_pair({each: np.array(player.cpu_ns[-rounds:]) for each, player in who.items()})
        return Cost(
            script=script,
            slow_down=estimate(mean_ratio_of, *pair),
            slow_down_median=estimate(ratio_of, *pair),
            cpu=estimate(mean_ratio_of, *cpu),
            control=estimate(mean_ratio_of, times[AGAIN], times[PLAIN]),
            stated_share=stated(Path(name) / "run", rested_s),
            step_us=float(np.median(times[PLAIN])) / 1e3,
            rounds=rounds,
            start_up_s=min(start_up_s[PLAIN], start_up_s[AGAIN]),
            recorded_start_up_s=start_up_s[RECORDED],
        )


def stated(run: Path, rested_s: float) -> float | None:
    """Return which share of a script's running time recording took, as `hotloop explain` says."""
    done = subprocess.run([*HOTLOOP, "explain", "--json", str(run)], capture_output=True, text=True)
    if done.returncode:
        say(f"true_cost: hotloop explain FAILED with {done.returncode}: {done.stderr.strip()[-800:]}")
        return None
    found = json.loads(done.stdout)
    return share_without_rests(found["overhead_share"], found["wall_s"], rested_s)


def take_turns(turns: dict[str, Callable[[float], float]], rounds: int, seconds: float) -> dict[str, Times]:
    """Let all take one turn a round, in random order; return ns per step by name, `[rounds]`."""
    order, shuffle = list(turns), random.Random(1).shuffle
    times = {name: np.empty(rounds) for name in order}
    for i in range(rounds):
        shuffle(order)
        for name in order:
            times[name][i] = turns[name](seconds)
    return times


def slow_down_pair(times: dict[str, Times]) -> tuple[Times, Times]:
    """Pair each recorded turn with the mean of the plain turns beside it: (recorded, plain), in ns per step."""
    return times[RECORDED], (times[PLAIN] + times[AGAIN]) / 2


def share_without_rests(share: float, wall_s: float, rested_s: float) -> float:
    """Turn a share of the time from first step to last into a share of the time in which the script ran.

    Args:
        share: Share of `wall_s` that recording took.
        wall_s: From the first step to the last.
        rested_s: How much of it the script was stopped.
    """
    if not 0 <= rested_s < wall_s:
        raise ValueError(f"rested {rested_s:.3f} s of {wall_s:.3f} s: the recording must include all rests")
    return share * wall_s / (wall_s - rested_s)


def cells(cost: Cost) -> list[str]:
    """The row of a script as text."""
    difference = cost.difference_points
    return [
        cost.script,
        _interval(cost.slow_down),
        _interval(cost.slow_down_median),
        _interval(cost.cpu),
        _interval(cost.control),
        *(("failed", "") if difference is None else (f"{100 * cost.stated_share:.2f} %", f"{difference:+.2f} points")),
        f"{cost.recorded_start_up_s:.2f} s (plain {cost.start_up_s:.2f} s)",
    ]


def _interval(found: Estimate) -> str:
    return f"{found.value:.3f} ({found.low:.3f} to {found.high:.3f})"


def summary(costs: list[Cost]) -> str:
    """The last line: the middle, and the worst."""
    middle = median(cost.slow_down.value for cost in costs)
    high, script = max((cost.slow_down.high, cost.script) for cost in costs)
    text = f"median slow-down {middle:.3f}, worst upper end {high:.3f} ({script})"
    known = [(cost.difference_points, cost.script) for cost in costs if cost.difference_points is not None]
    if known:
        points, script = max(known, key=lambda each: abs(each[0]))
        text += f", worst difference {points:+.2f} points ({script})"
    return text if len(known) == len(costs) else f"{text}; explain FAILED for {len(costs) - len(known)}"


def print_table(costs: list[Cost]) -> None:
    """Print all, aligned."""
    lines = [HEADINGS, *map(cells, costs)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    print(f"\n{summary(costs)}")


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", metavar="NAME", action="append", choices=NAMES, help=f"one of {', '.join(NAMES)}")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"for each script (default {SECONDS:.0f})")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_SECONDS:.0f} seconds, to check that it runs")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    costs = []
    for name in arguments.only or NAMES:
        if name in NEEDS and importlib.util.find_spec(NEEDS[name]) is None:
            say(f"true_cost: SKIPPED {name}: {NEEDS[name]} is MISSING")
            continue
        costs.append(measure_script(name, QUICK_SECONDS if arguments.quick else arguments.seconds))
        say(f"true_cost: {'  '.join(cells(costs[-1]))}")
    import torch  # noqa: F401  so that its version is in the line on the machine

    if arguments.json:
        derived = [{"difference_points": each.difference_points, "machine": machine()} for each in costs]
        print(json.dumps([{"schema": SCHEMA} | asdict(c) | d for c, d in zip(costs, derived, strict=True)], indent=1))
        return
    print(f"\n{machine()}\n")
    print_table(costs)


if __name__ == "__main__":
    main()
