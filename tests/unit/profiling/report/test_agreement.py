"""All writers show the same numbers: terminal, JSON, notebook, charts, progress summary, `ls` and exports."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from tests.formats import check_trace_events
from tests.scripted import scripted_run
from tests.traces import make_process, make_thread, make_trace, place

from hotloop import numbers
from hotloop.cli import ls
from hotloop.counters import COUNTERS
from hotloop.phases import Phase
from hotloop.profiling.recorder.record_options import RecordOptions
from hotloop.profiling.report import charts, json, notebook, progress_summary, text, view
from hotloop.profiling.report.export import export
from hotloop.profiling.trace.load import load
from hotloop.profiling.trace.run_list import survey

MS = 1_000_000
STEPS = [1000, 100, 100, 130, 50, 120]
"""Environment steps per window of a second: the mean, 250, is far from the median, 110."""


@pytest.fixture
def trace():
    tree = [place("env.step", Phase.ENV, 2.5, 1500), place("update", Phase.BACKWARD, 3.3, 75)]
    worker = make_process([make_thread([place("Queue.put", Phase.WAIT, 6.0, 30)])], pid=77, main=False)
    return make_trace(
        tree,
        counts={"env_steps": 1500, "frames": 6000, "updates": 75, "episodes": 12},
        windows={
            "env_steps": STEPS,
            "frames": [4 * n for n in STEPS],
            "updates": [50, 5, 5, 6, 3, 6],
            "episodes": [7, 1, 1, 1, 1, 1],
        },
        unattributed_s=0.2,
        threads=[make_thread([place("Queue.get", Phase.WAIT, 6.0, 3)], name="feeder", main=False)],
        others=[worker],
    )


@pytest.fixture
def report(trace):
    return view.build(trace, ())


def shown_rates(shown: str) -> dict[str, str]:
    """Return the rates in a line such as `110 env steps/s, 5.50 updates/s`, by counter."""
    found = re.findall(r"([\d.,]+) (env steps|updates|episodes)/s", shown)
    return {label.replace(" ", "_"): value for value, label in found}


def test_the_rate_is_the_median_in_every_report(trace, report):
    rates = json.as_dict(report)["rates"]
    assert rates["env_steps_per_s"] == 110.0
    expected = {name: numbers.rate(rates[f"{name}_per_s"]) for name in ("env_steps", "updates", "episodes")}
    assert shown_rates(notebook.render(report)) == expected
    assert shown_rates(progress_summary.periodic(trace)) == expected
    terminal = dict(re.findall(r"^ +(env steps|frames|updates|episodes)/s +([\d.,]+) ", text.as_text(report), re.M))
    assert terminal == {name.replace("_", " "): numbers.rate(rates[f"{name}_per_s"]) for name in COUNTERS}
    assert shown_rates(charts._title(report)) == {"env_steps": expected["env_steps"]}
    unrecorded = rates["env_steps_per_s"] / (1 - report.overhead.share)
    assert f"expect {numbers.rate(unrecorded)} env steps/s" in " ".join(text.as_text(report).split())


def test_phases_have_the_same_share_and_time_in_every_report(trace, report, tmp_path):
    rows = json.as_dict(report)["phases"]
    terminal, html = text.as_text(report), notebook.render(report)
    assert [row["phase"] for row in rows] == ["backward", "env", "own code"]
    for row in rows:
        share, seconds = numbers.percent(row["share"]), numbers.seconds(row["self_s"])
        assert re.search(rf"{row['phase']} +{share} +{seconds}", terminal)
        assert re.search(rf">{row['phase']}</td><td[^>]*>{share}</td><td[^>]*>{seconds}</td>", html)
    export(trace, "csv", tmp_path / "csv")
    threads = {("100", "MainThread"): rows}
    for process in json.as_dict(report)["processes"]:
        threads |= {(str(process["pid"]), each["name"]): list(each["phases"]) for each in process["threads"]}
    found: dict[tuple[str, str], list[dict]] = {}
    for row in read_csv(tmp_path / "csv" / "phases.csv"):
        numeric = {name: float(row[name]) for name in ("self_s", "share", "calls")}
        found.setdefault((row["pid"], row["thread"]), []).append(
            {"phase": row["phase"], "group": row["group"], **numeric}
        )
    assert found == threads


def test_exports_have_the_curves_of_the_timeline(trace, report, tmp_path):
    timeline = report.timeline
    assert timeline.rates["env_steps"].tolist() == STEPS
    export(trace, "perfetto", tmp_path / "t.json")
    counters = check_trace_events(tmp_path / "t.json")["C"]
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    export(trace, "tensorboard", tmp_path / "tensorboard")
    scalars = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    scalars.Reload()
    for name in COUNTERS:
        rates, counts = timeline.rates[name].tolist(), timeline.counts[name].tolist()
        values = [event["args"]["value"] for event in counters if event["name"] == f"{name}/s"]
        assert values == [*rates, 0.0], "the last point ends the curve"
        assert [each.value for each in scalars.Scalars(f"rates/{name}_per_s")] == rates
        assert [each.value for each in scalars.Scalars(f"counts/{name}")] == counts
        assert counts[-1] == getattr(report.counts_total, name)
    for phase, shares in timeline.phase_shares.items():
        assert [each.value for each in scalars.Scalars(f"phases/{phase}")] == pytest.approx(shares.tolist())


def test_ls_shows_the_rate_and_exports_the_phases_of_the_same_run(tmp_path, monkeypatch):
    with scripted_run(tmp_path / "runs" / "one", monkeypatch, RecordOptions(hz=0, raw_windows=9)) as going:
        for steps in (5, 1, 1):
            for _ in range(steps):
                going.during("env.step", 600 // steps * MS, "env_steps")
            with going.open("evaluate"):
                going.during("env.step", 400 * MS)
            going.second()
    trace = load(tmp_path / "runs" / "one")
    rate = json.as_dict(view.build(trace, ()))["rates"]["env_steps_per_s"]
    [info] = survey(tmp_path / "runs")[0]
    assert ls._row(info)["env_steps_per_s"] == rate == 1.0
    export(trace, "csv", tmp_path / "csv")
    phases = {row["path"]: row["phase"] for row in read_csv(tmp_path / "csv" / "spans.csv") if row["kind"] == "span"}
    calls = {row["path"]: row["phase"] for row in read_csv(tmp_path / "csv" / "calls.csv")}
    assert calls == phases == {"env.step": "env", "evaluate": "evaluate", "evaluate > env.step": "evaluate"}


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))
