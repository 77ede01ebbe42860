"""How much of the time does `hotloop explain` give to the right phase?

The scripts in `scripts/phases` measure their own parts and print them. They were written by an author who had not seen
hotloop. Of the time that a script gives to phases of reinforcement learning, `carried` is the share that the report
gives to the same phase; `wrong` is the share of all time that the report gives to a phase beyond what the script does.
Time that the report calls own code is neither.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import mean

from measure import say

SCRIPTS = Path(__file__).with_name("scripts") / "phases"
HOTLOOP = Path(sys.executable).with_name("hotloop")
NAMES = {"optimiser": "optimise", "target": "sync weights", "save": "checkpoint", "own": "own code"}
"""Phases that the scripts call otherwise."""
OWN = "own code"


def shares(script: Path, seconds: float, run: Path) -> tuple[dict[str, float], dict[str, float]]:
    """Run a script recorded; return its own shares of its time, and those of the report."""
    command = [HOTLOOP, "run", "--out", run, script, "--seconds", seconds]
    done = subprocess.run([str(each) for each in command], check=True, capture_output=True, text=True)
    own = json.loads(done.stdout.strip().splitlines()[-1])
    whole = sum(own["phases"].values())
    truth = {NAMES.get(name, name): spent / whole for name, spent in own["phases"].items()}
    told = subprocess.run([str(HOTLOOP), "explain", str(run), "--json"], check=True, capture_output=True, text=True)
    found = {row["phase"]: row["share"] for row in json.loads(told.stdout)["phases"]}
    return truth, found


def judge(truth: dict[str, float], found: dict[str, float]) -> tuple[float, float]:
    """Return which share of the time in phases carries its phase, and which share of all time has a wrong one."""
    phases = {name: share for name, share in truth.items() if name != OWN}
    carried = sum(min(share, found.get(name, 0.0)) for name, share in phases.items())
    wrong = sum(max(share - truth.get(name, 0.0), 0.0) for name, share in found.items() if name not in (OWN, "other"))
    return carried / max(sum(phases.values()), 1e-9), wrong


def main() -> None:
    """Judge all scripts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seconds", type=float, default=10.0)
    arguments = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as place:
        for script in sorted(SCRIPTS.glob("*.py")):
            if arguments.names and script.stem not in arguments.names:
                continue
            truth, found = shares(script, arguments.seconds, Path(place) / script.stem)
            carried, wrong = judge(truth, found)
            results.append((carried, wrong))
            names = sorted(truth.keys() | found.keys(), key=lambda name: -truth.get(name, 0.0))
            rows = ", ".join(f"{name} {truth.get(name, 0):.0%}/{found.get(name, 0):.0%}" for name in names)
            say(f"{script.stem:18} carried {carried:4.0%}  wrong {wrong:4.0%}  {rows}")
    say(f"mean: {mean(c for c, _ in results):.0%} carried, {mean(w for _, w in results):.1%} wrong")


if __name__ == "__main__":
    main()
