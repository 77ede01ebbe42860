"""How fast does dqn-mario learn a level? The curve of a run that `hotloop train dqn-mario` left.

`python bench/mario_scores.py RUN` draws flag rate and distance, greedy on held-out seeds and in training, into
docs/mario-LEVEL.png and writes the numbers next to it. See also `hotloop evaluate RUN` and `hotloop play RUN --gif F`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from sac_scores import DOCS, read_curve

BLUE, GREY = "#2a6f97", "#9aa5b1"
GREEDY = {"success_rate": "flag rate", "eval_score": "distance in pixels"}
TRAINING = {"success_rate": "flag_rate_last100", "eval_score": "distance_last100"}
"""Training metric shown with each greedy score."""


def evaluations(run: Path) -> dict[str, np.ndarray]:
    """Return seconds, steps and the greedy scores at each evaluation: a return is never the same twice."""
    when = read_curve(run, "eval_return")
    found = {"env_steps": np.array([each[0] for each in when]), "seconds": np.array([each[1] for each in when])}
    for name in GREEDY:
        curve = read_curve(run, name)
        at = np.array([each[1] for each in curve])
        found[name] = np.array([curve[int(np.searchsorted(at, s, "right")) - 1][2] for s in found["seconds"]])
    return found


def main() -> None:
    """Draw, and write the numbers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--level", default="1-1", help="of the training, for the name of the picture")
    arguments = parser.parse_args()
    greedy = evaluations(arguments.run)
    result = json.loads((arguments.run / "result.json").read_text(encoding="utf-8"))
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.4))
    for panel, (name, label) in zip(panels, GREEDY.items(), strict=True):
        _, seconds, values = (
            np.array(column) for column in zip(*read_curve(arguments.run, TRAINING[name]), strict=True)
        )
        panel.plot(seconds / 60, values, color=GREY, linewidth=1, label="last 100 training episodes")
        panel.plot(greedy["seconds"] / 60, greedy[name], color=BLUE, marker="o", markersize=4, label="greedy, held-out")
        panel.set_xlabel("minutes of training")
        panel.set_ylabel(label)
        panel.grid(alpha=0.2)
    panels[0].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(DOCS / f"mario-{arguments.level}.png", dpi=110)
    for path in ("run_dir", "checkpoint"):
        result.pop(path)
    kept = {"greedy": {name: column.tolist() for name, column in greedy.items()}, "result": result}
    (DOCS / f"mario-{arguments.level}.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    best = int(greedy["success_rate"].argmax())
    print(
        f"flag rate at best {greedy['success_rate'][best]:.0%} after {greedy['seconds'][best] / 60:.1f} minutes "
        f"and {greedy['env_steps'][best]:,} steps, at the end {greedy['success_rate'][-1]:.0%}"
    )


if __name__ == "__main__":
    main()
