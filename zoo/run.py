"""Measure `hotloop explain` on the zoo: hits, false alarms, predicted and measured gains.

Each slow script is recorded and explained: is the planted cause ranked first, at the planted lines? So are its fixed
version and the clean loops: is there a false alarm? Then the slow and the fixed script run unrecorded, in turns of a
fraction of a second, and the ratio of their speeds is compared with the predicted gain.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

ZOO = Path(__file__).resolve().parent
HOTLOOP = Path(sys.executable).with_name("hotloop")
SCHEMA = 1
RECORD_S = 10.0
TURN_S, TURNS, PAIRS = 0.4, 10, 3
TWINS = ("slow.py", "fixed.py")
AFTER = "5s"
"""Skips imports and filling of buffers: gains are predicted and measured in the steady state."""
TIMEOUT_S = 300
LEAST_HITS, MOST_ERROR = 0.95, 0.1
FAILED = "(failed)"


Measuring = Literal["turns", "recorded", "none"]
"""How the gain of a fix is measured."""


@dataclass(frozen=True, slots=True)
class Case:
    """A folder of the zoo with its expected findings."""

    name: str
    folder: Path
    rule: str
    """The planted cause; "" in a clean loop."""
    file: str
    lines: tuple[int, ...]
    """First and last line to blame."""
    steps: int = 0
    """For drifting speeds: record and measure the same steps from the start, not a steady stretch."""
    informs: bool = False
    """Whether the planted fault costs no time: it must be found, but there is no gain to measure."""
    also: tuple[str, ...] = ()
    """Additional rules that must be found."""


@dataclass(frozen=True, slots=True)
class Result:
    """Findings in a case. `None`: not measured or not applicable."""

    case: str
    rule: str
    found: str
    """Rule of the first finding on the slow script; "" if there is none."""
    hit: bool | None
    """Whether the planted cause is ranked first or, if it costs no time, found at all."""
    line_hit: bool | None
    false_alarms: tuple[str, ...]
    """Rules of the findings on the fixed script or the clean loop."""
    predicted: float | None
    predicted_low: float | None
    predicted_high: float | None
    measured: float | None
    error: float | None
    """|predicted / measured - 1|."""


def read_cases(names: list[str]) -> list[Case]:
    """Read the named cases, or all."""
    found = {path.parent.name: path for path in sorted(ZOO.glob("*/truth.toml"))}
    unknown = [name for name in names if name not in found]
    if unknown:
        say(f"no such case: {', '.join(unknown)}. There are: {', '.join(found)}")
        sys.exit(2)
    cases = []
    for name in names or found:
        truth = tomllib.loads(found[name].read_text(encoding="utf-8"))
        where = truth["file"], tuple(truth["lines"])
        kind = truth.get("steps", 0), truth.get("informs", False), tuple(truth.get("also", ()))
        cases.append(Case(name, found[name].parent, truth["rule"], *where, *kind))
    return cases


def study(case: Case, measuring: Measuring, kept: Path) -> Result:
    """Record, explain and measure one case."""
    if not case.rule:
        alarms = explain(case, "clean.py", kept)["findings"]
        return Result(case.name, "", "", None, None, _rules(alarms), None, None, None, None, None)
    slow, fixed = (explain(case, script, kept) for script in TWINS)
    findings, alarms = slow["findings"], fixed["findings"]
    first = findings[0] if findings else {}
    planted = next((each for each in findings if each["rule"] == case.rule), None)
    missing = [rule for rule in case.also if rule not in _rules(findings)]
    if missing:
        say(f"{case.name}: {', '.join(missing)} not found in slow.py")
    if case.informs:
        detected = planted is not None and blames(case, planted) and not missing
        found = first.get("rule", "")
        return Result(case.name, case.rule, found, detected, detected, _rules(alarms), None, None, None, None, None)
    measured = None
    if measuring != "none":
        measured = measure_gain(case) if measuring == "turns" else unrecorded_speed(fixed) / unrecorded_speed(slow)
    gains = [planted[name] if planted else None for name in ("gain", "gain_low", "gain_high")]
    error = abs(gains[0] / measured - 1) if gains[0] and measured else None
    return Result(
        case.name, case.rule, first.get("rule", ""), first.get("rule") == case.rule and not missing,
        planted is not None and blames(case, planted), _rules(alarms), *gains, measured, error,
    )  # fmt: skip


def study_or_fail(case: Case, measuring: Measuring, kept: Path) -> Result:
    """Study one case; a case that fails counts as missed."""
    try:
        return study(case, measuring, kept)
    except (CaseFailed, subprocess.TimeoutExpired) as error:
        say(f"{case.name} failed: {error}")
        hit = False if case.rule else None
        alarms = () if case.rule else (FAILED,)
        return Result(case.name, case.rule, FAILED, hit, hit, alarms, None, None, None, None, None)


def explain(case: Case, script: str, kept: Path) -> dict[str, Any]:
    """Record a script of the case, unless a recording was kept; return its report."""
    run = kept / case.name / script.removesuffix(".py")
    if not run.exists():
        say(f"{case.name}: recording {script}")
        skip = [] if case.steps else ["--after", AFTER]
        length = ["--steps", str(case.steps)] if case.steps else ["--seconds", str(RECORD_S)]
        try:
            execute([HOTLOOP, "run", *skip, "--out", run, case.folder / script, *length])
        except (CaseFailed, subprocess.TimeoutExpired):
            shutil.rmtree(run, ignore_errors=True)  # an existing recording is assumed to be complete next time
            raise
    return json.loads(execute([HOTLOOP, "explain", run, "--json"]))


def unrecorded_speed(report: dict[str, Any]) -> float:
    """Return the environment steps per second of a recording, with the overhead subtracted."""
    return report["counts"]["env_steps"] / report["wall_s"] / (1 - report["overhead_share"])


def blames(case: Case, finding: dict[str, Any]) -> bool:
    """Return whether a finding points at the planted lines."""
    return Path(finding["file"]).name == case.file and case.lines[0] <= finding["line"] <= case.lines[-1]


def measure_gain(case: Case) -> float:
    """Run both scripts unrecorded in alternation; return the median ratio of their speeds.

    Two runs of the same script may differ by more than the gain of a fix, and so may the speed of the machine over
    time. So several pairs of processes take turns of a fraction of a second, one stopped while the other runs. For
    drifting speeds, whole runs are compared.
    """
    ratios = []
    for pair in range(PAIRS):
        say(f"{case.name}: timing both scripts, {pair + 1} of {PAIRS}")
        slow, fixed = run_whole(case) if case.steps else take_turns(case)
        ratios.append(fixed / slow)
    return statistics.median(ratios)


def run_whole(case: Case) -> list[float]:
    """Run both scripts for the same steps, one after the other; return their speeds."""
    commands = [[sys.executable, case.folder / script, "--steps", str(case.steps)] for script in TWINS]
    return [json.loads(execute(each).strip().splitlines()[-1])["env_steps_per_s"] for each in commands]


def take_turns(case: Case) -> list[float]:
    """Run both scripts in turns of a fraction of a second; return their speeds over all turns."""
    with contextlib.ExitStack() as stack:
        runners = [stack.enter_context(Runner(case.folder / script)) for script in TWINS]
        done = [[0.0, 0.0] for _ in runners]
        for _ in range(TURNS):
            for runner, so_far in zip(runners, done, strict=True):
                turn = runner.turn()
                so_far[0] += turn["env_steps"]
                so_far[1] += turn["seconds"]
    return [steps / seconds for steps, seconds in done]


class Runner:
    """A script that trains during its turns; all its processes are stopped in between."""

    def __init__(self, script: Path) -> None:
        self.script = script
        self.stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed in __exit__
        self.process = subprocess.Popen(
            [sys.executable, script, "--turns", "--seconds", str(TURN_S)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.stderr, text=True, start_new_session=True,
        )  # fmt: skip
        self.limit = threading.Timer(TIMEOUT_S, self._signal, [signal.SIGKILL])
        self.limit.start()
        try:
            self._wait()  # wait for the end of its warm-up
        except CaseFailed:
            self.__exit__()
            raise

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self._signal(signal.SIGKILL)
        self.limit.cancel()
        self.process.communicate()
        self.stderr.close()

    def turn(self) -> dict[str, float]:
        """Let it train for one turn; return its steps and seconds."""
        assert self.process.stdin is not None
        self._signal(signal.SIGCONT)
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self._wait()

    def _wait(self) -> dict[str, float]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith('{"env_steps"'):
                self._signal(signal.SIGSTOP)
                return json.loads(line)
        self.stderr.seek(0)
        raise CaseFailed(f"{self.script} ended before its turns did:\n{self.stderr.read().strip()[-1500:]}")

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


class CaseFailed(Exception):
    """A script or a command of a case failed."""


def execute(command: list[str | Path]) -> str:
    """Run a command; return its output.

    Raises:
        CaseFailed: It failed; the message has the end of its output.
    """
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    if done.returncode:
        words = " ".join(map(str, command))
        raise CaseFailed(f"{words}\nended with {done.returncode}:\n{done.stderr.strip()[-1500:]}")
    return done.stdout


def _rules(findings: list[dict[str, Any]]) -> tuple[str, ...]:
    return tuple(each["rule"] for each in findings)


def say(text: str) -> None:
    """Report progress, on stderr so that stdout is only the result."""
    print(text, file=sys.stderr, flush=True)


def totals(results: list[Result]) -> dict[str, Any]:
    """Count hits and false alarms; compute the median error."""
    errors = [each.error for each in results if each.error is not None]
    planted = [each for each in results if each.hit is not None]
    return {
        "cases": len(planted),
        "hits": sum(bool(each.hit) for each in planted),
        "line_hits": sum(bool(each.line_hit) for each in planted),
        "loops_without_cause": len(results),
        "false_alarms": sum(len(each.false_alarms) for each in results),
        "errors": len(errors),
        "median_error": statistics.median(errors) if errors else None,
    }


HEADINGS = ["case", "planted", "first finding", "line", "false alarms", "predicted", "measured", "error"]


def cells(result: Result) -> list[str]:
    """A result as text, for a table."""
    line = "" if result.line_hit is None else "yes" if result.line_hit else "no"
    predicted = ""
    if result.predicted is not None:
        predicted = f"{result.predicted:.2f} [{result.predicted_low:.2f}, {result.predicted_high:.2f}]"
    return [
        result.case,
        result.rule or "nothing",
        result.found or ("none" if result.rule else ""),
        line,
        ", ".join(result.false_alarms) or "none",
        predicted,
        f"{result.measured:.2f}" if result.measured is not None else "",
        f"{result.error:.0%}" if result.error is not None else "",
    ]


def summary(found: dict[str, Any]) -> str:
    """The totals as a sentence."""
    text = (
        f"Planted cause first in {found['hits']} of {found['cases']}, its lines named in {found['line_hits']}; "
        f"{found['false_alarms']} false alarms on {found['loops_without_cause']} loops without a planted cause"
    )
    if found["median_error"] is not None:
        text += f"; median error of the {found['errors']} predicted gains {found['median_error']:.1%}"
    text += ". A fault that costs no time has no gain by which it could be ranked"
    return f"{text}: it counts as found wherever it is listed."


def is_bad_news(found: dict[str, Any]) -> bool:
    """Return whether the results miss the project's targets."""
    too_far = found["median_error"] is not None and found["median_error"] > MOST_ERROR
    return found["hits"] < LEAST_HITS * found["cases"] or bool(found["false_alarms"]) or too_far


