"""How well profilers know lines: the shares of a loop's parts against the loop's own clock, and what recording costs.

The scripts in `scripts/lines` time their own parts. Each runs plainly, by `hotloop run`, under py-spy and Scalene. A
share is held against the clock of the same run, so that the speed of the machine does not matter. A tool may also
change what it looks at: that is its distortion, the difference between the clocks with and without it.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from measure import SCHEMA, machine, say

HOTLOOP = Path(sys.executable).with_name("hotloop")
SCRIPTS = Path(__file__).with_name("scripts") / "lines"
CLOCK = "loop_clock.py"
HZ = 200
LARGE = 2.0
"""Points from which an error is marked."""
FRAME = re.compile(r"(?P<function>.*) \((?P<file>.*):(?P<line>\d+)\)")
Shares = dict[str, float]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a loop, by the loop's own clock."""

    share: float
    lines: tuple[int, int]
    function: str | None = None
    own: bool = True
    """Whether it is plain own code, which is in no phase of training."""

    def has(self, line: int) -> bool:
        return self.lines[0] <= line <= self.lines[1]


@dataclass(frozen=True, slots=True)
class Truth:
    """What a script knows of its own loop."""

    script: str
    parts: dict[str, Part]
    loop: tuple[int, int]
    steps_per_s: float


@dataclass(frozen=True, slots=True)
class Seen:
    """What a tool saw of a run; no shares if it only ran."""

    truth: Truth
    shares: Shares = field(default_factory=dict)
    misplaced: tuple[str, ...] = ()
    """Lines of plain own code that are in a phase of training."""

    @property
    def errors(self) -> Shares:
        """By part, in points."""
        return {name: 100 * (self.shares[name] - self.truth.parts[name].share) for name in self.shares}


@dataclass(frozen=True, slots=True)
class Job:
    """A script to run, and where to put what it leaves."""

    script: Path
    seconds: float
    folder: Path
    peers: str | None
    """Folder of the programs py-spy and scalene; None for those on PATH."""

    @property
    def words(self) -> list[str]:
        return [str(self.script), str(self.seconds)]

    def peer(self, name: str) -> str:
        found = shutil.which(name, path=self.peers)
        if found is None:
            raise Unavailable(f"{name} is not installed: give --peers the folder that has it")
        return found


class Unavailable(Exception):
    """A tool does not work here."""


def read_truth(script: str, output: str) -> Truth:
    """Find the line of JSON that a script prints at its end."""
    line = next((each for each in reversed(output.splitlines()) if each.startswith('{"parts"')), None)
    if line is None:
        raise ValueError(f"{script} printed no truth, but {output[-200:]!r}")
    found = json.loads(line)
    parts = {name: Part(**each | {"lines": tuple(each["lines"])}) for name, each in found["parts"].items()}
    return Truth(script, parts, tuple(found["loop"]), found["steps"] / found["seconds"])


def by_hotloop(explained: Mapping, truth: Truth) -> tuple[Shares, tuple[str, ...]]:
    """Return the shares of the parts in `explain --json`, and the lines of own code that are in a phase."""
    lines = [row for row in explained["lines"] if Path(row["file"]).name == truth.script]
    functions = [row for row in explained["functions"] if Path(row["file"]).name == truth.script]
    shares, misplaced = {}, []
    for name, part in truth.parts.items():
        mine = [row for row in lines if part.has(row["line"])]
        same = [row for row in functions if row["function"] == part.function]
        shares[name] = sum(row["share"] for row in (same if part.function else mine))
        misplaced += [
            f"{truth.script}:{row['line']} ({name}): {100 * row['share']:.1f} % in {row['phase']!r}"
            for row in mine
            if part.own and row["phase"] != "own code"
        ]
    return shares, tuple(misplaced)


