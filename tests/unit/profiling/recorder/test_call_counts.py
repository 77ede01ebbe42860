"""Calls are counted in windows, by line and function, without running code of the script."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from hotloop.profiling.recorder import call_counts
from hotloop.profiling.recorder.call_counts import EARLY_NS, CallCounts

counter = pytest.importorskip("hotloop.profiling.recorder._call_counter")
pytestmark = pytest.mark.skipif(not counter.SUPPORTED, reason="calls are counted on Python 3.11")


class Memory:
    def __init__(self) -> None:
        self.rows: list[int] = []

    def push(self, row: int) -> None:
        self.rows.append(row)


def step(memory: Memory, i: int) -> int:
    memory.push(i)
    return sum(x for x in range(3)) + len(memory.rows)


def counted(folder: Path, work: Callable[[], object], counts: dict[str, int] | None = None) -> dict:
    """Count the calls of some work; return the content of the file."""
    calls = CallCounts(0.01, lambda file: file == __file__)
    assert counter.start(threading.get_ident())
    work()
    rows = [[str(each) for each in row] for row in counter.stop()]
    names = {name: code for code, name in enumerate(counts or {})}
    amounts = {str(names[name]): amount for name, amount in (counts or {}).items()}
    calls.add({"is": "calls", "rows": rows, "counts": amounts}, names)
    calls.write(folder / "calls.json")
    return json.loads((folder / "calls.json").read_text())


def test_calls_are_counted_exactly_by_line_and_function(tmp_path):
    memory = Memory()

    def work() -> None:
        for i in range(50):
            step(memory, i)

    content = counted(tmp_path, work, {"env_steps": 50, "updates": 5})
    assert (content["windows"], content["counts"]) == (1, {"env_steps": 50, "updates": 5})
    functions = {row["function"]: row["calls"] for row in content["functions"]}
    assert (functions["step"], functions["Memory.push"]) == (50, 50)
    lines = {(row["line"], row["callee"]): row["calls"] for row in content["lines"]}
    push = Memory.push.__code__.co_firstlineno + 1
    assert lines[push, "list.append"] == 50, "a bound method is named by the type of its object"
    first = step.__code__.co_firstlineno
    assert lines[first + 1, "Memory.push"] == 50
    assert lines[first + 2, "builtins.sum"] == lines[first + 2, "builtins.len"] == 50


def test_only_lines_of_the_user_are_kept(tmp_path):
    content = counted(tmp_path, lambda: json.dumps({"a": [1, 2]}))
    assert {row["file"] for row in content["lines"]} == {__file__}
    assert [row["callee"] for row in content["lines"] if row["callee"] == "dumps"] == ["dumps"]


def test_a_profiler_of_the_script_is_left_alone():
    seen: list[str] = []
    sys.setprofile(lambda frame, event, arg: seen.append(event))
    try:
        opened = counter.start(threading.get_ident())
    finally:
        sys.setprofile(None)
    assert not opened
    assert seen


def test_after_a_window_nothing_is_profiled(tmp_path):
    counted(tmp_path, lambda: None)
    assert sys.getprofile() is None
    again = counted(tmp_path, lambda: len([]))
    assert sum(row["calls"] for row in again["lines"] if row["callee"] == "builtins.len") == 1


def test_windows_become_rarer():
    calls = CallCounts(0.01, lambda file: True)
    early, late = (
        call_counts.EARLY_EVERY_NS,
        round(call_counts.COST * call_counts.WINDOW_NS / (call_counts.BUDGET_PART * 0.01)),
    )
    assert calls.due(1)
    assert not calls.due(early)
    assert calls.due(1 + early)
    assert calls.due(2 * EARLY_NS)
    assert not calls.due(2 * EARLY_NS + late - 1)
    assert calls.due(2 * EARLY_NS + late)


def test_nothing_is_written_without_a_window(tmp_path):
    CallCounts(0.01, lambda file: True).write(tmp_path / "calls.json")
    assert list(tmp_path.iterdir()) == []
