"""A short `hotloop demo`: it trains, explains, draws charts and writes a GIF."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

from PIL import Image


def test_the_demo_writes_a_run_charts_and_a_gif(tmp_path: Path) -> None:
    run = tmp_path / "a rün"  # the demo prints shell commands, so this path must be quoted
    words = [sys.executable, "-m", "hotloop.cli.main", "demo", "--seconds", "2", "--out", str(run)]
    ended = subprocess.run(words, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    for text in (
        "Where the time goes",
        "What to change",
        f"hotloop play {shlex.quote(str(run))}",
        "on games it never saw",
    ):
        assert text in ended.stdout
    assert "steps/s" in ended.stderr
    result = json.loads((run / "result.json").read_text())
    assert result["stopped_by"] == "seconds"
    assert result["updates"] > 0
    with Image.open(run / "charts.png") as charts:
        assert charts.width > 500
    with Image.open(run / "snake.gif") as film:
        assert film.n_frames > 1  # type: ignore[attr-defined]  # its length depends on how much it learnt


def test_a_demo_of_zero_seconds_is_rejected() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "hotloop.cli.main", "demo", "--seconds", "0"], capture_output=True, text=True
    )
    assert (ended.returncode, ended.stderr) == (2, "hotloop: --seconds is 0.0: give a number above 0\n")