def by_py_spy(raw: str, truth: Truth) -> Shares:
    """Return the shares of the parts among the stacks of `py-spy record -f raw` that are in the loop."""
    whole, sums = 0, dict.fromkeys(truth.parts, 0)
    for row in raw.splitlines():
        stack, _, count = row.rpartition(" ")
        frames = [match for each in stack.split(";") if (match := FRAME.fullmatch(each))]
        lines = [(Path(each["file"]).name, int(each["line"])) for each in frames]
        # The clock's own lines are innermost, too, where it is called.
        lines = [(file, line) for file, line in lines if file in (truth.script, CLOCK)]
        mine = [line for file, line in lines if file == truth.script]
        if not any(truth.loop[0] <= line <= truth.loop[1] for line in mine):
            continue
        whole += int(count)
        innermost = mine[-1:] if lines[-1][0] == truth.script else []
        for name, part in truth.parts.items():
            if any(part.has(line) for line in (mine if part.function else innermost)):
                sums[name] += int(count)
    return {name: n / whole if whole else 0.0 for name, n in sums.items()}


def by_scalene(profile: Mapping, truth: Truth) -> Shares:
    """Return the shares of the parts in Scalene's JSON, of all lines that are not imports."""
    whole, sums = 0.0, dict.fromkeys(truth.parts, 0.0)
    for file, content in profile.get("files", {}).items():
        for row in content["lines"]:
            percent = row["n_cpu_percent_python"] + row["n_cpu_percent_c"] + row["n_sys_percent"]
            if Path(file).name not in (truth.script, CLOCK) or row["line"].startswith(("import ", "from ")):
                continue
            whole += percent
            for name, part in truth.parts.items():
                if Path(file).name == truth.script and part.has(row["lineno"]):
                    sums[name] += percent
    return {name: percent / whole if whole else 0.0 for name, percent in sums.items()}


def distortion(seen: Seen, plain: Seen) -> float:
    """Return the largest change of a part's true share by being recorded, in points."""
    parts = plain.truth.parts
    return max(abs(100 * (part.share - parts[name].share)) for name, part in seen.truth.parts.items())


def alone(job: Job) -> Seen:
    return Seen(_run(job, [sys.executable, *job.words]))


def hotloop(job: Job) -> Seen:
    out = str(job.folder / "run")
    truth = _run(job, [str(HOTLOOP), "run", "--out", out, *job.words])
    explained = subprocess.run([HOTLOOP, "explain", "--json", out], capture_output=True, text=True)
    if explained.returncode:
        raise Unavailable(f"explain failed: {explained.stderr[-200:]}")
    return Seen(truth, *by_hotloop(json.loads(explained.stdout), truth))


def py_spy(job: Job) -> Seen:
    out = job.folder / "stacks.txt"
    options = ["-f", "raw", "--rate", str(HZ), "--idle", "--full-filenames", "-o", str(out)]
    truth = _run(job, [job.peer("py-spy"), "record", *options, "--", sys.executable, *job.words])
    return Seen(truth, by_py_spy(out.read_text(encoding="utf-8"), truth))


def scalene(job: Job) -> Seen:
    out = job.folder / "scalene.json"
    options = ["--cpu-only", "--cpu-percent-threshold", "0", "-o", str(out)]
    truth = _run(job, [job.peer("scalene"), "run", *options, job.words[0], "---", job.words[1]])
    return Seen(truth, by_scalene(json.loads(out.read_text(encoding="utf-8")), truth))


TOOLS: dict[str, Callable[[Job], Seen]] = {"plain": alone, "hotloop": hotloop, "py-spy": py_spy, "scalene": scalene}
PROFILERS = [name for name in TOOLS if name != "plain"]


def _run(job: Job, command: list[str]) -> Truth:
    done = subprocess.run(command, capture_output=True, text=True, cwd=job.folder)
    try:
        return read_truth(job.script.name, done.stdout)
    except ValueError as error:
        raise Unavailable(f"{Path(command[0]).name} failed on {job.script.name}: {done.stderr[-400:]}") from error


