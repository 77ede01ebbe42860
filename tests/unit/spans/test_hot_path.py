"""The hot path of spans: the C extension and the Python implementation behave the same."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import sysconfig
import threading
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotloop.spans import hot_path

PURE = SimpleNamespace(
    Core=hot_path.PureCore, Tally=hot_path.PureTally, idle=hot_path.pure_idle, note=hot_path.pure_note,
    listen=hot_path.pure_listen, open_logs=hot_path.pure_open_logs,
    use_clock=hot_path.pure_use_clock,
)  # fmt: skip
KINDS = {"pure": PURE}
if hot_path.ACCELERATED:
    from hotloop.spans import _hot_path

    KINDS["accelerated"] = _hot_path


accelerated = pytest.mark.skipif(not hot_path.ACCELERATED, reason="this run has no C extension")


@pytest.fixture(params=KINDS)
def kind(request):
    chosen = KINDS[request.param]
    chosen.use_clock(itertools.count(100).__next__)
    yield chosen
    chosen.use_clock(None)
    chosen.listen()


class Logs:
    """The logs of all threads that have written since `listen`."""

    def __init__(self, kind) -> None:
        self.kind = kind
        kind.listen()

    def __iter__(self):
        return iter(self.kind.open_logs())

    def __getitem__(self, index: int):
        return self.kind.open_logs()[index]

    def events(self) -> list[list[int]]:
        return [log.events for log in self]


def live(kind, code: int):
    class Live(kind.Core):
        __slots__ = ()
        __enter__ = kind.Core.start
        __exit__ = kind.Core.finish

    return Live(code)


def test_the_c_extension_is_built_where_possible():
    if sys.platform != "linux" or sysconfig.get_config_var("Py_GIL_DISABLED") or os.environ.get("HOTLOOP_PURE"):
        pytest.skip("the accelerator is for CPython on Linux")
    assert hot_path.ACCELERATED, "install again with a C compiler: pip install -e ."


def test_a_span_writes_its_begin_and_its_end(kind):
    logs = Logs(kind)
    with live(kind, 3), live(kind, 5):
        kind.note(1 << 24, 7)
    assert [log.events for log in logs] == [[3, 100, 5, 101, 1 << 24, 7, -5, 102, -3, 103]]
    assert len(logs[0]) == 5
    assert logs[0].name == threading.current_thread().name
    assert logs[0].ident == threading.get_ident()


def test_drained_events_are_removed(kind):
    logs = Logs(kind)
    live(kind, 1).start()
    assert logs[0].take() == b"\1" + bytes(7) + b"d" + bytes(7)
    assert len(logs[0]) == 0
    assert logs[0].take() == b""
    live(kind, 3).start()
    assert logs[0].events == [3, 101]


def test_an_error_inside_a_span_propagates_and_ends_the_span(kind):
    logs = Logs(kind)
    with pytest.raises(KeyError), live(kind, 2):
        raise KeyError
    assert logs[0].events == [2, 100, -2, 101]


def test_a_log_is_used_again_and_again(kind):
    logs, each = Logs(kind), live(kind, 3)
    taken = b""
    for i in range(1, 100_001):
        with each:
            pass
        if i % 2500 == 0:
            taken += logs[0].take()
    pairs = np.frombuffer(taken, np.int64).reshape(-1, 2)
    assert (pairs[:, 1] == np.arange(100, 200_100)).all()
    assert (pairs[:, 0] == np.tile([3, -3], 100_000)).all()
    assert len(logs[0]) == 0


@accelerated
def test_a_full_log_counts_new_spans_and_still_records_ends():
    kind = KINDS["accelerated"]
    logs = Logs(kind)
    outer, inner = live(kind, 1), live(kind, 2)
    with outer:
        for _ in range(40_000):
            with inner:
                pass
        full = len(logs[0])
        begun = logs[0].events[::2].count(2)
        assert begun + inner.tallied() == 40_000
        assert logs[0].events[::2].count(-2) == begun
        with inner:
            logs[0].take()
            with inner:
                pass
        assert len(logs[0]) == 0, "spans inside a skipped span are skipped"
        with inner:
            pass
    assert full < 16_384
    assert logs[0].events[::2] == [2, -2, -1]
    kind.listen()


@accelerated
def test_amounts_that_find_no_room_are_not_lost():
    kind = KINDS["accelerated"]
    counter = 1 << 24
    file = kind.share()
    reader = channel_reader(f"/proc/self/fd/{file}")
    os.close(file)
    each = live(kind, 1)
    for _ in range(20_000):
        kind.note(counter, 1)
        with each:
            pass
    for _ in range(2_000):
        for other in range(1, 10):  # more counters than are looked back on
            kind.note(counter + other, 1)
    (_, _, _, pairs), *_ = reader.take_logs()
    pairs = np.frombuffer(pairs, np.int64).reshape(-1, 2)
    late = dict(reader.take_late())
    assert int(pairs[pairs[:, 0] == counter, 1].sum()) + late.get(counter, 0) == 20_000
    assert int(pairs[pairs[:, 0] == counter + 9, 1].sum()) + late.get(counter + 9, 0) == 2_000
    kind.listen()


@accelerated
def test_another_process_takes_all_events_of_one_that_writes_without_pause():
    """Regression: an event written while the log was taken was taken with a time of zero, and then again."""
    program = """
