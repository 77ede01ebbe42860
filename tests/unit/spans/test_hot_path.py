"""The hot path of spans: the C extension and the Python implementation behave the same."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import sysconfig
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotloop.clock import now_ns
from hotloop.spans import hot_path

PURE = SimpleNamespace(
    Core=hot_path.PureCore, Tally=hot_path.PureTally, idle=hot_path.pure_idle, note=hot_path.pure_note,
    listen=hot_path.pure_listen,
    use_clock=hot_path.pure_use_clock,
    wait=hot_path.pure_wait, wake=hot_path.pure_wake,
)  # fmt: skip
KINDS = {"pure": PURE}
if hot_path.ACCELERATED:
    from hotloop.spans import _hot_path

    KINDS["accelerated"] = _hot_path


@pytest.fixture(params=KINDS)
def kind(request):
    chosen = KINDS[request.param]
    chosen.wait(0)  # An earlier recorder may have left a wake request.
    chosen.use_clock(itertools.count(100).__next__)
    yield chosen
    chosen.use_clock(None)
    chosen.listen()


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
    logs = kind.listen()
    with live(kind, 3), live(kind, 5):
        kind.note(1 << 24, 7)
    assert [log.events for log in logs] == [[3, 100, 5, 101, 1 << 24, 7, -5, 102, -3, 103]]
    assert len(logs[0]) == 5
    assert logs[0].name == threading.current_thread().name
    assert logs[0].ident == threading.get_ident()


def test_drained_events_are_removed(kind):
    logs = kind.listen()
    kind.note(1, 2)
    assert logs[0].take() == b"\1" + bytes(7) + b"\2" + bytes(7)
    assert len(logs[0]) == 0
    assert logs[0].take() == b""
    kind.note(3, 4)
    assert logs[0].events == [3, 4]


def test_an_error_inside_a_span_propagates_and_ends_the_span(kind):
    logs = kind.listen()
    with pytest.raises(KeyError), live(kind, 2):
        raise KeyError
    assert logs[0].events == [2, 100, -2, 101]


def test_a_log_grows_beyond_its_initial_capacity(kind):
    logs = kind.listen()
    for i in range(200_000):
        kind.note(i, i)
    assert len(logs[0]) == 200_000
    assert logs[0].events[-2:] == [199_999, 199_999]
    assert len(logs[0].take()) == 200_000 * 16
    kind.note(1, 1)
    assert logs[0].events == [1, 1]


@pytest.mark.skipif(not hot_path.ACCELERATED, reason="the Python implementation's logs have no limit")
def test_a_full_log_counts_new_spans_and_still_records_ends():
    kind = KINDS["accelerated"]
    logs = kind.listen()
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
    assert full < 33_000
    assert logs[0].events[::2] == [2, -2, -1]
    kind.listen()


def test_repeated_counts_before_the_next_span_add_up(kind):
    logs = kind.listen()
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
    old = kind.listen()
    kind.note(1, 1)
    new = kind.listen()
    kind.note(2, 2)
    assert [log.events for log in old] == [[1, 1]]
    assert [log.events for log in new] == [[2, 2]]


def test_each_thread_has_its_own_log(kind):
    logs = kind.listen()
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
    logs = kind.listen()
    assert kind.idle() is None
    assert kind.idle(None, None, None) is None
    assert logs == []


def test_note_requires_two_integers(kind):
    kind.listen()
    with pytest.raises(TypeError):
        kind.note(1)


def test_a_tally_returns_only_new_counts(kind):
    tally = kind.Tally("often", 5)
    for _ in range(3):
        tally.bump()
    assert (tally.fresh(), tally.fresh(), tally.read()) == (3, 0, 3)
    tally.bump()
    assert (tally.fresh(), tally.read(), tally.name, tally.code) == (1, 4, "often", 5)


def waited_ns(kind, until_ns: int) -> int:
    begin = now_ns()
    kind.wait(begin + until_ns)
    return now_ns() - begin


def test_a_wait_lasts_until_its_end(kind):
    assert waited_ns(kind, 30_000_000) >= 30_000_000


def test_a_wake_before_or_during_a_wait_ends_it(kind):
    kind.wake()
    assert waited_ns(kind, 60_000_000_000) < 30_000_000_000
    threading.Timer(0.05, kind.wake).start()
    assert waited_ns(kind, 60_000_000_000) < 30_000_000_000


@pytest.mark.skipif(not hot_path.ACCELERATED, reason="the Python implementation does not wake")
def test_a_crowded_log_ends_a_wait():
    kind = KINDS["accelerated"]
    kind.wait(0)
    kind.listen()
    each = live(kind, 3)
    for _ in range(10_000):
        with each:
            pass
    assert waited_ns(kind, 60_000_000_000) < 30_000_000_000
    kind.listen()


@given(st.lists(st.tuples(st.sampled_from(["start", "finish", "tally", "note"]), st.integers(1, (1 << 24) - 1))))
def test_c_and_python_logs_are_identical(calls):
    written = []
    for kind in KINDS.values():
        kind.use_clock(itertools.count(7).__next__)
        logs = kind.listen()
        for call, value in calls:
            core = kind.Core(value)
            if call == "start":
                core.start()
            elif call == "finish":
                core.finish(None, None, None)
            elif call == "tally":
                core.tally()
            else:
                kind.note(value, -value)
        written.append([log.events for log in logs])
        kind.use_clock(None)
        kind.listen()
    assert all(each == written[0] for each in written)


@pytest.mark.skipif(not hot_path.ACCELERATED, reason="this run has no C extension")
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
