"""The hot path of spans: the accelerator and its Python twin do the same."""

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
    chosen.watch(0, 0, 0, {}, None, [])  # A recorder that has ended may have left a wake behind.
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


def test_the_accelerator_is_built_where_it_can_be():
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


def test_what_was_taken_is_gone(kind):
    logs = kind.listen()
    kind.note(1, 2)
    assert logs[0].take() == b"\1" + bytes(7) + b"\2" + bytes(7)
    assert len(logs[0]) == 0
    assert logs[0].take() == b""
    kind.note(3, 4)
    assert logs[0].events == [3, 4]


def test_an_error_inside_is_not_swallowed_and_the_span_ends(kind):
    logs = kind.listen()
    with pytest.raises(KeyError), live(kind, 2):
        raise KeyError
    assert logs[0].events == [2, 100, -2, 101]


def test_a_log_grows_past_its_first_room(kind):
    logs = kind.listen()
    for i in range(200_000):
        kind.note(i, i)
    assert len(logs[0]) == 200_000
    assert logs[0].events[-2:] == [199_999, 199_999]
    assert len(logs[0].take()) == 200_000 * 16
    kind.note(1, 1)
    assert logs[0].events == [1, 1]


@pytest.mark.skipif(not hot_path.ACCELERATED, reason="the twin's logs have no limit")
def test_a_full_log_takes_no_new_spans_but_counts_them_and_keeps_their_ends():
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
        assert len(logs[0]) == 0, "what is in a span that was skipped is skipped"
        with inner:
            pass
    assert full < 33_000
    assert logs[0].events[::2] == [2, -2, -1]
    kind.listen()


def test_what_is_counted_again_before_the_next_span_adds_up(kind):
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


def test_new_logs_leave_the_old_ones_alone(kind):
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


def test_calls_that_are_only_counted(kind):
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


def test_note_wants_two_integers(kind):
    kind.listen()
    with pytest.raises(TypeError):
        kind.note(1)


def test_a_tally_tells_what_is_fresh(kind):
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
    """What a thread of its own sees of this one."""
    found, numbers = [], {}

    def work() -> None:
        found.append(kind.watch(now_ns() + until_ns, tick_ns, most, numbers, name_in(numbers), list(tallies)))

    thread = threading.Thread(target=work)
    begin = now_ns()
    thread.start()
    thread.join()
    looks, bumps = found[0]
    return looks, bumps, numbers, now_ns() - begin


def test_watching_sees_this_thread_again_and_again_by_the_same_number(kind):
    tally = kind.Tally("often", 5)
    tally.bump()
    looks, bumps, numbers, _ = watched(kind, 100_000_000, 5_000_000, tallies=(tally,))
    mine = [each for each in looks if each[1] == threading.get_ident()]
    assert len(mine) >= 3
    assert mine == sorted(mine)
    assert {stack for _, _, stack, _ in mine} <= set(numbers.values())
    assert len({stack for _, _, stack, _ in mine}) < len(mine), "a thread that waits is where it was"
    assert [(code, n) for _, code, n in bumps] == [(5, 1)]


def seen_of_this_thread(kind, work) -> list[list[tuple[str, int]]]:
    """The stacks that a thread of its own sees while this one works; each as (function, line), the innermost first."""
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


@pytest.mark.skipif(not hot_path.ACCELERATED, reason="the twin gets the lock where it is given away")
def test_short_stretches_of_python_between_calls_that_give_the_lock_away_are_seen():
    """A sampler that waits for the lock is let in by those calls: what lies between them would take no time."""

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
    # On a loaded machine a good part of the time may pass in sleep(0), where others are let in.
    assert len(inside) / len(seen) > python_ns / whole_ns / 2


def test_a_stack_tells_functions_and_lines_from_the_inside_out(kind):
    seen = seen_of_this_thread(kind, lambda: time.sleep(0.1))
    middle = seen[len(seen) // 2]  # the first and the last may be of the thread's start and end
    names = [name for name, _ in middle]
    assert names.index("<lambda>") < names.index("seen_of_this_thread")
    first = seen_of_this_thread.__code__.co_firstlineno
    assert dict(middle)["seen_of_this_thread"] in range(first, first + 12)


def test_watching_without_ticks_only_waits(kind):
    looks, bumps, _, took = watched(kind, 30_000_000, 0)
    assert (looks, bumps) == ([], [])
    assert took >= 30_000_000


def test_watching_ends_when_woken_before_or_while(kind):
    kind.wake()
    assert watched(kind, 60_000_000_000, 0)[3] < 30_000_000_000
    threading.Timer(0.05, kind.wake).start()
    assert watched(kind, 60_000_000_000, 0)[3] < 30_000_000_000


def test_watching_ends_when_the_logs_are_too_full(kind):
    kind.listen()
    for _ in range(11):
        kind.note(1, 1)
    assert watched(kind, 60_000_000_000, 5_000_000, most=10)[3] < 30_000_000_000


def test_nothing_is_seen_while_held(kind):
    kind.hold(True)
    try:
        assert watched(kind, 50_000_000, 5_000_000)[0] == []
    finally:
        kind.hold(False)


@given(st.lists(st.tuples(st.sampled_from(["start", "finish", "tally", "note"]), st.integers(1, (1 << 24) - 1))))
def test_both_write_the_same(calls):
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
def test_spans_and_recorder_pass_without_the_c_extension():
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
