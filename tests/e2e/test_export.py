"""`hotloop export` on a real run of two processes; each file is opened by the reader of its tool.

Readers: speedscope's schema and the trace-event format by strict checkers (tests/formats.py; Perfetto's own trace
processor is used if the `perfetto` package can download it), TensorBoard's EventAccumulator, pyarrow and pandas.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from pyarrow import csv
from tests.formats import check_speedscope, check_trace_events

HOTLOOP = [sys.executable, "-m", "hotloop.cli.main"]
SCRIPT = """
import multiprocessing, threading, time
from hotloop import count, span

def work(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with span("worker.step"):
            sum(range(2000))

if __name__ == "__main__":
    child = multiprocessing.get_context("fork").Process(target=work, args=(2.2,))
    helper = threading.Thread(target=work, args=(2.2,), name="helper")
    child.start(); helper.start()
    end = time.monotonic() + 2.4
    while time.monotonic() < end:
        with span("env.step"):
            time.sleep(0.002)
        count("env_steps")
        with span("update"):
            with span("replay.sample"):
                sum(range(20_000))
        count("updates")
    child.join(); helper.join()
"""


def call(*words: object, cwd: Path, expect: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*HOTLOOP, *map(str, words)], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == expect, f"{words} exited {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("export")
    (place / "train.py").write_text(SCRIPT)
    call("run", "--out", "runs/first", "train.py", cwd=place)
    return place


@pytest.fixture(scope="module")
def explained(place):
    return json.loads(call("explain", "--json", cwd=place).stdout)


def test_the_timeline_contains_all_threads_calls_windows_and_counters(place, explained):
    done = call("export", "--to", "perfetto", cwd=place)
    assert done.stdout.startswith("wrote first.perfetto.json (") and "ui.perfetto.dev" in done.stdout
    events = check_trace_events(place / "first.perfetto.json")
    names = {e["args"]["name"] for e in events["M"] if e["name"] == "thread_name"}
    assert {"MainThread", "MainThread, by window", "helper", "helper, by window"} <= names
    assert len({e["pid"] for e in events["M"]}) == 2, "both processes"
    assert {"env.step", "update", "replay.sample", "worker.step"} <= {e["name"] for e in events["X"]}
    assert {"env_steps/s", "updates/s", "memory (MB)"} <= {e["name"] for e in events["C"]}
    # The windows' slices sum to the times in the table.
    windows = {e["tid"] for e in events["M"] if e.get("args") == {"name": "MainThread, by window"}}
    drawn = sum(e["args"]["self_ms"] for e in events["X"] if e["tid"] in windows and e["name"] == "env.step") / 1e3
    table = next(row for row in explained["spans"] if row["name"] == "env.step")
    assert drawn == pytest.approx(table["self_s"], rel=0.02)


def test_perfetto_opens_the_timeline(place):
    """Only if the trace processor is available: the package downloads it."""
    if importlib.util.find_spec("perfetto") is None:
        warnings.warn("perfetto is not installed: the timeline was held to the format's rules only", stacklevel=1)
        pytest.skip("perfetto is not installed: pip install perfetto")
    from perfetto.trace_processor import TraceProcessor

    call("export", "--to", "perfetto", "--output", "p.json", cwd=place)
    try:
        processor = TraceProcessor(trace=str(place / "p.json"))
    except Exception as error:  # the downloader may raise anything without a network
        warnings.warn(f"Perfetto's trace processor cannot be had: {error}", stacklevel=1)
        pytest.skip("Perfetto's trace processor cannot be had here")
    slices = next(iter(processor.query("select count(*) as n from slice"))).n
    lost = next(iter(processor.query("select sum(value) as n from stats where severity = 'error'"))).n
    processor.close()
    assert slices == len(check_trace_events(place / "p.json")["X"])
    assert not lost


def test_there_is_a_flame_graph_for_every_thread(place, explained):
    call("export", "first", "--to", "speedscope", "--output", "s.json", cwd=place)
    content = check_speedscope(place / "s.json")
    assert content["exporter"].startswith("hotloop@")
    names = [each["name"] for each in content["profiles"]]
    assert names[0] == "MainThread" and "helper" in names and len(names) >= 3
    # The time of the loop that stack samples cover.
    assert 0.5 * explained["wall_s"] < content["profiles"][0]["endValue"] / 1e9 < 1.01 * explained["wall_s"]
    assert any(frame.get("file", "").endswith("train.py") for frame in content["shared"]["frames"])


def test_tables_are_read_by_pyarrow_and_pandas(place, explained):
    done = call("export", "--to", "csv", "--json", cwd=place)
    exported = json.loads(done.stdout)
    folder = place / exported["path"]
    assert exported == {
        "schema": 1,
        "to": "csv",
        "path": "first-csv",
        "bytes": sum(file.stat().st_size for file in folder.iterdir()),
    }
    tables = {file.stem: csv.read_csv(file) for file in folder.iterdir()}
    assert set(tables) == {"calls", "counts", "memory", "phases", "samples", "spans", "windows"}
    assert all(table.num_rows for table in tables.values())
    steps = [row["amount"] for row in tables["counts"].to_pylist() if row["counter"] == "env_steps"]
    assert sum(steps) == explained["counts"]["env_steps"]
    if importlib.util.find_spec("pandas") is None:
        warnings.warn("pandas is not installed: the tables were read with pyarrow only", stacklevel=1)
        return
    import pandas

    for name, table in tables.items():
        frame = pandas.read_csv(folder / f"{name}.csv")
        assert list(frame.columns) == table.column_names
        assert len(frame) == table.num_rows


def test_tensorboard_reads_the_curves(place, explained):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    shown = call("export", "--to", "tensorboard", cwd=place).stdout
    assert "tensorboard --logdir first-tensorboard" in shown
    found = accumulator.EventAccumulator(str(place / "first-tensorboard"))
    found.Reload()
    tags = set(found.Tags()["scalars"])
    assert {"rates/env_steps_per_s", "rates/updates_per_s", "phases/env", "memory/resident_bytes"} <= tags
    points = found.Scalars("rates/env_steps_per_s")
    assert points[-1].step == explained["counts"]["env_steps"]
    started = json.loads((place / "runs/first/run.json").read_text())["started_unix_ns"] / 1e9
    assert 0 < points[0].wall_time - started < 60
    shares = [found.Scalars(tag)[0].value for tag in tags if tag.startswith("phases/")]
    assert sum(shares) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["export"], "--to"),
        (["export", "--to", "pdf"], "'pdf'"),
        (["export", "nowhere", "--to", "csv"], "no run at nowhere"),
        (["export", "--to", "csv", "--output", "train.py"], "train.py is a file"),
        (["export", "--to", "perfetto", "--output", "runs"], "runs is a folder"),
        (["export", "--to", "speedscope", "--output", "no/s.json"], "cannot write no/s.json"),
        (["export", "--to", "speedscope", "--output", "train.py"], "--force"),
    ],
)
def test_invalid_calls_are_reported_in_one_line(place, words, message):
    before = (place / "train.py").read_text()
    done = call(*words, cwd=place, expect=2)
    assert done.stderr.startswith("hotloop: ") and len(done.stderr.splitlines()) == 1
    assert message in done.stderr
    assert (place / "train.py").read_text() == before


def test_the_current_directory_can_be_input_and_output(place, tmp_path):
    run = place / "runs" / "first"
    assert call("export", ".", "--to", "speedscope", cwd=run).stdout.startswith("wrote first.speedscope.json (")
    (run / "first.speedscope.json").unlink()
    call("export", run, "--to", "csv", "--output", ".", cwd=tmp_path)
    assert (tmp_path / "spans.csv").is_file()


def test_missing_tensorboard_is_reported_in_one_line(place, tmp_path):
    (tmp_path / "tensorboard.py").write_text("raise ImportError('no tensorboard')")
    done = subprocess.run(
        [*HOTLOOP, "export", "--to", "tensorboard", "--output", "none"],
        cwd=place,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
    )
    assert done.returncode == 2
    assert done.stderr == "hotloop: tensorboard is not installed: pip install tensorboard, or use --to csv\n"
    assert not (place / "none").exists()


def test_help_lists_every_format(place):
    shown = call("export", "--help", cwd=place).stdout
    for name in ("perfetto", "chrome", "speedscope", "csv", "tensorboard"):
        assert name in shown
