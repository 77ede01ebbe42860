"""Is the growth of a run split rightly into episodes × steps an episode × cost of a step, without being told?

The study's slow loop is recorded by `hotloop run` over growth worth 1,024 and 5,000 episodes. 5,000 take it hours, so
agents from stages of our fast training of just so many episodes play in it, each for some seconds. The loop counts for
itself; `hotloop explain` is held against that. About four minutes; run alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from measure import Row, against_limit, exactly, main, say

from hotloop.training.run import checkpoint

HERE = Path(__file__).resolve().parent
GROWTHS = {1_024: 8_000, 5_000: 50_000}
"""Episodes, and env steps from one checkpoint of the training to the next."""
STAGES = 7
DECAY, LEAST = 0.995, 0.01
"""Of ε, the study's."""
NAMES = {
    "episodes": "episodes",
    "steps_per_episode": "steps an episode",
    "cost_per_step": "cost of a step",
    "seconds": "time, which is their product",
}
LARGEST_DIFFERENCE = 2.0
"""Per cent, of any factor."""


def train(folder: Path, episodes: int, every: int, features: str) -> Path:
    """Train at the study's original schedule, with a checkpoint now and then; return the run."""
    out = folder / f"train-{episodes}"
    words = [
        sys.executable, "-m", "hotloop.cli.main", "train", "dqn-snake", "--preset", "original", "--kernel", "numba",
        "--features", features, "--episodes", str(episodes), "--seconds", "600", "--eval-every", "0", "--eval-episodes",
        "0", "--checkpoint-every", str(every), "--keep", "200", "--no-profile", "--no-tensorboard", "--quiet",
        "--json", "--out", str(out),
    ]  # fmt: skip
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return out


def stages(run: Path, episodes: int) -> list[dict[str, Any]]:
    """Choose checkpoints that lie evenly over the episodes; the first stage plays at random."""
    found = []
    for path in sorted((run / "checkpoints").glob("step-*")):
        found.append((int(checkpoint.read(path, only=[]).meta["counts"]["episodes"]), path))
    chosen: list[dict[str, Any]] = [{"checkpoint": "", "epsilon": 1.0, "episodes": 0}]
    for wanted in np.linspace(0, episodes, STAGES)[1:]:
        at, path = min(found, key=lambda each: abs(each[0] - wanted))
        chosen.append({"checkpoint": str(path), "epsilon": max(LEAST, DECAY**at), "episodes": at})
    return chosen


def record(
    folder: Path, chosen: list[dict[str, Any]], seconds: float, flood: bool
) -> tuple[dict[str, Any], np.ndarray]:
    """Record the slow loop over the stages; return what explain says of it, and the loop's own counts [T, 3]."""
    plan, truth, run = folder / "stages.json", folder / "truth.json", folder / "run"
    plan.write_text(json.dumps(chosen))
    script = [HERE / "scripts" / "snake_slow_loop.py", plan, truth, "--seconds", str(seconds), *(["--flood"] * flood)]
    hotloop = Path(sys.executable).with_name("hotloop")
    environment = os.environ | {"PYTHONPATH": str(HERE)}
    subprocess.run([hotloop, "run", "--out", run, *script], check=True, env=environment, stdout=subprocess.DEVNULL)
    report = subprocess.run([hotloop, "explain", run, "--json"], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(report.stdout), np.array(json.loads(truth.read_text()), dtype=np.float64)


def counted(rows: np.ndarray, part: dict[str, Any]) -> tuple[float, float]:
    """Return the env steps and episodes that the loop itself counted in a part that explain names."""
    at = (rows[:, 0] - rows[0, 0]) / 1e9
    ends = (part["from_s"], part["until_s"])
    steps, episodes = (np.diff(np.interp(ends, at, rows[:, column]))[0] for column in (1, 2))
    return float(steps), float(episodes)


def truth_of(rows: np.ndarray, drift: dict[str, Any]) -> dict[str, float]:
    """Return the factors by the loop's own counts, for the same two parts."""
    early, late = (counted(rows, drift[name]) for name in ("early", "late"))
    seconds = [drift[name]["until_s"] - drift[name]["from_s"] for name in ("early", "late")]
    return {
        "seconds": seconds[1] / seconds[0],
        "episodes": late[1] / early[1],
        "steps_per_episode": (late[0] / late[1]) / (early[0] / early[1]),
        "cost_per_step": (seconds[1] / late[0]) / (seconds[0] / early[0]),
    }


def study(episodes: int, seconds: float, features: str = "basic") -> tuple[str, dict[str, float], dict[str, float]]:
    """Record one growth; return the verdict, the factors that explain tells, and those that the loop counted."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        chosen = stages(train(folder, episodes, GROWTHS[episodes], features), episodes)
        answer, rows = record(folder, chosen, seconds, features == "flood")
    drift = answer["drift"]
    if drift is None:
        raise SystemExit(f"explain tells no drift over {episodes} episodes' worth of growth")
    say(f"  findings: {', '.join(each['rule'] for each in answer['findings']) or 'none'}")
    return drift["verdict"], {each: drift["factors"][each] for each in NAMES}, truth_of(rows, drift)


def run(quick: bool) -> list[Row]:
    """Measure both growths; in a trial the shorter one."""
    rows = []
    for episodes in list(GROWTHS)[: 1 if quick else None]:
        say(f"snake_drift: {episodes:,} episodes")
        verdict, reported, truth = study(episodes, 3.0 if quick else 8.0)
        for name, label in NAMES.items():
            ratio = truth[name] / reported[name]
            about = f"growth of {episodes:,} episodes: {label}"
            rows.append(Row(about, reported[name], truth[name], "counted by the loop", "×", ratio, ratio, ratio))
        error = max(abs(reported[name] / truth[name] - 1) for name in NAMES)
        about = f"growth of {episodes:,} episodes (verdict: {verdict}), largest difference"
        rows.append(against_limit(about, exactly(100 * error), LARGEST_DIFFERENCE, "%"))
    return rows


if __name__ == "__main__":
    main(run, __doc__)
