"""Does it learn? The study's protocol (10×10, 3,000 episodes, mean score of the last 100), five seeds each.

Two trainings run side by side, on one core each, so this is no measurement of speed. Writes the curves as
docs/snake-scores.png and the numbers as docs/snake-scores.json and, between the markers, into docs/snake.md.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from run_all import replace_section

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
EPISODES, SEEDS = 3_000, 5


@dataclass(frozen=True, slots=True)
class Setting:
    """A line of the table: what is trained, and the study's score for it."""

    name: str
    words: tuple[str, ...]
    study: float


SETTINGS = (
    Setting("DQN, basic", ("dqn-snake", "--preset", "careful", "--features", "basic"), 16.78),
    Setting("DQN, flood", ("dqn-snake", "--preset", "original", "--features", "flood"), 25.44),
    Setting("PPO, basic", ("ppo-snake", "--preset", "faithful", "--features", "basic"), 17.69),
    Setting("PPO, flood", ("ppo-snake", "--preset", "faithful", "--features", "flood"), 35.27),
    Setting("PPO, flood, death −100",
            ("ppo-snake", "--preset", "faithful", "--features", "flood", "--reward-death", "-100",
             "--rollout", "32", "--gamma", ".998", "--gae-lambda", ".97"), 39.74),
)  # fmt: skip


def train(setting: Setting, seed: int) -> dict[str, Any]:
    """Train once; return the result with its curve."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        words = [
            sys.executable, "-m", "hotloop.cli.main", "train", *setting.words, "--seed", str(seed), "--kernel", "numba",
            "--episodes", str(EPISODES), "--seconds", "900", "--eval-every", "0", "--no-profile", "--no-tensorboard",
            "--quiet", "--json", "--out", str(out),
        ]  # fmt: skip
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{setting.name}, seed {seed}: exit {done.returncode}\n{done.stderr}")
        result = json.loads(done.stdout.splitlines()[-1])
        with open(out / "progress.csv", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    curve = [(int(row["episodes"]), float(row["score_last100"])) for row in rows if row.get("score_last100")]
    print(f"{setting.name}, seed {seed}: {result['score_last100']:.2f}, {result['seconds']:.0f} s", file=sys.stderr)
    return {"setting": setting.name, "seed": seed, "curve": curve} | result


def interval(values: list[float]) -> tuple[float, float]:
    """Return a 90 % bootstrap interval of the mean."""
    draws = np.random.default_rng(0).choice(values, (5_000, len(values))).mean(1)
    return float(np.percentile(draws, 5)), float(np.percentile(draws, 95))


def table(runs: list[dict[str, Any]]) -> str:
    """Return the Markdown table."""
    lines = [
        "| | the study | hotloop, mean of five seeds | 90 % interval | seeds | greedy | steps an episode | minutes |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for setting in SETTINGS:
        mine = [each for each in runs if each["setting"] == setting.name]
        scores = [each["score_last100"] for each in mine]
        low, high = interval(scores)
        means = [
            float(np.mean([each[name] for each in mine])) for name in ("eval_score", "steps_per_episode", "seconds")
        ]
        lines.append(
            f"| {setting.name} | {setting.study} | **{np.mean(scores):.2f}** | {low:.2f} to {high:.2f} | "
            + ", ".join(f"{each:.1f}" for each in sorted(scores))
            + f" | {means[0]:.1f} | {means[1]:.0f} | {means[2] / 60:.2f} |"
        )
    return "\n".join(lines)


def draw(runs: list[dict[str, Any]], path: Path) -> None:
    """Draw the curves of all seeds, a panel a setting."""
    figure, panels = plt.subplots(1, len(SETTINGS), figsize=(3.2 * len(SETTINGS), 3.2), sharey=True)
    for panel, setting in zip(panels, SETTINGS, strict=True):
        for each in runs:
            if each["setting"] == setting.name and each["curve"]:
                panel.plot(*zip(*each["curve"], strict=True), color="#2a6f97", alpha=0.7, linewidth=1.2)
        panel.axhline(setting.study, color="#c1121f", linestyle="--", linewidth=1)
        panel.annotate(
            f"the study: {setting.study}", (0.97, setting.study - 2.2), ("axes fraction", "data"),
            color="#c1121f", fontsize=8, ha="right",
        )  # fmt: skip
        panel.set_title(setting.name, fontsize=10)
        panel.set_xlabel("episodes")
        panel.grid(alpha=0.2)
    panels[0].set_ylabel("score, mean of the last 100")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    """Train all settings with all seeds, two at a time."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--jobs", type=int, default=2, help="trainings side by side")
    parser.add_argument("--only", help="settings whose name contains this; prints, and writes nothing")
    arguments = parser.parse_args()
    chosen = [each for each in SETTINGS if not arguments.only or arguments.only in each.name]
    jobs = [(setting, seed) for setting in chosen for seed in range(arguments.seeds)]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        runs = list(pool.map(lambda job: train(*job), jobs))
    if arguments.only:
        return
    section = table(runs)
    print(section)
    (DOCS / "snake-scores.json").write_text(json.dumps(runs) + "\n", encoding="utf-8")
    draw(runs, DOCS / "snake-scores.png")
    page = DOCS / "snake.md"
    page.write_text(replace_section(page.read_text(encoding="utf-8"), "snake_scores", section), encoding="utf-8")


if __name__ == "__main__":
    main()
