"""All sources of a run's counts agree: result, progress, curves, summaries, report and exports."""

from __future__ import annotations

import csv
import json
import re
import signal
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from hotloop.cli.main import main
from hotloop.counters import COUNTERS
from hotloop.training.registry import PIPELINES, pipeline

SNAKE = ("--envs", "16", "--board", "6", "--hidden", "32", "--kernel", "torch")
SMALL = {
    "dqn-snake": (*SNAKE, "--buffer", "2000", "--learning-starts", "200", "--batch", "16", "--updates-per-step", "2"),
    "ppo-snake": (*SNAKE, "--rollout", "8", "--minibatch", "64", "--epochs", "2"),
    "sac-carracing": (
        "--envs", "2", "--batch", "8", "--learning-starts", "40", "--buffer", "2000", "--max-frames", "58",
        "--channels", "4", "4", "4", "--hidden", "16", "--threads", "1", "--updates-per-step", "2", "--kernel", "torch",
    ),
    "dqn-mario": (
        "--batch", "8", "--learning-starts", "100", "--buffer", "2000", "--max-steps", "20", "--epsilon-steps", "100",
        "--channels", "4", "4", "4", "--hidden", "16", "--epoch", "100", "--kernel", "torch",
    ),
    "ppo-ricochet": (
        "--size", "8", "--bank-boards", "60", "--envs", "8", "--boards", "4", "--rollout", "4", "--channels", "4",
        "--hidden", "16", "--threads", "1", "--epochs", "2",
    ),
}  # fmt: skip
STEPS = {"dqn-snake": 700, "ppo-snake": 500, "sac-carracing": 90, "dqn-mario": 220, "ppo-ricochet": 160}
ONLY_IN = {
    ("dqn-mario", "fast"): ("--workers", "0"),
    ("dqn-mario", "faithful"): ("--workers", "2", "--kernel", "lean"),
    ("dqn-mario", "original"): ("--workers", "1"),
    ("ppo-ricochet", "lstm"): ("--size", "16", "--robots", "4"),
}
NEEDS = {"sac-carracing": "Box2D", "dqn-mario": "stable_retro"}
IN_ALL = re.compile(r"([\d,]+) in all")
Found = dict[str, dict[str, int]]


def presets() -> list[Any]:
    """All presets of all pipelines; all but the first of each pipeline are slow tests."""
    found = []
    for name in PIPELINES:
        needed = NEEDS.get(name, "numpy")
        missing = pytest.mark.skipif(find_spec(needed) is None, reason=f"{needed} is not installed")
        for i, preset in enumerate(pipeline(name).PRESETS):
            found.append(pytest.param(name, preset, marks=[missing] + [pytest.mark.slow] * (i > 0)))
    return found


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Share small puzzle banks between the tests, and keep them out of the user's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


def flags(name: str, preset: str, out: Path) -> list[str]:
    run = ["--preset", preset, *SMALL[name], *ONLY_IN.get((name, preset), ()), "--out", str(out)]
    return ["train", name, *run, "--eval-episodes", "0", "--profile-summary-every", "1000000"]


def number(text: str) -> int:
    return int(text.replace(",", ""))


def from_ending(text: str) -> dict[str, int]:
    """Read the last `N steps (N frames), N updates, N episodes` printed by `train`."""
    found = re.findall(r"([\d,]+) steps(?: \(([\d,]+) frames\))?, ([\d,]+) updates, ([\d,]+) episodes", text)
    steps, frames, *others = found[-1]
    return dict(zip(COUNTERS, map(number, (steps, frames or steps, *others)), strict=True))


def from_labels(lines: list[str], labels: dict[str, str]) -> dict[str, int]:
    """Read `N in all` after each label. Frames default to the steps; other missing labels mean 0."""
    found = {}
    for counter, label in labels.items():
        shown = next((line for line in lines if label in line and IN_ALL.search(line)), None)
        found[counter] = number(IN_ALL.findall(shown)[0]) if shown else 0
    return found | {"frames": found.get("frames") or found["env_steps"]}


def from_curves(folder: Path, prefix: str) -> dict[str, int]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder)).Reload()
    names = [name for name in COUNTERS if f"{prefix}{name}" in events.Tags()["scalars"]]
    last = {name: events.Scalars(f"{prefix}{name}")[-1] for name in names}
    values = {name: round(each.value) for name, each in last.items()}
    return {"episodes": 0, "updates": 0} | values | {"env_steps": last["frames"].step}


def from_export(folder: Path) -> tuple[dict[str, int], dict[str, int]]:
    """Return the sums of the counts and windows tables of the main process."""
    with (folder / "counts.csv").open() as file:
        rows = list(csv.DictReader(file))
    with (folder / "windows.csv").open() as file:
        windows = [row for row in csv.DictReader(file) if row["in_loop"] == "true"]
    by_place, by_window = Counter[str](), Counter[str]()
    for row in rows:
        by_place[row["counter"]] += int(row["amount"])
    for row in windows:
        for name in COUNTERS:
            by_window[name] += int(row.get(name) or 0)
    return {name: by_place[name] for name in COUNTERS}, dict(by_window)


