"""How well ppo-ricochet learns: curves of runs that `hotloop train` left, and held-out boards of each level.

`python bench/ricochet_scores.py curve NAME LABEL=RUN...` draws the share of held-out boards solved within 10 steps,
against steps and minutes, into docs/ricochet-NAME.png, with its numbers in docs/ricochet-NAME.json. `... levels
LABEL=RUN...` evaluates runs on held-out boards of each level and puts the table between markers of docs/ricochet.md.
`... random` plays any action, each as likely, on all held-out boards of each level, and writes which share it solves
into docs/ricochet-random.json: the floor that the others show.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from run_all import markdown, replace_section
from sac_scores import DOCS, read_curve

from hotloop.training.pipelines.ppo_ricochet import Config
from hotloop.training.tasks import ricochet

FLOOR = DOCS / "ricochet-random.json"
STEPS = (10, 20)
"""Limits of an evaluation, and of training."""
ASKED, AIM = 0.75, 0.95
COLOURS = ("#2a6f97", "#c1121f", "#588157", "#bc6c25")


def curve(name: str, runs: dict[str, Path]) -> None:
    """Draw the learning curves of runs, of the same label in the same colour."""
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.4), sharey=True)
    kept, colours = [], dict(zip(dict.fromkeys(map(group, runs)), COLOURS, strict=False))
    for label, run in runs.items():
        evaluations = read_curve(run, "success_rate")
        points = np.array(evaluations)
        for k, (panel, scale) in enumerate(zip(panels, (1000, 60), strict=True)):
            first = group(label) not in panel.get_legend_handles_labels()[1]
            panel.plot(points[:, k] / scale, 100 * points[:, 2], color=colours[group(label)], marker=".", markersize=4,
                       label=group(label) if first else None)  # fmt: skip
        result = json.loads((run / "result.json").read_text(encoding="utf-8"))
        result = {key: value for key, value in result.items() if key not in ("run_dir", "checkpoint")}
        rows = [{"env_steps": int(a), "seconds": b, "success_rate": c} for a, b, c in evaluations]
        kept.append({"label": label, "curve": rows, "result": result})
        print(f"{label}: {summary(points)}")
    lowest = floor()[0]
    for panel, label in zip(panels, ("thousand steps", "minutes of training"), strict=True):
        for share, style in ((ASKED, "--"), (AIM, "--"), (lowest, ":")):
            panel.axhline(100 * share, color="#9aa5b1", linestyle=style, linewidth=1)
        panel.set_xlabel(label)
        panel.grid(alpha=0.2)
    panels[0].set_ylabel("% of held-out boards solved")
    panels[0].set_ylim(0, 100)
    panels[1].legend(frameon=False, fontsize=8, loc="lower right")
    figure.tight_layout()
    figure.savefig(DOCS / f"ricochet-{name}.png", dpi=110)
    (DOCS / f"ricochet-{name}.json").write_text(json.dumps({"runs": kept}, indent=1) + "\n", encoding="utf-8")


def group(label: str) -> str:
    """Return a label without its seed: `planes 1` is one of `planes`."""
    head, _, tail = label.rpartition(" ")
    return head if head and tail.isdigit() else label


def summary(points: np.ndarray) -> str:
    """Say what a curve [E, 3] reached, and when."""
    steps, seconds, solved = points.T
    parts = [f"last {solved[-1]:.1%}, best {solved.max():.1%} after {steps[-1]:,.0f} steps, {seconds[-1] / 60:.1f} min"]
    for share in (ASKED, AIM):
        there = np.flatnonzero(solved >= share)
        when = f"{seconds[there[0]] / 60:.1f} min" if len(there) else "not reached"
        parts.append(f"{share:.0%}: {when}")
    return "; ".join(parts)


def levels(runs: dict[str, Path], episodes: int) -> None:
    """Evaluate runs on held-out boards of each level."""
    rows, lowest = [], floor()
    for label, run in runs.items():
        words = [sys.executable, "-m", "hotloop", "evaluate", str(run), "--episodes", str(episodes), "--json"]
        evaluated: dict[str, Any] = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
        for each in evaluated["levels"]:
            gap = [f"{each[key]:.2f}" if key in each else "" for key in ("gap_mean", "gap_median")]
            solved = f"**{each['success_rate']:.1%}**"
            interval = f"{each['score_low']:.1%} to {each['score_high']:.1%}"
            chance = f"{lowest[each['level']]:.1%}"
            rows.append([label, str(each["level"]), str(each["episodes"]), solved, interval, chance, *gap])
    heads = [
        "agent",
        "level",
        "boards",
        "solved within 10 steps",
        "95 % interval",
        "random play",
        "gap, mean",
        "median",
    ]
    table = markdown(heads, rows)
    print(table)
    page = DOCS / "ricochet.md"
    page.write_text(replace_section(page.read_text(encoding="utf-8"), "ricochet_levels", table), encoding="utf-8")


class Random:
    """Plays any action, each as likely."""

    def __init__(self, actions: int, seed: int) -> None:
        self._actions, self._rng = actions, np.random.default_rng(seed)

    def initial_memory(self, boards: int) -> np.ndarray:
        """Return an empty memory."""
        return np.zeros((0, boards), np.float32)

    def remember(self, obs: np.ndarray, memory: np.ndarray, fresh: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return actions, int64 [N], and the memory."""
        return self._rng.integers(0, self._actions, len(obs)), memory


