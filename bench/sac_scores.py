"""Does visual SAC learn? The presets on a small configuration over three seeds, and the curve of a long run.

`python bench/sac_scores.py presets` trains `fast` and `faithful` at 64×64 with batch 64 for 20,000 decisions, two at a
time on one core each, so it is no measurement of speed. `python bench/sac_scores.py curve NAME RUN` draws what
`hotloop train` left in a run directory. Pictures and numbers go into docs/, the table between the markers of
docs/carracing.md.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from run_all import replace_section
from scipy.stats import t

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
DECISIONS, SEEDS, EVAL_EVERY = 20_000, 3, 4_000
SAME = (
    "--size", "64", "--batch", "64", "--envs", "4", "--updates-per-step", "4", "--action-repeat", "4",
    "--patience", "120", "--learning-starts", "1000", "--threads", "1", "--kernel", "lean",
)  # fmt: skip
"""What both presets have in common here: the game, and how much they see of it. They differ in how they learn."""
CPU_SECONDS = "cpu_seconds.json"
EVALUATED = ("eval_return", "eval_score", "success_rate")
"""What an evaluation writes into `progress.csv`."""
BLUE, RED = "#2a6f97", "#c1121f"


def train(preset: str, seed: int, kept: Path) -> dict[str, Any]:
    """Train once, unless that was kept; return the result with its curve."""
    out = kept / f"{preset}-{seed}"
    words = [
        sys.executable, "-m", "hotloop", "train", "sac-carracing", "--preset", preset, *SAME, "--seed", str(seed),
        "--steps", str(DECISIONS), "--eval-every", str(EVAL_EVERY), "--checkpoint-every", "0", "--no-profile",
        "--no-tensorboard", "--quiet", "--out", str(out),
    ]  # fmt: skip
    if not is_finished(out):
        shutil.rmtree(out, ignore_errors=True)
        cpu_s = run_timed(words, f"{preset}, seed {seed}")
        (out / CPU_SECONDS).write_text(json.dumps(cpu_s), encoding="utf-8")
    result = read_result(out) | {"cpu_s": json.loads((out / CPU_SECONDS).read_text(encoding="utf-8"))}
    print(f"{preset}, seed {seed}: {result['eval_return']:.0f}, {result['cpu_s'] / 60:.1f} min", file=sys.stderr)
    return {"preset": preset, "seed": seed, "curve": read_curve(out, every=EVAL_EVERY)} | result


def run_timed(words: list[str], name: str) -> float:
    """Run a training; return its seconds of processor time, which neither its neighbours nor a SIGSTOP change."""
    with tempfile.TemporaryFile("w+") as output:
        _, status, used = os.wait4(subprocess.Popen(words, stdout=output, stderr=output).pid, 0)
        output.seek(0)
        if status:
            raise SystemExit(f"{name}: exit {os.waitstatus_to_exitcode(status)}\n{output.read()}")
    return used.ru_utime + used.ru_stime


def is_finished(run: Path) -> bool:
    """Say whether a run was trained to its end."""
    return (run / CPU_SECONDS).exists() and read_result(run)["env_steps"] >= DECISIONS


def read_result(run: Path) -> dict[str, Any]:
    """Return what a training ended with, without the paths of this machine."""
    result = json.loads((run / "result.json").read_text(encoding="utf-8"))
    return {name: value for name, value in result.items() if name not in ("run_dir", "checkpoint")}


def read_curve(run: Path, column: str = "eval_return", every: int = 0) -> list[tuple[int, float, float]]:
    """Return steps, seconds and the number of a column of `progress.csv` at each point where it is new.

    A row repeats the last evaluation until the next, and an evaluation may give the same number once more. So there is
    a new one where any of its numbers changed, and in the first row at or past each multiple of `every` steps. Seconds
    begin anew at a `--resume`: they are added up.

    Args:
        run: A run directory.
        column: Of evaluations, or of training.
        every: Steps from one evaluation to the next; 0: only changes tell.
    """
    with (run / "progress.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row.get(column)]
    seconds = np.array([float(row["seconds"]) for row in rows])
    falls = np.diff(seconds, prepend=0.0) < 0
    seconds += np.cumsum(np.where(falls, np.roll(seconds, 1), 0.0))
    points = [(int(row["env_steps"]), at, float(row[column])) for row, at in zip(rows, seconds.tolist(), strict=True)]
    marks = [[row.get(name) for name in (EVALUATED if column in EVALUATED else (column,))] for row in rows]
    passed = [steps // every if every else 0 for steps, _, _ in points]
    return [each for i, each in enumerate(points) if i == 0 or (marks[i], passed[i]) != (marks[i - 1], passed[i - 1])]


def interval(values: np.ndarray) -> tuple[float, float]:
    """Return a 90 % interval of the mean by Student's t: resampling a few seeds would give one that is too narrow."""
    reach = t.ppf(0.95, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean() - reach), float(values.mean() + reach)


