"""Our own pipelines, recorded and explained like any script: at most one finding each.

Each trains for 45 seconds with `hotloop train`, which records by default. Findings are named in the row.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import Row, against_limit, exactly, main, say

HOTLOOP = Path(sys.executable).with_name("hotloop")
SECONDS = 45.0
PIPELINES = {
    "dqn-snake": ["dqn-snake"],
    "ppo-snake": ["ppo-snake"],
    "sac-carracing, pixels": ["sac-carracing", "--preset", "fast", "--buffer", "20000"],
    "sac-carracing, numbers": ["sac-carracing", "--preset", "vector"],
    "ppo-ricochet, planes": ["ppo-ricochet", "--preset", "fast"],
    "ppo-ricochet, pictures": ["ppo-ricochet", "--preset", "rgb"],
    "dqn-mario": ["dqn-mario", "--preset", "fast", "--buffer", "50000"],
}
MOST = 1


def run(quick: bool) -> list[Row]:
    """Train, explain and count."""
    rows = []
    for name, words in PIPELINES.items():
        say(f"own_pipelines: {name}")
        with tempfile.TemporaryDirectory() as folder:
            found = findings_of(Path(folder) / "run", words, 8.0 if quick else SECONDS)
        summary = ", ".join(f"{each['rule']} ×{each['gain']:.2f}" for each in found) or "nothing"
        for each in found:
            say(f"  {each['rule']} ×{each['gain']:.2f} at {each['file']}:{each['line']}: {each['title']}")
        rows.append(against_limit(f"{name}: {summary}", exactly(len(found)), MOST, "findings"))
    return rows


def findings_of(out: Path, words: list[str], seconds: float) -> list[dict[str, object]]:
    """Train for a while; return the findings of explain."""
    flags = ["--seconds", str(seconds), "--eval-episodes", "0", "--no-tensorboard", "--quiet", "--out", str(out)]
    subprocess.run([HOTLOOP, "train", *words, *flags], check=True, stdout=subprocess.DEVNULL)
    answer = subprocess.run([HOTLOOP, "explain", out, "--json"], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(answer.stdout)["findings"]


if __name__ == "__main__":
    main(run, __doc__)
