"""The files of a process: appended, replaced, and whole or not there."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from hotloop.profiling.trace.stream_store import SCHEMAS, ProcessFiles, read_file, read_names, read_totals, write_json

ROW = {"window": [1], "thread": [2], "node": [3], "counter": [4], "amount": [5]}


@pytest.fixture
def files(tmp_path):
    made = ProcessFiles(tmp_path / "process")
    yield made
    made.close()


def test_rows_are_in_the_file_when_append_returns(files):
    for i in range(3):
        files.append("counters", ROW | {"window": [i]})
        assert read_file(files.folder, "counters").columns["window"].tolist() == list(range(i + 1))


def test_appending_no_rows_creates_no_file(files):
    files.append("counters", {name: [] for name in ROW})
    assert not (files.folder / "counters.arrows").exists()
    assert files.size_of("counters") == 0


def test_a_tail_is_read_after_the_stream_and_can_be_replaced_and_dropped(files):
    files.append("counters", ROW)
    for window in (5, 6):
        files.replace("counters.tail.arrow", "counters", ROW | {"window": [window]})
        assert read_file(files.folder, "counters").columns["window"].tolist() == [1, window]
    files.drop("counters.tail.arrow")
    files.drop("counters.tail.arrow")
    assert read_file(files.folder, "counters").columns["window"].tolist() == [1]
    assert files.size_of("counters") == (files.folder / "counters.arrows").stat().st_size


def test_names_are_read_up_to_the_last_whole_line(files):
    files.add_names([{"is": "span", "name": "a"}, {"is": "span", "name": "é\n"}])
    assert read_names(files.folder) == ([{"is": "span", "name": "a"}, {"is": "span", "name": "é\n"}], "")
    with open(files.folder / "names.jsonl", "ab") as file:
        file.write(b'{"is": "span", "na')
    entries, damage = read_names(files.folder)
    assert ([entry["name"] for entry in entries], damage) == (["a", "é\n"], "its last line is cut")


def test_totals_keep_their_lists(files):
    row = {name: i for i, name in enumerate(SCHEMAS["totals"].names)} | {
        "buckets": [8, 9],
        "counts": [10, 11],
    }
    files.replace("totals.arrow", "totals", {name: [value] for name, value in row.items()})
    [batch] = read_totals(files.folder).batches
    assert batch.to_pylist() == [row]


def test_json_is_replaced_completely_or_not_at_all(tmp_path):
    path = tmp_path / "x.json"
    write_json(path, {"a": 1})
    circle: dict = {}
    circle["self"] = circle
    with pytest.raises(ValueError, match="Circular"):
        write_json(path, circle)
    assert json.loads(path.read_text()) == {"a": 1}


def test_numbers_of_other_libraries_become_plain_ones(tmp_path):
    class Unfriendly:
        def __index__(self):
            raise RuntimeError("not a number")

    content = {"a": np.int64(3), "b": np.float32(0.5), "c": np.array(7), "d": np.bool_(True), "e": Unfriendly()}
    write_json(tmp_path / "x.json", content)
    found = json.loads((tmp_path / "x.json").read_text())
    assert found == {"a": 3, "b": 0.5, "c": 7, "d": 1, "e": "Unfriendly"}


def test_writing_does_not_import_pandas(tmp_path):
    """It would take a second and much memory of the training, and fail where the interpreter is shutting down."""
    (tmp_path / "pandas.py").write_text("raise SystemExit('pandas was imported')")
    code = (
        "import sys; from pathlib import Path; import numpy as np\n"
        "from hotloop.profiling.trace import stream_store as store\n"
        "files = store.ProcessFiles(Path('run'))\n"
        "for name, table in ((name, store.SCHEMAS[name]) for name in store.SCHEMAS):\n"
        "    rows = {each.name: [[1], []] if 'list' in str(each.type) else np.array([3, -4]) for each in table}\n"
        "    files.append(name, rows); files.replace(name + '.arrow', name, rows)\n"
        "files.close()\n"
        "assert store.read_file(Path('run'), 'raw').columns['end_ns'].tolist() == [3, -4]\n"
        "assert store.read_totals(Path('run')).batches[0].column('buckets').to_pylist() == [[1], []]\n"
        "print('pandas' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("False\n", "")
