"""Run the benches and the zoo, and write their tables into docs/benchmarks.md.

Each runs in a process of its own, one after the other. Only what stands between a bench's two markers is rewritten, so
one bench can be run again without the others. Nothing else writes numbers into that page.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import torch  # noqa: F401  so that its version is in the line on the machine
from measure import HEADINGS, Row, cells, machine, say

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
PROGRAMS = {
    "spans": "bench/spans.py",
    "scale": "bench/scale.py",
    "attribution": "bench/attribution.py",
    "correction": "bench/correction.py",
    "zoo": "zoo/run.py",
    "cold_caches": "bench/cold_caches.py",
    "own_pipelines": "bench/own_pipelines.py",
    "snake_env": "bench/snake_env.py",
    "replay": "bench/replay.py",
    "dqn_update": "bench/dqn_update.py",
    "snake_training": "bench/snake_training.py",
    "snake_drift": "bench/snake_drift.py",
    "sb3_replay": "bench/sb3_replay.py",
    "carracing_env": "bench/carracing_env.py",
    "sac_update": "bench/sac_update.py",
    "sac_training": "bench/sac_training.py",
    "ricochet_env": "bench/ricochet_env.py",
    "ricochet_training": "bench/ricochet_training.py",
    "nes_env": "bench/nes_env.py",
    "collectors": "bench/collectors.py",
}


def run_bench(name: str, quick: bool) -> str:
    """Run one bench; return its section: command, machine, table."""
    words = [PROGRAMS[name], "--json", *(["--quick"] if quick else [])]
    done = subprocess.run([sys.executable, *words], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    # The zoo ends with 1 when it has bad news, which belongs into the page like good news.
    if not done.stdout.strip() or done.returncode not in ((0, 1) if name == "zoo" else (0,)):
        raise SystemExit(f"{PROGRAMS[name]} ended with {done.returncode} and no result; {PAGE.name} is as it was")
    found = json.loads(done.stdout)
    if name == "zoo":
        table = markdown(found["table"]["headings"], found["table"]["rows"]) + f"\n\n{found['table']['summary']}"
    else:
        table = markdown(HEADINGS, [cells(_row(each)) for each in found])
    command = f"python {PROGRAMS[name]}" + (" --quick" if quick else "")
    note = "A quick trial: these numbers show nothing.\n\n" if quick else ""
    return f"{note}`{command}`, {datetime.now(UTC):%Y-%m-%d}, {machine()}\n\n{table}"


def _row(entry: dict[str, object]) -> Row:
    return Row(**{name: value for name, value in entry.items() if name in Row.__dataclass_fields__})  # type: ignore[arg-type]


def markdown(headings: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def replace_section(page: str, name: str, section: str) -> str:
    """Put a section between the markers of a bench."""
    begin, end = f"<!-- bench: {name} -->", f"<!-- end: {name} -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if len(pattern.findall(page)) != 1:
        raise SystemExit(f"{PAGE.name} has no place for {name}: it needs one line {begin} and one {end}")
    return pattern.sub(lambda _: f"{begin}\n{section}\n{end}", page)


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("name", nargs="*", help=f"which of {', '.join(PROGRAMS)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="a trial: few repetitions")
    parser.add_argument("--print", action="store_true", help="print the sections and leave the page as it is")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.name if name not in PROGRAMS]
    if unknown:
        parser.error(f"no such bench: {', '.join(unknown)}; there are {', '.join(PROGRAMS)}")
    for name in arguments.name or PROGRAMS:
        say(f"== {name}")
        section = run_bench(name, arguments.quick)
        print(f"{section}\n", flush=True)
        if not arguments.print:
            PAGE.write_text(replace_section(PAGE.read_text(encoding="utf-8"), name, section), encoding="utf-8")


if __name__ == "__main__":
    main()