def print_table(results: list[Result]) -> None:
    """Print all results, aligned."""
    lines = [HEADINGS, *map(cells, results)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADINGS))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def main() -> int:
    """Run the zoo; return 1 on too many missed causes, any false alarm, or inaccurate gains."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("case", nargs="*", help="only these cases")
    parser.add_argument(
        "--quick", dest="measuring", action="store_const", const="none", help="do not measure the gains"
    )
    parser.add_argument(
        "--recorded", dest="measuring", action="store_const", const="recorded", default="turns",
        help="compute the gains from the speeds of the recordings: as fast as --quick, but less accurate",
    )  # fmt: skip
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the recordings; reuse existing ones")
    parser.add_argument("--json", action="store_true", help="print the results as JSON instead of a table")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        kept = arguments.keep or Path(folder)
        results = [study_or_fail(case, arguments.measuring, kept) for case in read_cases(arguments.case)]
    found = totals(results)
    if arguments.json:
        table = {"headings": HEADINGS, "rows": [cells(each) for each in results], "summary": summary(found)}
        print(json.dumps({"schema": SCHEMA, "results": list(map(asdict, results)), "totals": found, "table": table}))
    else:
        print_table(results)
        print(f"\n{summary(found)}")
    return int(is_bad_news(found))


if __name__ == "__main__":
    sys.exit(main())