import os, sys
from hotloop.spans import _hot_path
print(_hot_path.share(), flush=True)
class Live(_hot_path.Core):
    __enter__, __exit__ = _hot_path.Core.start, _hot_path.Core.finish
each, counted = Live(3), 0
for i in range(300000):
    with each:
        _hot_path.note(1 << 24, 1)
print("done", flush=True)
sys.stdin.readline()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        reader = channel_reader(f"/proc/{child.pid}/fd/{child.stdout.readline().strip()}")
        os.set_blocking(child.stdout.fileno(), False)
        taken = []
        while not child.stdout.buffer.raw.read(1):
            taken += [np.frombuffer(pairs, np.int64).reshape(-1, 2) for *_, pairs in reader.take_logs()]
        taken += [np.frombuffer(pairs, np.int64).reshape(-1, 2) for *_, pairs in reader.take_logs()]
        skipped = int(np.frombuffer(reader.array("counted"), np.int64)[3])
        late = dict(reader.take_late()).get(1 << 24, 0)
        child.stdin.close()
    pairs = np.concatenate(taken)
    times = pairs[np.abs(pairs[:, 0]) == 3]
    assert (np.diff(times[:, 1]) >= 0).all()
    assert (times[::2, 0] == 3).all() and (times[1::2, 0] == -3).all()
    assert len(times) // 2 + skipped == 300_000
    assert int(pairs[pairs[:, 0] == 1 << 24, 1].sum()) + late == 300_000


def channel_reader(path: str):
    from hotloop.profiling.recorder import _channel

    return _channel.Reader(path)


def test_repeated_counts_before_the_next_span_add_up(kind):
    logs = Logs(kind)
    first, second = 1 << 24, (1 << 24) + 1
    with live(kind, 1):
        for _ in range(5):
            kind.note(first, 2)
            kind.note(second, 3)
    kind.note(first, 7)
    pairs = list(zip(logs[0].events[::2], logs[0].events[1::2], strict=True))
    ends = [i for i, (code, _) in enumerate(pairs) if code == -1]
    inside, after = pairs[1 : ends[0]], pairs[ends[0] + 1 :]
    assert sum(n for code, n in inside if code == first) == 10
    assert sum(n for code, n in inside if code == second) == 15
    assert after == [(first, 7)]
    if kind is not PURE:
        assert inside == [(first, 10), (second, 15)]


def test_new_logs_do_not_change_old_ones(kind):
    kind.listen()
    kind.note(1, 1)
    old = kind.open_logs()
    new = Logs(kind)
    kind.note(2, 2)
    assert [log.events for log in old] == [[1, 1]]
    assert [log.events for log in new] == [[2, 2]]


def test_each_thread_has_its_own_log(kind):
    logs = Logs(kind)
    threads = [threading.Thread(target=kind.note, args=(n, n), name=f"worker {n}") for n in (1, 2, 3)]
    for thread in threads:
        thread.start()
        thread.join()
    assert {log.name: log.events for log in logs} == {f"worker {n}": [n, n] for n in (1, 2, 3)}


def test_counted_calls_are_not_timed(kind):
    core = kind.Core(9)
    for _ in range(4):
        core.tally()
    assert core.tallied() == core.tallied() == 4
    assert core.code == 9


def test_an_idle_span_does_nothing(kind):
    logs = Logs(kind)
    assert kind.idle() is None
    assert kind.idle(None, None, None) is None
    assert logs.events() == []


def test_note_requires_two_integers(kind):
    kind.listen()
    with pytest.raises(TypeError):
        kind.note(1)


def test_a_tally_counts_calls(kind):
    kind.listen()
    tally = kind.Tally("often", (1 << 24) + 5)
    before = tally.read()
    for _ in range(3):
        tally.bump()
    assert (tally.read() - before, tally.name, tally.code) == (3, "often", (1 << 24) + 5)


def added_up(events: list[int]) -> list:
    """The spans of a log, and between them the sums of counters: C adds up amounts, Python writes each."""
    found: list = [Counter()]
    for code, value in zip(events[::2], events[1::2], strict=True):
        if code >= 1 << 24:
            found[-1][code] += value
        else:
            found += [(code, value), Counter()]
    return found


@given(st.lists(st.tuples(st.sampled_from(["start", "finish", "tally", "note"]), st.integers(1, (1 << 24) - 1))))
def test_c_and_python_logs_are_identical(calls):
    written = []
    for kind in KINDS.values():
        kind.use_clock(itertools.count(7).__next__)
        logs = Logs(kind)
        for call, value in calls:
            core = kind.Core(value)
            if call == "start":
                core.start()
            elif call == "finish":
                core.finish(None, None, None)
            elif call == "tally":
                core.tally()
            else:
                kind.note((1 << 24) + value % 2, value)
        written.append([added_up(log.events) for log in logs])
        kind.use_clock(None)
        kind.listen()
    assert all(each == written[0] for each in written)


@accelerated
def test_span_and_recorder_tests_pass_without_the_c_extension():
    recorder = Path(__file__).parents[1] / "profiling" / "recorder"
    files = [
        Path(__file__).with_name("test_registry.py"),
        recorder / "test_overhead.py",
        recorder / "test_thread_totals.py",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *files],
        env=os.environ | {"HOTLOOP_PURE": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