def presets(jobs: int, keep: Path | None) -> None:
    """Compare the presets."""
    tasks = [(preset, seed) for seed in range(SEEDS) for preset in ("fast", "faithful")]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:
        runs = list(pool.map(lambda task: train(*task, keep or Path(folder)), tasks))
    lines = ["| | mean return | seeds | minutes of one core |", "| --- | --- | --- | --- |"]
    of = {name: [each for each in runs if each["preset"] == name] for name in ("faithful", "fast")}
    for name, mine in of.items():
        scores = [each["eval_return"] for each in mine]
        minutes = np.mean([each["cpu_s"] for each in mine]) / 60
        each_seed = ", ".join(f"{each:.0f}" for each in scores)
        lines.append(f"| {name} | **{np.mean(scores):.0f}** | {each_seed} | {minutes:.1f} |")
    gains = np.array([b["eval_return"] - a["eval_return"] for a, b in zip(of["faithful"], of["fast"], strict=True)])
    low, high = interval(gains)
    lines.append(f"\nfast − faithful: {gains.mean():+.0f} (90 % interval {low:+.0f} to {high:+.0f}), seed by seed.")
    (DOCS / "carracing-presets.json").write_text(json.dumps(runs) + "\n", encoding="utf-8")
    write("carracing_presets", "\n".join(lines))
    figure, panel = plt.subplots(figsize=(6, 3.6))
    for each in runs:
        steps, _, returns = zip(*each["curve"], strict=True)
        panel.plot(steps, returns, color=BLUE if each["preset"] == "fast" else RED, alpha=0.8, marker=".")
    panel.plot([], [], color=BLUE, label="fast")
    panel.plot([], [], color=RED, label="faithful")
    finish(figure, panel, "decisions", DOCS / "carracing-presets.png")


def curve(name: str, run: Path, every: int) -> None:
    """Draw the learning curve of one run, against decisions and against minutes."""
    points, result = read_curve(run, every=every), read_result(run)
    steps, seconds, returns = (np.array(column) for column in zip(*points, strict=True))
    trained = [np.array(column) for column in zip(*read_curve(run, "return_last100"), strict=True)]
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.4), sharey=True)
    for k, (panel, label) in enumerate(zip(panels, ("decisions", "minutes of training"), strict=True)):
        scale = 60 if k else 1
        panel.plot(trained[k] / scale, trained[2], color="#9aa5b1", linewidth=1, label="last 100 training episodes")
        panel.plot((steps, seconds)[k] / scale, returns, color=BLUE, marker="o", markersize=4, label="greedy, held-out")
        panel.axhline(500, color=RED, linestyle="--", linewidth=1)
        panel.set_xlabel(label)
        panel.grid(alpha=0.2)
    panels[0].set_ylabel("return")
    panels[1].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(DOCS / f"carracing-{name}.png", dpi=110)
    kept = {"curve": [{"env_steps": a, "seconds": b, "eval_return": c} for a, b, c in points], "result": result}
    (DOCS / f"carracing-{name}.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    best = int(returns.argmax())
    reached = f"{seconds[returns > 500][0] / 60:.0f} minutes" if (returns > 500).any() else "not reached"
    print(f"best {returns[best]:.0f} at {steps[best]:,} decisions, {seconds[best] / 60:.0f} minutes; 500: {reached}")


def finish(figure: Any, panel: Any, label: str, path: Path) -> None:
    """Label and write a picture."""
    panel.set_xlabel(label)
    panel.set_ylabel("return, greedy, 10 held-out tracks")
    panel.grid(alpha=0.2)
    panel.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def write(name: str, section: str) -> None:
    """Put a section into the page, and print it."""
    print(section)
    page = DOCS / "carracing.md"
    page.write_text(replace_section(page.read_text(encoding="utf-8"), name, section), encoding="utf-8")


def main() -> None:
    """Do what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    what = parser.add_subparsers(dest="what", required=True)
    compared = what.add_parser("presets")
    compared.add_argument("--jobs", type=int, default=2, help="trainings side by side")
    compared.add_argument("--keep", type=Path, metavar="DIR", help="keep the runs; take those that are finished there")
    drawn = what.add_parser("curve")
    drawn.add_argument("name", help="of the picture: docs/carracing-NAME.png")
    drawn.add_argument("run", type=Path)
    drawn.add_argument("--eval-every", type=int, default=0, metavar="N", help="of that training")
    arguments = parser.parse_args()
    if arguments.what == "presets":
        presets(arguments.jobs, arguments.keep)
    else:
        curve(arguments.name, arguments.run, arguments.eval_every)


if __name__ == "__main__":
    main()
