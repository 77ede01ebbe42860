"""Windows are written as numbers that are small and the same for the same object; few windows are kept."""

from __future__ import annotations

import json
from array import array
from pathlib import Path

import pytest

from hotloop.profiling.recorder import observed as module
from hotloop.profiling.recorder.messages import Message
from hotloop.profiling.recorder.observed import FIRST, LAST, Observed
from hotloop.profiling.recorder.stack_book import operation_names
from hotloop.profiling.trace.reading.run_files import read_observed

CALL = operation_names().index("CALL")
CODES = {"env_steps": 11, "updates": 12, "mine": 13}


def place(number: int, **fields: object) -> Message:
    made: Message = {
        "is": "place",
        "id": number,
        "file": "/a/train.py",
        "function": "learn",
        "first_line": 3,
        "at": [4, 4, 8, 20],
        "operation": CALL,
        "callee": "numpy.stack",
        "operands": ["list of 2 × int"],
    }
    return made | fields


def window(*rows: list[int], counts: dict[str, int] | None = None) -> Message:
    packed = array("q", [each for row in rows for each in row]).tobytes()
    return {"is": "followed", "rows": packed, "counts": counts or {}}


def written(folder: Path, *messages: Message) -> dict:
    observed = Observed()
    for each in messages:
        observed.add(each, CODES)
    (folder / "1-000000001").mkdir()
    observed.write(folder / "1-000000001" / "observed.json")
    return json.loads((folder / "1-000000001" / "observed.json").read_text())


def test_places_and_windows_are_written(tmp_path):
    begins = place(1, operation=0, at=[3, -1, -1, -1], callee="", operands=[])
    rows = [1, 5, 1, 0, 1 << 60], [0, 5, 2, 1, 1 << 60, -7, 99], [0, 6, 1, 1, 99, 0]
    content = written(tmp_path, place(0), begins, window(*rows, counts={"11": 4, "13": 2}))
    assert content["windows"] == [
        {"counts": {"env_steps": 4, "updates": 0}, "rows": ["1 5 1 1", "0 5 2 1 2 3", "0 6 1 3 0"]}
    ]
    first, second = content["places"]
    assert first == {
        "id": 0, "file": "/a/train.py", "function": "learn", "first_line": 3, "line": 4, "end_line": 4, "column": 8,
        "end_column": 20, "operation": "CALL", "callee": "numpy.stack", "operands": ["list of 2 × int"],
    }  # fmt: skip
    assert (second["operation"], second["line"], second["column"]) == ("FUNCTION", 3, -1)
    record, damage = read_observed(tmp_path)
    assert damage == []
    assert [each.id for each in record.places] == [0, 1]
    assert record.windows[0].rows == ("1 5 1 1", "0 5 2 1 2 3", "0 6 1 3 0")


def test_an_object_keeps_its_number(tmp_path):
    content = written(tmp_path, place(0), window([0, 1, 1, 0, 77]), window([0, 2, 2, 0, 78, 77]))
    assert [each["rows"] for each in content["windows"]] == [["0 1 1 1"], ["0 2 2 2 1"]]


def test_numbers_begin_anew_when_there_are_too_many(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MOST_NUMBERS", 2)
    content = written(tmp_path, place(0), window([0, 1, 2, 0, 70, 71]), window([0, 2, 1, 0, 71]))
    assert content["windows"][1]["rows"] == ["0 2 1 1"]


def test_the_first_and_last_windows_are_kept(tmp_path):
    content = written(tmp_path, place(0), *(window([0, frame, 0, 0]) for frame in range(100)))
    frames = [int(each["rows"][0].split()[1]) for each in content["windows"]]
    assert frames == [*range(FIRST), *range(100 - LAST, 100)]


@pytest.mark.parametrize("rows", [b"", array("q", [0, 1, 5, 0, 1]).tobytes(), array("q", [0, 1]).tobytes()])
def test_rows_that_are_incomplete_are_left_out(tmp_path, rows):
    observed = Observed()
    observed.add(window() | {"rows": rows}, CODES)
    observed.write(tmp_path / "observed.json")
    assert list(tmp_path.iterdir()) == []


def test_the_file_is_replaced_only_when_there_is_something_new(tmp_path):
    path = tmp_path / "observed.json"
    observed = Observed()
    observed.add(place(0), CODES)
    observed.add(window([0, 1, 0, 0]), CODES)
    observed.write(path)
    path.unlink()
    observed.write(path)
    assert not path.exists()
    observed.add(window([0, 2, 0, 0]), CODES)
    observed.write(path)
    assert path.exists()


def test_secrets_are_removed(tmp_path):
    secret = "sk-proj-" + "aB3dE5gH7jK9mN1pQ3sT5vW7" * 2
    content = written(tmp_path, place(0, file=f"/a/{secret}/train.py", callee=f"m.{secret}"), window([0, 1, 0, 0]))
    assert secret not in json.dumps(content)