def random(times: int) -> None:
    """Play all held-out boards of each level at random, so often."""
    rows, results = [], []
    for level in range(ricochet.LEVELS):
        shares = {}
        for steps in STEPS:
            config = Config(eval_steps=steps)
            every = config.bank_boards * ricochet.LEVELS
            scores = [
                ricochet.play_episodes(Random(4 * config.robots, seed), config, every, level).score
                for seed in range(times)
            ]
            # Boards differ in how easily they are hit upon: the error is that of their means.
            each = np.mean(scores, axis=0)
            shares[f"within_{steps}"] = float(each.mean())
            shares[f"error_{steps}"] = float(each.std(ddof=1) / len(each) ** 0.5)
        results.append({"level": level, "boards": len(each), "times": times} | shares)
        cells = [f"{shares[f'within_{n}']:.2%} ± {shares[f'error_{n}']:.2%}" for n in STEPS]
        rows.append([str(level), str(len(each)), *cells])
    print(markdown(["level", "boards", *(f"solved within {n} steps" for n in STEPS)], rows))
    FLOOR.write_text(json.dumps({"levels": results}, indent=1) + "\n", encoding="utf-8")


def floor() -> dict[int, float]:
    """Return the share of held-out boards that random play solves within 10 steps, by level."""
    if not FLOOR.is_file():
        raise SystemExit(f"there is no {FLOOR.name}: run `python bench/ricochet_scores.py random` first")
    rows = json.loads(FLOOR.read_text(encoding="utf-8"))["levels"]
    return {row["level"]: row[f"within_{STEPS[0]}"] for row in rows}


def main() -> None:
    """Do what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    what = parser.add_subparsers(dest="what", required=True)
    drawn = what.add_parser("curve")
    drawn.add_argument("name", help="of the picture: docs/ricochet-NAME.png")
    evaluated = what.add_parser("levels")
    evaluated.add_argument("--episodes", type=int, default=1000)
    chance = what.add_parser("random")
    chance.add_argument("--times", type=int, default=5, help="each board is played")
    for each in (drawn, evaluated):
        each.add_argument("runs", nargs="+", metavar="LABEL=RUN")
    arguments = parser.parse_args()
    if arguments.what == "random":
        random(arguments.times)
        return
    runs = {label: Path(path) for label, _, path in (each.rpartition("=") for each in arguments.runs)}
    if arguments.what == "curve":
        curve(arguments.name, runs)
    else:
        levels(runs, arguments.episodes)


if __name__ == "__main__":
    main()
