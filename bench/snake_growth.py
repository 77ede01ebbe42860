"""The study's own runs: DQN for 1,024 and for 5,000 episodes. Why did it take so much longer than expected?

wall = episodes × steps an episode × cost of a step. The study expected 14 minutes for 5,000 from those of 1,024,
as if episodes were all of one length, and waited 199. Run alone; writes the table into docs/snake.md.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from run_all import replace_section

PAGE = Path(__file__).resolve().parent.parent / "docs" / "snake.md"
RUNS = (1_024, 5_000)


def train(features: str, episodes: int) -> dict[str, Any]:
    """Train at the study's original schedule; return the result."""
    with tempfile.TemporaryDirectory() as folder:
        words = [
            sys.executable, "-m", "hotloop.cli.main", "train", "dqn-snake", "--preset", "original", "--kernel", "numba",
            "--features", features, "--episodes", str(episodes), "--seconds", "3000", "--eval-every", "0",
            "--eval-episodes", "0", "--no-tensorboard", "--quiet", "--json", "--out", f"{folder}/run",
        ]  # fmt: skip
        done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Train both lengths with both features."""
    lines = [
        "| features | episodes | minutes | transitions | steps an episode | transitions/s | score of the last 100 |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    growth = []
    for features in ("basic", "flood"):
        short, long = (train(features, episodes) for episodes in RUNS)
        lines += [
            f"| {features} | {each['episodes']:,} | {(each['seconds'] - each['warmup_seconds']) / 60:.2f} | "
            f"{each['env_steps']:,} | {each['steps_per_episode']:.0f} | {each['env_steps_per_s']:,.0f} | "
            f"{each['score_last100']:.1f} |"
            for each in (short, long)
        ]
        factors = [
            long["episodes"] / short["episodes"],
            long["steps_per_episode"] / short["steps_per_episode"],
            short["env_steps_per_s"] / long["env_steps_per_s"],
        ]
        whole = factors[0] * factors[1] * factors[2]
        growth.append(
            f"{features}: {factors[0]:.2f} times the episodes × {factors[1]:.2f} times the steps an episode × "
            f"{factors[2]:.2f} times the cost of a step = {whole:.1f} times the time."
        )
    section = "\n".join([*lines, "", *(f"- {each}" for each in growth)])
    print(section)
    PAGE.write_text(replace_section(PAGE.read_text(encoding="utf-8"), "snake_growth", section), encoding="utf-8")


if __name__ == "__main__":
    main()
