"""The hot path of spans: the C extension and the Python implementation behave the same."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import sysconfig
import threading
import time
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
    watch=hot_path.pure_watch, wake=hot_path.pure_wake, hold=hot_path.pure_hold,
)  # fmt: skip
KINDS = {"pure": PURE}
if hot_path.ACCELERATED:
    from hotloop.spans import _hot_path

    KINDS["accelerated"] = _hot_path


@pytest.fixture(params=KINDS)
def kind(request):
    chosen = KINDS[request.param]
    chosen.watch(0, 0, 0, {}, None, [])  # An earlier recorder may have left a wake request.
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


def name_in(numbers: dict, names: dict | None = None):
    def name(places, key) -> int:
        numbers[key] = len(numbers)
        if names is not None:
            names[numbers[key]] = [(code.co_name, line) for code, _, line in places]
        return numbers[key]

    return name


def watched(kind, until_ns: int, tick_ns: int, most: int = 1000, tallies: tuple = ()):
    """Sample this thread from another thread."""
    found, numbers = [], {}

    def work() -> None:
        found.append(kind.watch(now_ns() + until_ns, tick_ns, most, numbers, name_in(numbers), list(tallies)))

    thread = threading.Thread(target=work)
    begin = now_ns()
    thread.start()
    thread.join()
    looks, bumps = found[0]
    return looks, bumps, numbers, now_ns() - begin


def test_samples_of_a_thread_keep_the_same_thread_id(kind):
    tally = kind.Tally("often", 5)
    tally.bump()
    looks, bumps, numbers, _ = watched(kind, 100_000_000, 5_000_000, tallies=(tally,))
    mine = [each for each in looks if each[1] == threading.get_ident()]
    assert len(mine) >= 3
    assert mine == sorted(mine)
    assert {stack for _, _, stack, _ in mine} <= set(numbers.values())
    assert len({stack for _, _, stack, _ in mine}) < len(mine), "a waiting thread has the same stack"
    assert [(code, n) for _, code, n in bumps] == [(5, 1)]


def seen_of_this_thread(kind, work) -> list[list[tuple[str, int]]]:
    """Stacks sampled by another thread while this one works, each as (function, line), innermost first."""
    found, numbers, names = [], {}, {}
    watching = threading.Thread(
        target=lambda: found.append(
            kind.watch(now_ns() + 60_000_000_000, 2_000_000, 1000, numbers, name_in(numbers, names), [])
        )
    )
    watching.start()
    work()
    kind.wake()
    watching.join()
    return [names[stack] for _, ident, stack, _ in found[0][0] if ident == threading.get_ident()]


def only_python(until_ns: int) -> None:
    while now_ns() < until_ns:
        for _ in range(200):
            pass


@pytest.mark.skipif(not hot_path.ACCELERATED, reason="the Python implementation gets the GIL where it is released")
def test_short_python_code_between_calls_that_release_the_gil_is_sampled():
    """A sampler that waits for the GIL gets it in those calls: code between them would seem to take no time."""

    python_ns, whole_ns = 0, 0

    def work() -> None:
        nonlocal python_ns, whole_ns
        begin = now_ns()
        for _ in range(150):
            entered = now_ns()
            only_python(entered + 1_000_000)
            python_ns += now_ns() - entered
            time.sleep(0)
        whole_ns = now_ns() - begin

    seen = seen_of_this_thread(KINDS["accelerated"], work)
    inside = [stack for stack in seen if any(name == "only_python" for name, _ in stack)]
    assert len(seen) > 20
    # On a loaded machine much of the time may pass in sleep(0), where other threads run.
    assert len(inside) / len(seen) > python_ns / whole_ns / 2


def test_a_stack_lists_functions_and_lines_innermost_first(kind):
    seen = seen_of_this_thread(kind, lambda: time.sleep(0.1))
    middle = seen[len(seen) // 2]  # the first and the last may lie in the thread's start and end
    names = [name for name, _ in middle]
    assert names.index("<lambda>") < names.index("seen_of_this_thread")
    first = seen_of_this_thread.__code__.co_firstlineno
    assert dict(middle)["seen_of_this_thread"] in range(first, first + 12)


def test_sampling_without_ticks_only_waits(kind):
    looks, bumps, _, took = watched(kind, 30_000_000, 0)
    assert (looks, bumps) == ([], [])
    assert took >= 30_000_000


def test_a_wake_before_or_during_sampling_ends_it(kind):
    kind.wake()
    assert watched(kind, 60_000_000_000, 0)[3] < 30_000_000_000
    threading.Timer(0.05, kind.wake).start()
    assert watched(kind, 60_000_000_000, 0)[3] < 30_000_000_000


def test_sampling_ends_when_the_logs_are_too_full(kind):
    kind.listen()
    for _ in range(11):
        kind.note(1, 1)
    assert watched(kind, 60_000_000_000, 5_000_000, most=10)[3] < 30_000_000_000


def test_nothing_is_sampled_while_paused(kind):
    kind.hold(True)
    try:
        assert watched(kind, 50_000_000, 5_000_000)[0] == []
    finally:
        kind.hold(False)


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
