"""Written files are read back; files truncated at any byte are read up to the last complete batch."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scripted import scripted_run

from hotloop.errors import HotloopError, RunUnreadable
from hotloop.profiling.recorder.observed import Observed
from hotloop.profiling.trace import stream_store, summary
from hotloop.profiling.trace.hot_lines import hot_lines
from hotloop.profiling.trace.load import load

MS = 1_000_000
TABLES = ("windows", "spans", "counters", "samples", "memory", "raw")
SMALL = {"int16": 2**15 - 1, "int32": 2**31 - 1, "int64": 2**63 - 1}


def some_columns(draw: st.DrawFn, table: str) -> dict[str, list[int]]:
    n = draw(st.integers(1, 4))
    columns = {}
    for field in stream_store.SCHEMAS[table]:
        most = SMALL[str(field.type)]
        columns[field.name] = draw(st.lists(st.integers(-most, most), min_size=n, max_size=n))
    return columns


@st.composite
def batches(draw: st.DrawFn) -> tuple[str, list[dict[str, list[int]]]]:
    table = draw(st.sampled_from(TABLES))
    return table, [some_columns(draw, table) for _ in range(draw(st.integers(0, 4)))]


def joined(parts: list[dict[str, list[int]]], table: str) -> dict[str, list[int]]:
    return {name: [v for part in parts for v in part[name]] for name in stream_store.SCHEMAS[table].names}


def read(folder: Path, table: str) -> dict[str, list[int]]:
    return {name: column.tolist() for name, column in stream_store.read_file(folder, table).columns.items()}


@given(batches(), st.booleans())
@settings(max_examples=40, deadline=None)
def test_written_batches_are_read_back(given_batches, closed):
    table, parts = given_batches
    with TemporaryDirectory() as place:
        files = stream_store.ProcessFiles(Path(place) / "p")
        for part in parts:
            files.append(table, part)
        if closed:
            files.close()
        assert read(files.folder, table) == joined(parts, table)
        if not closed:
            files.close()


@given(batches(), st.data())
@settings(max_examples=60, deadline=None)
def test_a_truncated_stream_is_read_up_to_its_last_complete_batch(given_batches, data):
    table, parts = given_batches
    with TemporaryDirectory() as place:
        files = stream_store.ProcessFiles(Path(place) / "p")
        path, sizes = files.folder / f"{table}.arrows", []
        for part in parts:
            files.append(table, part)
            sizes.append(path.stat().st_size)
        files.close()
        if not parts:
            assert not path.exists()
            return
        content = path.read_bytes()
        at = data.draw(st.integers(0, len(content)))
        path.write_bytes(content[:at])
        whole = sum(size <= at for size in sizes)
        assert read(files.folder, table) == joined(parts[:whole], table)


@cache
def a_run() -> Path:
    """A run of several windows that was not closed, as if killed."""
    folder = Path(mkdtemp(prefix="hotloop-test-"))
    with pytest.MonkeyPatch.context() as patch, scripted_run(folder / "whole", patch) as run:
        for second in range(3):
            for _ in range(5):
                with run.open("train"):
                    run.during("env.step", 150 * MS, "env_steps")
                    run.during("loss", 50 * MS, "updates")
            if second < 2:
                run.second()
            run.recorder._writer.totals(run.recorder.accounts, observed=an_observation(second))
    return folder


def an_observation(windows: int) -> Observed:
    """What was seen in some windows in which the main thread was followed."""
    observed = Observed()
    observed.add(
        {
            "is": "place", "id": 0, "file": "/a/train.py", "function": "learn", "first_line": 1, "at": [2, 2, 4, 9],
            "operation": 171, "callee": "numpy.stack", "operands": ["list of 2 × array float32 [3]"],
        },
        {},
    )  # fmt: skip
    for frame in range(windows + 1):
        observed.add({"is": "followed", "rows": np.array([0, frame, 1, 1, 7, 8]).tobytes(), "counts": {}}, {})
    return observed


@pytest.fixture(scope="module", autouse=True)
def clear_recording():
    yield
    shutil.rmtree(a_run())


FILES = (
    "run.json", "process/process.json", "process/names.jsonl", "process/windows.arrows", "process/spans.arrows",
    "process/counters.arrows", "process/memory.arrows", "process/raw.arrows", "process/totals.arrow",
    "process/state.json", "process/observed.json",
)  # fmt: skip


def check_cut(name: str, keep: int) -> None:
    """Load the run with one file truncated to `keep` bytes: the trace adds up, or there is one clear error."""
    cut = a_run() / "cut"
    shutil.copytree(a_run() / "whole", cut)
    try:
        path = cut / name
        path.write_bytes(path.read_bytes()[:keep])
        try:
            trace = load(cut)
            assert sum(node.self_ns for node in trace.thread.nodes) == trace.thread.wall_ns
            assert all(node.self_ns >= 0 for node in trace.thread.nodes)
            summary.phases(trace.thread), summary.spans(trace.thread), summary.counts(trace), summary.rates(trace)
            hot_lines(trace), [*trace.observed.passes]
        except RunUnreadable as error:
            assert str(cut) in str(error)
    finally:
        shutil.rmtree(cut)


@given(st.sampled_from(FILES), st.floats(0, 1))
@settings(max_examples=120, deadline=None)
def test_a_run_with_a_truncated_file_loads_or_reports_why_not(name, part):
    size = (a_run() / "whole" / name).stat().st_size
    check_cut(name, round(part * size))


@pytest.mark.parametrize("name", FILES)
def test_a_run_with_an_empty_file_loads_or_reports_why_not(name):
    check_cut(name, 0)


def test_an_undamaged_run_equals_the_script():
    trace = load(a_run() / "whole")
    assert trace.main.counts["env_steps"] == 15
    # The loop starts inside the first call of "train".
    assert trace.thread.wall_ns == 3000 * MS
    assert trace.observed.passes == {0: 3}


@given(st.binary(max_size=300), st.sampled_from(FILES))
@settings(max_examples=60, deadline=None)
def test_a_file_with_unexpected_content_never_causes_a_traceback(content, name):
    cut = a_run() / "foreign"
    shutil.copytree(a_run() / "whole", cut)
    try:
        (cut / name).write_bytes(content)
        try:
            load(cut)
        except HotloopError as error:
            assert len(str(error).splitlines()) == 1, "one clear line"
    finally:
        shutil.rmtree(cut)


@pytest.mark.parametrize("source", TABLES)
@pytest.mark.parametrize("target", TABLES)
def test_swapped_tables_never_cause_a_traceback(source, target):
    cut = a_run() / "other"
    shutil.copytree(a_run() / "whole", cut)
    try:
        content = cut / "process" / f"{source}.arrows"
        (cut / "process" / f"{target}.arrows").write_bytes(content.read_bytes() if content.exists() else b"")
        try:
            load(cut)
        except RunUnreadable as error:
            assert str(cut) in str(error)
    finally:
        shutil.rmtree(cut)


def test_missing_tables_are_read_as_empty(tmp_path):
    for table in TABLES:
        found = stream_store.read_file(tmp_path, table).columns
        assert set(found) == set(stream_store.SCHEMAS[table].names)
        assert all(len(column) == 0 for column in found.values())
    assert stream_store.read_totals(tmp_path).batches == ()
    assert stream_store.read_names(tmp_path) == ([], "")
    assert isinstance(found["node"], np.ndarray)
