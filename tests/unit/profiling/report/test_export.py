"""Exports with exact values, from a run whose clock the test turns, and from runs written down by hand."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pyarrow import csv
from tests.formats import check_speedscope, check_trace_events
from tests.scripted import START_NS, scripted_run
from tests.traces import frame, make_process, make_thread, make_trace, place, seen

from hotloop.errors import HotloopError
from hotloop.phases import Phase
from hotloop.profiling.recorder.record_options import RecordOptions
from hotloop.profiling.report.export import default_path, export, speedscope
from hotloop.profiling.report.export.windows import window_slices
from hotloop.profiling.trace.load import load
from hotloop.profiling.trace.reading.call_streams import read_streams, wall_clock_offset_ns
from hotloop.spans import span

MS = 1_000_000
PID = os.getpid()
TABLES = ("calls", "counts", "memory", "phases", "samples", "spans", "windows")


@pytest.fixture
def scripted(tmp_path, monkeypatch):
    """Two windows: in the first an update with a sample of 200 ms inside, in the second two steps; raw of both."""
    with scripted_run(tmp_path / "run", monkeypatch, RecordOptions(hz=0, raw_windows=9)) as going:
        going.during("env.step", 250 * MS, "env_steps")
        with going.open("update"):
            going.spend(50 * MS)
            going.during("replay.sample", 200 * MS)
            going.spend(100 * MS)
        going.spend(400 * MS)
        going.second()
        going.during("env.step", 600 * MS, "env_steps")
        going.during("env.step", 400 * MS, "env_steps")
        going.second()
    return load(tmp_path / "run")


@pytest.fixture
def written():
    """A run of 10 s with a worker process, stacks, and names that need quoting."""
    step = place('env "a", <b>', Phase.ENV, 4.0, 400, counts={"env_steps": 400})
    sample = place("replay.sample", Phase.SAMPLE, 6.0, 100)
    outer, inner = frame("train", "train.py", 7, "a, b = f()"), frame("sample", "lib.py", 12, 'x["é"]', own=False)
    worker = make_process([make_thread([place("Queue.put", Phase.WAIT, 3.0, 30)])], pid=77, main=False)
    return make_trace(
        [step, sample],
        samples=[seen("replay.sample", [inner, outer], 6.0, cpu=0.5), seen('env "a", <b>', [outer], 4.0)],
        counts={"env_steps": 400, "gc_pauses": 3},
        windows={"env_steps": [100, 300]},
        others=[worker],
    )


def slices(events, thread: str) -> list[tuple[str, float, float]]:
    tids = [e["tid"] for e in events["M"] if e["name"] == "thread_name" and e["args"]["name"] == thread]
    return [(e["name"], e["ts"], e["dur"]) for e in events["X"] if e["tid"] in tids]


def read(folder: Path, table: str):
    return csv.read_csv(folder / f"{table}.csv").to_pylist()


def test_single_calls_have_their_start_and_duration(scripted, tmp_path):
    export(scripted, "perfetto", tmp_path / "t.json")
    events = check_trace_events(tmp_path / "t.json")
    assert slices(events, "MainThread") == [
        ("env.step", 0, 250_000),
        ("update", 250_000, 350_000),
        ("replay.sample", 300_000, 200_000),
        ("env.step", 1_000_000, 600_000),
        ("env.step", 1_600_000, 400_000),
    ]
    assert {e["name"]: e["cat"] for e in events["X"] if e["tid"] == PID} == {
        "env.step": "env",
        "update": "other",
        "replay.sample": "sample",
    }


def test_each_window_shows_its_call_tree_as_wide_as_its_time(scripted, tmp_path):
    export(scripted, "perfetto", tmp_path / "t.json")
    found = slices(check_trace_events(tmp_path / "t.json"), "MainThread, by window")
    first = [each for each in found if each[1] < 1_000_000]
    assert [(name, length) for name, _, length in first if not name.startswith("(")] == [
        ("env.step", 250_000),
        ("update", 350_000),
        ("replay.sample", 200_000),
    ]
    assert [each for each in found if each[1] >= 1_000_000] == [("env.step", 1_000_000, 1_000_000)]


def test_windows_are_drawn_from_corrected_times(scripted, tmp_path):
    """The trace says that a span took half of what the files say: then it is drawn half as wide as its neighbours."""
    [stream] = read_streams(scripted)
    recorded = stream.thread
    steps = [node for node, each in recorded.nodes.items() if each.name == "env.step"]
    assert recorded.self_ns[np.isin(recorded.node, steps)].sum() == 1_250 * MS
    thread = scripted.thread
    halved = tuple(replace(n, self_ns=n.self_ns // 2, calls=n.calls * 4) if n.id in steps else n for n in thread.nodes)
    made = list(window_slices(stream, replace(thread, nodes=halved)))
    step = next(each for each in made if each.name == "env.step")
    # 125 ms of 125 + 350 + 400, spread over a window of 1,000.
    assert step.total_ns == 125 * MS
    assert step.calls == 4
    assert step.end_ns - step.start_ns == pytest.approx(1000 * MS * 125 / 875, abs=2)


def test_start_up_is_drawn_but_not_part_of_the_loop(tmp_path, monkeypatch):
    with scripted_run(tmp_path / "run", monkeypatch) as going:
        going.during("replay.sample", 500 * MS)
        going.during("env.step", 600 * MS + 7, "env_steps")
        going.during("replay.sample", 200 * MS)
    trace = load(tmp_path / "run")
    assert trace.loop_start_ns == START_NS + 500 * MS
    export(trace, "perfetto", tmp_path / "t.json")
    events = check_trace_events(tmp_path / "t.json")
    assert slices(events, "MainThread, by window") == [
        ("replay.sample", 0, 500_000),
        ("replay.sample", 500_000, 200_000),
        ("env.step", 700_000, 600_000),
    ], "each window in the order of the tree"
    args = [e["args"] for e in events["X"] if "args" in e]
    assert [each["self_ms"] for each in args] == [500.0, 200.0, 600.000007]
    assert slices(events, "MainThread")[1:] == [
        ("env.step", 500_000, 600_000.007),
        ("replay.sample", 1_100_000.007, 200_000),
    ]


def test_counters_are_rates_by_window_and_memory(written, tmp_path):
    export(written, "perfetto", tmp_path / "t.json")
    counters = check_trace_events(tmp_path / "t.json")["C"]
    rates = [(e["ts"], e["args"]["value"]) for e in counters if e["name"] == "env_steps/s"]
    assert rates == [(0, 100), (1_000_000, 300), (10_000_000, 0)]
    memory = [e["args"]["value"] for e in counters if e["name"] == "memory (MB)" and e["pid"] == 100]
    assert memory == [pytest.approx((300 << 20) / 1e6, rel=1e-5), pytest.approx((320 << 20) / 1e6, rel=1e-5)]
    assert not [e for e in counters if "GPU" in e["name"]], "there is none"


def test_a_compressed_timeline_has_the_same_content(scripted, tmp_path):
    export(scripted, "chrome", tmp_path / "t.json.gz")
    export(scripted, "perfetto", tmp_path / "t.json")
    assert check_trace_events(tmp_path / "t.json.gz") == check_trace_events(tmp_path / "t.json")
    assert (tmp_path / "t.json.gz").stat().st_size < (tmp_path / "t.json").stat().st_size


def test_speedscope_has_one_profile_per_thread_with_stacks_and_spans(written, tmp_path):
    export(written, "speedscope", tmp_path / "s.json")
    content = check_speedscope(tmp_path / "s.json")
    names = [each["name"] for each in content["shared"]["frames"]]
    [profile] = content["profiles"]
    assert profile["name"] == "MainThread"
    stacks = {tuple(names[i] for i in s): w for s, w in zip(profile["samples"], profile["weights"], strict=True)}
    assert stacks == {
        ("train", "sample", "[sample] replay.sample"): 6_000 * MS,
        ("train", '[env] env "a", <b>'): 4_000 * MS,
    }
    assert {"name": "sample", "file": "lib.py", "line": 12} in content["shared"]["frames"]


def test_speedscope_of_a_run_without_samples_is_still_a_file(scripted, tmp_path):
    export(scripted, "speedscope", tmp_path / "s.json")
    assert check_speedscope(tmp_path / "s.json")["profiles"][0]["samples"] == []


def test_csv_has_every_process_and_adds_up(written, tmp_path):
    export(written, "csv", tmp_path / "t")
    assert sorted(path.stem for path in (tmp_path / "t").iterdir()) == sorted(TABLES)
    spans = read(tmp_path / "t", "spans")
    assert [(row["pid"], row["path"], row["calls"], row["self_s"]) for row in spans if row["kind"] == "span"] == [
        (100, 'env "a", <b>', 400, 4.0),
        (100, "replay.sample", 100, 6.0),
        (77, "Queue.put", 30, 3.0),
    ]
    phases = {(row["pid"], row["phase"]): row["share"] for row in read(tmp_path / "t", "phases")}
    assert phases == {(100, "sample"): 0.6, (100, "env"): 0.4, (77, "wait"): 1.0}
    counts = [(row["path"], row["counter"], row["amount"]) for row in read(tmp_path / "t", "counts")]
    assert counts == [('env "a", <b>', "env_steps", 400), ("", "gc_pauses", 3)]
    windows = [row for row in read(tmp_path / "t", "windows") if row["pid"] == 100]
    assert [(row["start_s"], row["end_s"], row["env_steps"]) for row in windows] == [(0, 1, 100), (1, 2, 300)]
    assert sum(row["phase_sample_s"] for row in windows) == pytest.approx(6.0)
    sample = next(row for row in read(tmp_path / "t", "samples") if row["function"] == "sample")
    assert (sample["file"], sample["line"], sample["text"]) == ("lib.py", 12, 'x["é"]')
    assert (sample["wall_s"], sample["cpu_s"], sample["n"]) == (6.0, 3.0, 600)
    assert sample["stack"] == "train (train.py:7) > sample (lib.py:12)"


def test_csv_of_single_calls(scripted, tmp_path):
    export(scripted, "csv", tmp_path / "t")
    rows = [(row["path"], row["start_s"], row["end_s"]) for row in read(tmp_path / "t", "calls")]
    assert rows[1:3] == [("update", 0.25, 0.6), ("update > replay.sample", 0.3, 0.5)]
    assert len(rows) == 5


def test_tensorboard_curves(written, tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    export(written, "tensorboard", tmp_path / "t")
    found = accumulator.EventAccumulator(str(tmp_path / "t"))
    found.Reload()
    assert sorted(found.Tags()["scalars"]) == [
        "counts/env_steps",
        "memory/resident_bytes",
        "phases/env",
        "phases/sample",
        "rates/env_steps_per_s",
    ]
    rates = [(each.step, each.value) for each in found.Scalars("rates/env_steps_per_s")]
    assert rates == [(100, 100.0), (400, 300.0)], "the step is what was done by the end of the window"
    assert [each.value for each in found.Scalars("phases/sample")] == [pytest.approx(0.6), pytest.approx(0.6)]
    # The run began 2 s before the loop; its windows are a second long.
    begun = 1_760_000_000
    assert [each.wall_time for each in found.Scalars("phases/env")] == [begun + 3, begun + 4]


def test_unix_time_comes_from_the_start_of_the_process(scripted):
    assert wall_clock_offset_ns(scripted) == 1 - START_NS


def test_default_names_come_from_the_run(written):
    assert {
        to: str(default_path(written, to)) for to in ("perfetto", "chrome", "speedscope", "csv", "tensorboard")
    } == {
        "perfetto": "synthetic.perfetto.json",
        "chrome": "synthetic.perfetto.json",
        "speedscope": "synthetic.speedscope.json",
        "csv": "synthetic-csv",
        "tensorboard": "synthetic-tensorboard",
    }


@pytest.mark.parametrize("to", ["perfetto", "csv"])
def test_an_existing_export_is_replaced_only_with_force(written, tmp_path, to):
    target = tmp_path / "there"
    export(written, to, target)
    if to == "csv":
        (target / "mine.txt").write_text("mine")
        (target / "spans.csv").write_text("old")
    else:
        target.write_text("old")
    with pytest.raises(HotloopError, match=r"already exists: .*--force"):
        export(written, to, target)
    size = export(written, to, target, force=True)
    assert size == sum(f.stat().st_size for f in (target.iterdir() if to == "csv" else [target]))
    file = target / "spans.csv" if to == "csv" else target
    assert file.read_text() != "old"
    if to == "csv":
        assert (target / "mine.txt").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["there"], "nothing passing is left"


def test_a_wrong_path_or_format_is_an_error(written, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(HotloopError, match="is a file, the export needs a folder"):
        export(written, "csv", tmp_path / "file", force=True)
    with pytest.raises(HotloopError, match="is a folder, the export needs a file"):
        export(written, "perfetto", tmp_path, force=True)
    with pytest.raises(HotloopError, match=r"cannot write .*No such file or directory"):
        export(written, "speedscope", tmp_path / "no" / "s.json")
    with pytest.raises(HotloopError, match="cannot export to 'pdf': use one of perfetto"):
        export(written, "pdf", tmp_path / "x")


def test_a_failed_export_keeps_the_existing_file(written, tmp_path, monkeypatch):
    (tmp_path / "s.json").write_text("old")

    def broken(report, trace, path):
        path.write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(speedscope, "write", broken)
    with pytest.raises(HotloopError, match="No space left on device"):
        export(written, "speedscope", tmp_path / "s.json", force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["s.json"]
    assert (tmp_path / "s.json").read_text() == "old"


def test_names_that_break_json_or_csv_come_through(tmp_path, monkeypatch):
    name = 'env "</script>\\\n, é;'
    with scripted_run(tmp_path / "run", monkeypatch) as going:
        going.during(span(name, Phase.ENV), 700 * MS, "env_steps")
        going.spend(300 * MS)
    trace = load(tmp_path / "run")
    export(trace, "perfetto", tmp_path / "t.json")
    assert name in {each["name"] for each in check_trace_events(tmp_path / "t.json")["X"]}
    export(trace, "csv", tmp_path / "t")
    table = csv.read_csv(tmp_path / "t" / "spans.csv", parse_options=csv.ParseOptions(newlines_in_values=True))
    assert name in table.column("name").to_pylist()