def measure(scripts: Iterable[Path], seconds: float, peers: str | None) -> dict[str, dict[str, Seen]]:
    """Run each script plainly and with each tool; return what was seen by script and tool."""
    found: dict[str, dict[str, Seen]] = {}
    for script in scripts:
        for name, tool in TOOLS.items():
            with tempfile.TemporaryDirectory() as folder:
                try:
                    seen = tool(Job(script, seconds, Path(folder), peers))
                except Unavailable as error:
                    say(f"{script.stem}, {name}: {error}")
                    continue
            found.setdefault(script.stem, {})[name] = seen
            worst = max(map(abs, seen.errors.values()), default=0.0)
            say(f"{script.stem}, {name}: {seen.truth.steps_per_s:.0f} steps/s, largest error {worst:.1f} points")
    return found


def table(found: Mapping[str, Mapping[str, Seen]]) -> list[list[str]]:
    """One row a part; each tool's share with its error, in per cent and points. Truth is that of hotloop's run."""
    rows = [["script", "part", "truth", *PROFILERS]]
    for script, tools in found.items():
        truth = (tools.get("hotloop") or next(iter(tools.values()))).truth
        for part, each in truth.parts.items():
            cells = [_cell(tools.get(name), part) for name in PROFILERS]
            rows.append([script, part, f"{100 * each.share:.1f}", *cells])
    return rows


def _cell(seen: Seen | None, part: str) -> str:
    if seen is None:
        return "none"
    error = seen.errors[part]
    return f"{100 * seen.shares[part]:.1f} ({error:+.1f}){' !' if abs(error) >= LARGE else ''}"


def totals(found: Mapping[str, Mapping[str, Seen]]) -> list[list[str]]:
    """One row a tool: its largest and mean error, its distortion and its cost."""
    rows = [["tool", "largest error", "mean error", "largest distortion", "slow-down", "largest slow-down"]]
    for name in PROFILERS:
        tools = {script: each for script, each in found.items() if name in each and "plain" in each}
        errors = {f"{s}, {p}": abs(e) for s, each in tools.items() for p, e in each[name].errors.items()}
        if not errors:
            continue
        worst = max(errors, key=errors.__getitem__)
        bent = {script: distortion(each[name], each["plain"]) for script, each in tools.items()}
        slow = {s: each["plain"].truth.steps_per_s / each[name].truth.steps_per_s for s, each in tools.items()}
        most, slowest = max(bent, key=bent.__getitem__), max(slow, key=slow.__getitem__)
        rows.append(
            [
                name,
                f"{errors[worst]:.1f} ({worst})",
                f"{np.mean(list(errors.values())):.2f}",
                f"{bent[most]:.1f} ({most})",
                f"× {np.median(list(slow.values())):.3f}",
                f"× {slow[slowest]:.2f} ({slowest})",
            ]
        )
    return rows


def _print(rows: list[list[str]]) -> None:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print()


def main() -> None:
    known = {path.stem: path for path in sorted(SCRIPTS.glob("*.py")) if path.name != CLOCK}
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="of each run (default 60)")
    parser.add_argument("--quick", action="store_true", help="3 seconds each, to check that it runs")
    parser.add_argument(
        "--only", nargs="+", choices=known, default=list(known), metavar="SCRIPT", help=", ".join(known)
    )
    parser.add_argument("--peers", metavar="DIR", help="folder of the programs py-spy and scalene (default: PATH)")
    parser.add_argument("--json", action="store_true", help="print all that was seen as JSON instead of tables")
    arguments = parser.parse_args()
    seconds = 3.0 if arguments.quick else arguments.seconds
    found = measure([known[name] for name in arguments.only], seconds, arguments.peers)
    if arguments.json:
        seen = {script: {name: asdict(each) for name, each in tools.items()} for script, tools in found.items()}
        print(json.dumps({"schema": SCHEMA, "machine": machine(), "seconds": seconds, "scripts": seen}, indent=1))
        return
    print(f"\n{machine()}; {seconds:g} s each; shares in %, errors in points\n")
    _print(table(found))
    _print(totals(found))
    misplaced = [line for tools in found.values() if "hotloop" in tools for line in tools["hotloop"].misplaced]
    print("\n".join(["Own code in a phase of training:", *misplaced]) if misplaced else "No own code is in a phase.")


if __name__ == "__main__":
    main()