def from_files(run: Path, stdout: str, stderr: str) -> Found:
    """Return the totals that the training wrote and printed."""
    with (run / "progress.csv").open() as file:
        last = list(csv.DictReader(file))[-1]
    result = json.loads((run / "result.json").read_text())
    if result["episodes"]:
        assert result["steps_per_episode"] == result["env_steps"] / result["episodes"]
        assert float(last["steps_per_episode"]) == pytest.approx(result["steps_per_episode"], rel=1e-5)
    summary = [line for line in stderr.splitlines() if "env steps/s" in line][-1].split("), ")
    labels = {"env_steps": "env steps/s", "updates": "updates/s", "episodes": "episodes/s"}
    return {
        "result.json": {name: result[name] for name in COUNTERS},
        "train": from_ending(stdout),
        "progress.csv": {name: int(last[name]) for name in COUNTERS},
        "tensorboard": from_curves(run / "tensorboard", ""),
        "profile summary": from_labels(summary, labels) | {"frames": result["frames"]},
    }


def from_recording(run: Path, capsys: pytest.CaptureFixture[str]) -> tuple[Found, Found]:
    """Return the totals and this run's own counts from `explain` and `export`."""
    assert main(["explain", str(run), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert main(["explain", str(run)]) == 0
    text = capsys.readouterr().out.splitlines()
    for to in ("csv", "tensorboard", "perfetto"):
        assert main(["export", str(run), "--to", to, "--output", str(run / f"as-{to}")]) == 0
    by_place, by_window = from_export(run / "as-csv")
    about = json.loads((run / "as-perfetto").read_text())["otherData"]
    capsys.readouterr()
    for counts in (answer["counts"], answer["counts_total"]):
        wanted = counts["env_steps"] / counts["episodes"] if counts["episodes"] else None
        assert counts["steps_per_episode"] == wanted
    totals = {
        "explain --json": answer["counts_total"],
        "explain": from_labels(text, {name: f"{name.replace('_', ' ')}/s" for name in COUNTERS}),
        "export tensorboard": from_curves(run / "as-tensorboard", "counts/"),
    }
    own = {
        "explain --json": answer["counts"],
        "export perfetto": {name: int(about[name]) for name in COUNTERS},
        "export csv, places": by_place,
        "export csv, windows": by_window,
    }
    return ({k: {n: v[n] for n in COUNTERS} for k, v in each.items()} for each in (totals, own))  # type: ignore[return-value]


def assert_agree(run: Path, printed: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Check that all sources agree on the totals and on this run's own counts; return the result."""
    result = json.loads((run / "result.json").read_text())
    totals, own = from_recording(run, capsys)
    wanted = {name: result[name] for name in COUNTERS}
    assert {source: counts for source, counts in (from_files(run, *printed) | totals).items() if counts != wanted} == {}
    wanted = {name: result["counts"][name] for name in COUNTERS}
    assert {source: counts for source, counts in own.items() if counts != wanted} == {}
    return result


def train(words: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> tuple[str, str]:
    capsys.readouterr()
    assert main(words) == code
    printed = capsys.readouterr()
    return printed.out, printed.err


@pytest.mark.parametrize(("name", "preset"), presets())
def test_all_sources_report_the_same_counts(
    name: str, preset: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    printed = train([*flags(name, preset, run), "--steps", str(STEPS[name])], capsys)
    result = assert_agree(run, printed, capsys)
    assert result["updates"] > 0 and result["env_steps"] >= STEPS[name]
    assert result["counts"] == {key: result[key] for key in (*COUNTERS, "steps_per_episode")}


@pytest.mark.parametrize("name", ["dqn-snake", "ppo-ricochet"])
def test_a_resumed_run_reports_totals_and_its_own_counts(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train([*flags(name, "fast", tmp_path / "first"), "--steps", str(STEPS[name])], capsys)
    first = json.loads((tmp_path / "first" / "result.json").read_text())
    words = ["--resume", str(tmp_path / "first"), "--out", str(tmp_path / "more"), "--eval-episodes", "0"]
    steps = ["--steps", str(2 * STEPS[name]), "--profile-summary-every", "1000000"]
    printed = train(["train", name, *words, *steps], capsys)
    result = assert_agree(tmp_path / "more", printed, capsys)
    assert {key: result["counts"][key] + first[key] for key in COUNTERS} == {key: result[key] for key in COUNTERS}


def test_iterations_of_deep_samples_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    looks = ["--functions", "3", "--ops", "2", "--warmup", "20", "--steps", "700"]
    train([*flags("dqn-snake", "fast", run), *looks], capsys)
    wanted = json.loads((run / "result.json").read_text())
    assert main(["explain", str(run), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [answer["looks"][look]["state"] for look in ("functions", "operators")] == ["done", "done"]
    assert {name: answer["counts"][name] for name in COUNTERS} == {name: wanted[name] for name in COUNTERS}
    assert main(["export", str(run), "--to", "csv", "--output", str(run / "as-csv")]) == 0
    assert from_export(run / "as-csv")[0] == {name: wanted[name] for name in COUNTERS}


def test_an_interrupted_run_reports_the_same_counts_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    words = [sys.executable, "-m", "hotloop", *flags("ppo-snake", "fast", run), "--seconds", "60"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        before = next(line for line in process.stderr if "steps/s" in line)
        process.send_signal(signal.SIGINT)
        out, after = process.communicate(timeout=60)
    assert process.returncode == 130
    assert assert_agree(run, (out, before + after), capsys)["stopped_by"] == "SIGINT"


def test_printed_json_equals_the_saved_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    out, _ = train([*flags("ppo-snake", "fast", run), "--steps", "500", "--json"], capsys)
    assert json.loads(out) == json.loads((run / "result.json").read_text())
