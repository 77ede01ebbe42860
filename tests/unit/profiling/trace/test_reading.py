"""Run directories that anyone may have written: each file is checked before it is used."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.scripted import scripted_run

from hotloop.errors import RunUnreadable
from hotloop.profiling.diagnosis import explain
from hotloop.profiling.recorder import samples, stack_book
from hotloop.profiling.recorder.call_tree import tree
from hotloop.profiling.recorder.printed_timings import collect
from hotloop.profiling.recorder.windows import WINDOWS_BEFORE_DOUBLING
from hotloop.profiling.report import json as report_json
from hotloop.profiling.report import text, view
from hotloop.profiling.report.export import FORMATS, export
from hotloop.profiling.trace import stream_store
from hotloop.profiling.trace.load import load
from hotloop.profiling.trace.reading import limits
from hotloop.profiling.trace.reading.arrow import END
from hotloop.profiling.trace.run_list import list_runs, survey
from hotloop.spans.registry import MAX_NAMES

MS = 1_000_000
WRITABLE = [each for each in FORMATS if each != "tensorboard" or importlib.util.find_spec("tensorboard")]


@pytest.fixture
def run(tmp_path, monkeypatch) -> Path:
    with scripted_run(tmp_path / "runs" / "run", monkeypatch) as going:
        for _ in range(3):
            for _ in range(5):
                with going.open("train"):
                    going.during("env.step", 150 * MS, "env_steps")
                    going.during("loss", 50 * MS, "updates")
            going.second()
    return tmp_path / "runs" / "run"


def change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def change_name(run: Path, of: str, **values: Any) -> None:
    """Change the last entry of a kind in the names."""
    path = run / "process" / "names.jsonl"
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    last = max(i for i, entry in enumerate(entries) if entry["is"] == of)
    entries[last] |= values
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))


def rewrite(path: Path, table: pa.Table) -> None:
    with open(path, "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)


def table_of(path: Path) -> pa.Table:
    return pa.ipc.open_stream(path.read_bytes()).read_all()


def test_an_undamaged_run_is_complete(run):
    trace = load(run)
    assert (trace.missing, trace.why_incomplete) == ((), ())


@pytest.mark.parametrize("offset", [-1, 1_000_000, 2**31 - 1, -(2**31)])
def test_list_offsets_out_of_bounds_are_rejected(run, offset):
    path = run / "process" / "totals.arrow"
    table = table_of(path).combine_chunks()
    offsets = np.array(table.column("buckets").chunk(0).offsets.to_pylist(), np.int32)
    broken = offsets.copy()
    broken[-2] = offset
    rewrite(path, table)
    before, _, after = path.read_bytes().rpartition(offsets.tobytes())
    path.write_bytes(before + broken.tobytes() + after)
    trace = load(run)
    assert any("totals.arrow" in each for each in trace.missing)
    assert all(node.p50_ns == 0 for node in trace.thread.nodes)


@pytest.mark.parametrize("kind", [pa.int32(), pa.float64(), pa.string(), pa.dictionary(pa.int32(), pa.int64())])
def test_a_column_of_another_type_is_refused(run, kind):
    path = run / "process" / "memory.arrows"
    table = table_of(path)
    at = table.schema.names.index("rss_bytes")
    column = table.column(at).combine_chunks()
    column = column.dictionary_encode() if pa.types.is_dictionary(kind) else pa.array([7] * len(column)).cast(kind)
    rewrite(path, table.set_column(at, "rss_bytes", column))
    with pytest.raises(RunUnreadable, match=r"memory\.arrows: column rss_bytes is"):
        load(run)


def test_missing_values_and_double_columns_are_refused(run):
    path = run / "process" / "memory.arrows"
    table = table_of(path)
    nulls = pa.array([None] * table.num_rows, pa.int64())
    rewrite(path, table.set_column(table.schema.names.index("rss_bytes"), "rss_bytes", nulls))
    with pytest.raises(RunUnreadable, match="a value is missing"):
        load(run)
    rewrite(path, table.append_column("rss_bytes", table.column("rss_bytes")))
    with pytest.raises(RunUnreadable, match="its columns are not those"):
        load(run)


def test_a_column_name_that_is_not_utf8_is_refused(run):
    path = run / "process" / "windows.arrows"
    path.write_bytes(path.read_bytes().replace(b"self_ns", b"\x80elf_ns", 1))
    found = stream_store.read_file(run / "process", "windows")
    assert len(found.columns["node"]) == 0
    assert "decode" in found.damage


def test_a_small_file_with_many_rows_is_not_unpacked(run):
    path = run / "process" / "windows.arrows"
    rows = limits.TABLE_ROWS + 1
    columns = [pa.Array.from_buffers(f.type, rows, [None, pa.py_buffer(bytes(rows * f.type.bit_width // 8))])
               for f in stream_store.SCHEMAS["windows"]]  # fmt: skip
    batch = pa.RecordBatch.from_arrays(columns, schema=stream_store.SCHEMAS["windows"])
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with open(path, "wb") as file, pa.ipc.new_stream(file, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    assert path.stat().st_size < 100_000
    found = stream_store.read_file(run / "process", "windows")
    assert len(found.columns["node"]) == 0
    assert "more than" in found.damage


def test_a_buffer_that_declares_a_huge_size_is_not_allocated(run):
    path = run / "process" / "windows.arrows"
    data = path.read_bytes()
    sizes = {len(table_of(path)) * field.type.bit_width // 8 for field in stream_store.SCHEMAS["windows"]}
    batch_sizes = {each.num_rows * 8 for each in pa.ipc.open_stream(data)} | sizes
    for size in batch_sizes:
        data = data.replace(size.to_bytes(8, "little"), (1 << 45).to_bytes(8, "little"))
    path.write_bytes(data)
    before = pa.total_allocated_bytes()
    found = stream_store.read_file(run / "process", "windows")
    assert found.damage
    assert pa.total_allocated_bytes() - before < 1 << 24


def test_a_batch_with_a_number_out_of_range_ends_the_table(run):
    path = run / "process" / "windows.arrows"
    table = table_of(path)
    values = table.column("self_ns").to_pylist()
    values[-1] = 2**62
    rewrite(path, table.set_column(table.schema.names.index("self_ns"), "self_ns", pa.array(values, pa.int64())))
    trace = load(run)
    assert any(f"self_ns is {2**62}" in each for each in trace.missing)


def test_sums_of_large_numbers_stay_numbers(run):
    """Each is in range, and 64 bits cannot hold their sum."""
    path = run / "process" / "counters.arrows"
    table = table_of(path)
    big = pa.array([limits.LARGEST] * 200, pa.int64())
    many = table.take([0] * 200)
    rewrite(path, many.set_column(table.schema.names.index("amount"), "amount", big))
    trace = load(run)
    assert 0 < sum(trace.main.windows.counts["env_steps"].tolist()) <= limits.LARGEST_SUM
    assert any("counters.arrows" in each for each in trace.missing)


def test_windows_without_length_have_no_rates_and_no_drift(tmp_path, monkeypatch):
    with scripted_run(tmp_path / "run", monkeypatch) as going:
        for _ in range(12):
            going.during("env.step", 1000 * MS, "env_steps", "updates")
            going.second()
    path = tmp_path / "run" / "process" / "memory.arrows"
    table = table_of(path)
    at = pa.array([0, *table.column("start_ns").to_pylist()[1:]], pa.int64())
    table = table.set_column(table.schema.names.index("start_ns"), "start_ns", at)
    rewrite(path, table.set_column(table.schema.names.index("end_ns"), "end_ns", at))
    trace = load(tmp_path / "run")
    content = report_json.as_dict(view.build(trace, explain(trace)))
    assert content["drift"] is None
    report_json.dumps(content)


HOSTILE = [None, 10**30, -1, 1.5, "", [], {}, "x", True]


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize(
    ("file", "key"),
    [
        ("run.json", "started_unix_ns"), ("run.json", "name"), ("run.json", "machine"), ("run.json", "command"),
        ("run.json", "torch"), ("run.json", "seconds"), ("run.json", "exit_code"), ("run.json", "pid"),
        ("process/process.json", "pid"), ("process/process.json", "clock_ns"), ("process/process.json", "main"),
        ("process/state.json", "tally_wrap_ns"), ("process/state.json", "within_ns"),
        ("process/state.json", "warnings"), ("process/state.json", "loop_start_ns"), ("process/state.json", "span_ns"),
        ("process/state.json", "process"),
    ],
)  # fmt: skip
def test_wrong_json_values_give_a_one_line_error_or_a_report(run, tmp_path, file, key, value):
    change(run / file, **{key: value})
    try:
        trace = load(run)
    except RunUnreadable as error:
        assert len(str(error).splitlines()) == 1
        return
    report = view.build(trace, explain(trace))
    text.as_text(report)
    report_json.dumps(report_json.detailed(report, trace))
    for to in WRITABLE:
        export(trace, to, tmp_path / to)


@pytest.mark.parametrize("content", ['{"tally_wrap_ns": Infinity}', '{"tally_wrap_ns": 1e999}', '{"span_ns": NaN}'])
def test_numbers_that_are_not_finite_are_refused(run, content):
    (run / "process" / "state.json").write_text(content)
    with pytest.raises(RunUnreadable, match="is left out"):
        load(run)


@pytest.mark.parametrize("deep", ["[" * 100_000, '{"a":' * 100_000, "[" * 500 + "]" * 500])
def test_deep_nesting_is_refused(run, deep):
    (run / "run.json").write_text(f'{{"format": 1, "started_unix_ns": 1, "config": {deep}')
    with pytest.raises(RunUnreadable, match="cannot be read"):
        load(run)
    (run / "run.json").write_text(f'{{"format": 1, "started_unix_ns": 1, "config": {deep}}}')
    with pytest.raises(RunUnreadable, match="cannot be read"):
        load(run)


@pytest.mark.parametrize(
    ("kind", "values", "problem"),
    [
        ("node", {"parent": 4_000}, "no parent before it"),
        ("node", {"parent": -1}, "no parent before it"),
        ("node", {"id": 1}, "named twice"),
        ("node", {"kind": "root"}, "is a root"),
        ("node", {"id": 10**6}, "id: 1000000 is not"),
        ("node", {"name": None}, "name: None is not"),
        ("thread", {"main": None}, "main: None is not"),
        ("span", {"hook": 9}, "hook: 9 is not"),
        ("counter", {"code": 2**31}, "code: 2147483648 is not"),
    ],
)
def test_names_are_used_up_to_the_first_that_is_wrong(run, kind, values, problem):
    change_name(run, kind, **values)
    try:
        missing = "".join(load(run).missing)
    except RunUnreadable:
        return
    assert "names.jsonl" in missing
    assert problem in missing


def test_a_node_that_is_its_own_parent_causes_no_endless_loop(run):
    path = run / "process" / "names.jsonl"
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    number = max(entry["id"] for entry in entries if entry["is"] == "node")
    change_name(run, "node", id=number, parent=number)
    assert any("no parent before it" in each for each in load(run).missing)


@pytest.mark.parametrize("name", ["run.json", "process/process.json", "process/state.json", "process/names.jsonl",
                                  "process/windows.arrows", "process/totals.arrow"])  # fmt: skip
@pytest.mark.parametrize("kind", ["fifo", "socket", "folder", "device", "loop", "huge"])
def test_files_that_are_not_regular_do_not_block(run, monkeypatch, name, kind):
    path = run / name
    path.unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        monkeypatch.chdir(path.parent)
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    elif kind == "folder":
        path.mkdir()
    elif kind == "huge":
        with open(path, "wb") as file:
            file.truncate(10 << 30)
    else:
        path.symlink_to("/dev/zero" if kind == "device" else path)
    try:
        assert load(run).missing
    except RunUnreadable as error:
        assert str(run) in str(error)


def test_one_bad_run_does_not_hide_the_others(run):
    bad = run.with_name("bad")
    for i, content in enumerate(("{", '{"format": null}', '{"format": 1, "started_unix_ns": 1e30}', "[" * 100_000)):
        (bad.with_name(f"bad{i}")).mkdir()
        (bad.with_name(f"bad{i}") / "run.json").write_text(content)
    os.mkfifo(run.parent / "bad0" / "process.json")
    assert [each.name for each in list_runs(run.parent)] == ["scripted"]
    assert len(survey(run.parent)[1]) == 4


def test_bytes_that_are_no_utf8_are_escaped_in_every_export(run, tmp_path):
    change_name(run, "node", name="caf\udce9")
    change(run / "run.json", name="caf\udce9", command=["train.py", "caf\udce9"])
    change(run / "process" / "state.json", process="caf\udce9")
    trace = load(run)
    for to in WRITABLE:
        export(trace, to, tmp_path / to)
    for path in (tmp_path / "perfetto", tmp_path / "speedscope"):
        assert "caf\\udce9" in json.dumps(json.loads(path.read_text(encoding="utf-8"))).replace("\\\\", "\\")
    assert "caf\\udce9" in (tmp_path / "csv" / "spans.csv").read_text(encoding="utf-8").replace("\\\\", "\\")


def test_a_run_whose_own_path_is_no_utf8_is_recorded_and_exported(tmp_path, monkeypatch):
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    with scripted_run(folder / "run", monkeypatch) as going:
        for _ in range(5):
            going.during("env.step", 300 * MS, "env_steps")
    trace = load(folder / "run")
    report = view.build(trace, [])
    for to in WRITABLE:
        assert export(trace, to, folder / to) > 0
    report_json.write(report_json.detailed(report, trace), folder / "all.json")
    text.write(report, folder / "report.txt")
    assert "caf\\udce9" in json.loads((folder / "all.json").read_text(encoding="utf-8"))["run"]


def test_control_characters_do_not_reach_the_terminal(run):
    change_name(run, "span", name="evil\x1b[2J")
    change_name(run, "node", name="evil\x1b[2J\r")
    trace = load(run)
    shown = text.as_text(view.build(trace, []))
    assert "\x1b" not in shown and "\r" not in shown
    assert "evil\\x1b[2J" in shown


@pytest.mark.parametrize("table", ["windows", "memory", "counters"])
def test_a_stream_that_was_cut_between_two_batches_is_reported(run, table):
    path = run / "process" / f"{table}.arrows"
    path.write_bytes(path.read_bytes()[: -len(END)])
    trace = load(run)
    assert any(f"{table}.arrows: it is cut" in each for each in trace.missing)
    assert text.as_text(view.build(trace, [])).startswith("Incomplete recording: ")
    assert report_json.as_dict(view.build(trace, []))["complete"] is False


def test_lost_names_are_reported(run):
    path = run / "process" / "names.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    assert any("it lacks names" in each for each in load(run).missing)


def test_the_recorder_stays_within_the_limits_of_the_reader():
    assert tree.MAX_NODES <= limits.NODES
    assert stack_book.MAX_STACKS <= limits.STACKS
    assert samples.MAX_DEPTH <= limits.STACK_FRAMES
    assert MAX_NAMES + 2 <= limits.SPANS
    assert collect.MOST_NAMES <= limits.ROWS
    year_s = 365 * 86_400
    windows = WINDOWS_BEFORE_DOUBLING * (1 + np.log2(year_s / WINDOWS_BEFORE_DOUBLING) / 2)
    assert windows <= limits.WINDOWS
