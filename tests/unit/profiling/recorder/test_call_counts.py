"""Calls are counted in windows, by line and function, without running code of the script."""

from __future__ import annotations

import dis
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hotloop.profiling.recorder import call_counts
from hotloop.profiling.recorder.call_counts import EARLY_NS, CallCounts

counter = pytest.importorskip("hotloop.profiling.recorder._call_counter")
pytestmark = pytest.mark.skipif(not counter.SUPPORTED, reason="calls are not counted on this version of Python")


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


class Bag:
    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self) -> Iterator[int]:
        yield from range(self.n)

    def __getitem__(self, i: int) -> int:
        return i

    @property
    def size(self) -> int:
        return self.n


def deep(n: int) -> int:
    return deep(n - 1) if n else 0


def test_all_kinds_of_calls_give_the_same_rows_on_each_version(tmp_path):
    file = __file__

    def work() -> None:
        bag = Bag(3)
        for i in bag:
            bag[i] + bag.size
        sum(x for x in bag)
        sorted([3, 1, 2], key=lambda x: -x)
        list(map(deep, [1, 0]))
        len(*([],))
        file.split("/")
        str.upper("x")

    content = counted(tmp_path, work)
    first = work.__code__.co_firstlineno
    lines = {(row["line"] - first, row["callee"]): row["calls"] for row in content["lines"]}
    assert {place: calls for place, calls in lines.items() if 0 < place[0] <= 8} == {
        (1, "Bag.__init__"): 1,
        (3, "Bag.__getitem__"): 3,
        (3, "Bag.size"): 3,
        (4, "builtins.sum"): 1,
        (5, "builtins.sorted"): 1,
        (5, f"{work.__qualname__}.<locals>.<lambda>"): 3,
        (6, "deep"): 2,
        (7, "builtins.len"): 1,
        (8, "str.split"): 1,
    }
    assert lines[9, "str.upper"] == 1
    assert {row["function"]: row["calls"] for row in content["functions"]}["deep"] == 3
    assert lines[deep.__code__.co_firstlineno + 1 - first, "deep"] == 1


def test_other_threads_are_not_counted(tmp_path):
    def work() -> None:
        other = threading.Thread(target=deep, args=(50,))
        other.start()
        other.join()
        deep(2)

    content = counted(tmp_path, work)
    assert {row["function"]: row["calls"] for row in content["functions"]}["deep"] == 3


def test_a_forked_child_counts_nothing(tmp_path):
    """Regression: a child that was forked in a window stayed slow, since nothing ended the window in it."""
    script = """
import os, sys, threading, hotloop
from hotloop.profiling.recorder import _call_counter

with hotloop.record("run"):
    while not _call_counter.start(threading.get_ident()):
        _call_counter.stop()  # a window of the recorder's
    if (child := os.fork()) == 0:
        os._exit(0 if _call_counter.start(threading.get_ident()) else 1)
    _call_counter.stop()
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], cwd=tmp_path, check=True)


monitored = pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is new in Python 3.12")
TOOL = 4
"""The id that our windows use."""


def instrumented(function: Callable[..., object]) -> bool:
    return any("INSTRUMENTED" in each.opname for each in dis.get_instructions(function, adaptive=True))


@monitored
def test_code_is_not_instrumented_after_a_window(tmp_path):
    """Regression: free_tool_id leaves events on, so all code that ran in a window stayed slow."""

    def work() -> None:
        deep(3)
        assert instrumented(deep)

    counted(tmp_path, work)
    deep(1)
    assert not instrumented(deep)
    assert sys.monitoring.get_tool(TOOL) is None


@monitored
@pytest.mark.parametrize("tool", range(6))
def test_a_script_that_uses_sys_monitoring_is_left_alone(tool):
    seen: list[str] = []
    events = sys.monitoring.events
    sys.monitoring.use_tool_id(tool, "the script's")
    try:
        sys.monitoring.register_callback(tool, events.PY_START, lambda code, at: seen.append(code.co_name))
        sys.monitoring.set_local_events(tool, deep.__code__, events.PY_START)
        assert not counter.start(threading.get_ident())
        assert counter.stop() == []
        deep(1)
        assert sys.monitoring.get_tool(tool) == "the script's"
    finally:
        sys.monitoring.set_local_events(tool, deep.__code__, 0)
        sys.monitoring.register_callback(tool, events.PY_START, None)
        sys.monitoring.free_tool_id(tool)
    assert seen == ["deep", "deep"]


@monitored
def test_a_script_that_begins_to_use_sys_monitoring_ends_the_window():
    seen: list[str] = []
    assert counter.start(threading.get_ident())
    try:
        deep(1)
        sys.monitoring.use_tool_id(TOOL, "the script's")
        before = sys.monitoring.register_callback(
            TOOL, sys.monitoring.events.PY_START, lambda code, at: seen.append("it")
        )
        sys.monitoring.set_events(TOOL, sys.monitoring.events.PY_START)
        counter.stop()
        deep(1)
        sys.monitoring.set_events(TOOL, 0)
        after = sys.monitoring.register_callback(TOOL, sys.monitoring.events.PY_START, None)
    finally:
        counter.stop()
        sys.monitoring.free_tool_id(TOOL)
    assert before is None
    assert after is not None
    assert seen == ["it", "it"]


@monitored
def test_callbacks_that_a_script_left_behind_are_kept_and_not_called(tmp_path):
    seen: list[str] = []
    events = sys.monitoring.events
    sys.monitoring.register_callback(TOOL, events.PY_START, lambda code, at: seen.append(code.co_name))
    counted(tmp_path, lambda: deep(2))
    assert sys.monitoring.register_callback(TOOL, events.PY_START, None) is not None
    assert seen == []
