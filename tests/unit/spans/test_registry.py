"""The span API: the events it writes, in every form of use."""

from __future__ import annotations

import asyncio
import itertools
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from hotloop.phases import Phase, phase_of
from hotloop.spans import count, hot_path, span
from hotloop.spans import registry as spans
from hotloop.spans.hot_path import Log
from hotloop.spans.registry import COUNTER_BASE


@pytest.fixture
def clock() -> Iterator[Callable[[], int]]:
    """A clock that returns 0, 1, 2, ..."""
    tick = itertools.count().__next__
    hot_path.use_clock(tick)
    yield tick
    hot_path.use_clock(None)


@pytest.fixture
def logs(clock) -> Iterator[list[Log]]:
    found = spans.listen()
    yield found
    spans.hush()


def events(log: Log) -> list[tuple[str, int]]:
    """The events of a thread as ("+name" or "-name", time), or (counter, amount)."""
    every, counters = spans.known_spans(), {code: name for name, code in spans.known_counters().items()}
    found = []
    for code, value in zip(log.events[::2], log.events[1::2], strict=True):
        if code >= COUNTER_BASE:
            found.append((counters[code], value))
        else:
            found.append((("+" if code > 0 else "-") + every[abs(code) - 1].name, value))
    return found


def test_context_manager_writes_begin_and_end(logs):
    with span("t.one"):
        pass
    assert events(logs[0]) == [("+t.one", 0), ("-t.one", 1)]


def test_spans_nest_in_others_and_in_themselves(logs):
    outer = span("t.outer")
    with outer, span("t.inner"), outer:
        pass
    assert [name for name, _ in events(logs[0])] == [
        "+t.outer", "+t.inner", "+t.outer", "-t.outer", "-t.inner", "-t.outer",
    ]  # fmt: skip


def test_an_exception_ends_the_span_and_propagates(logs):
    with pytest.raises(KeyError, match="gone"), span("t.raises"):
        raise KeyError("gone")
    assert [name for name, _ in events(logs[0])] == ["+t.raises", "-t.raises"]


def test_a_decorated_function_keeps_name_arguments_and_result(logs):
    @span("t.function")
    def add(a: int, *, b: int = 2) -> int:
        """Adds."""
        return a + b

    assert add(1, b=5) == 6
    assert (add.__name__, add.__doc__) == ("add", "Adds.")
    assert [name for name, _ in events(logs[0])] == ["+t.function", "-t.function"]


def test_methods_class_methods_and_static_methods(logs):
    class Thing:
        def __init__(self) -> None:
            self.value = 3

        @span("t.method")
        def method(self, more: int) -> int:
            return self.value + more

        @classmethod
        @span("t.classmethod")
        def made(cls) -> Thing:
            return cls()

        @staticmethod
        @span("t.staticmethod")
        def plain(value: int) -> int:
            return value

    assert Thing.made().method(4) == 7
    assert Thing.plain(9) == 9
    names = [name for name, _ in events(logs[0])]
    assert names[::2] == ["+t.classmethod", "+t.method", "+t.staticmethod"]


def test_a_generator_is_timed_only_while_it_runs(logs):
    @span("t.generator")
    def squares(n: int) -> Iterator[int]:
        for i in range(n):
            yield i * i

    seen = []
    for value in squares(3):
        with span("t.consumer"):
            seen.append(value)
    assert seen == [0, 1, 4]
    names = [name for name, _ in events(logs[0])]
    once = ["+t.generator", "-t.generator"]
    assert names == [*once, "+t.consumer", "-t.consumer"] * 3 + once


def test_a_generator_keeps_send_throw_close_and_its_result(logs):
    heard = []

    @span("t.conversation")
    def talk():
        try:
            heard.append((yield "first"))
            try:
                yield "second"
            except ValueError as error:
                heard.append(str(error))
            yield "third"
            return "result"
        finally:
            heard.append("closed")

    talking = talk()
    assert next(talking) == "first"
    assert talking.send("hello") == "second"
    assert talking.throw(ValueError("thrown")) == "third"
    with pytest.raises(StopIteration) as end:
        next(talking)
    assert end.value.value == "result"
    assert heard == ["hello", "thrown", "closed"]

    heard.clear()
    talking = talk()
    next(talking)
    talking.close()
    assert heard == ["closed"]
    with pytest.raises(StopIteration):
        next(talking)
    names = [name for name, _ in events(logs[0])]
    assert names.count("+t.conversation") == names.count("-t.conversation") > 0


def test_an_error_in_a_generator_ends_the_span_and_propagates(logs):
    @span("t.broken")
    def broken():
        yield 1
        raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        list(broken())
    names = [name for name, _ in events(logs[0])]
    assert names == ["+t.broken", "-t.broken"] * 2


def test_yield_from_a_decorated_generator_passes_its_result_on(logs):
    @span("t.sub")
    def sub():
        got = yield 1
        return got * 2

    def whole():
        return (yield from sub())

    running = whole()
    assert next(running) == 1
    with pytest.raises(StopIteration) as end:
        running.send(21)
    assert end.value.value == 42


def test_coroutines_are_timed_while_they_run(logs):
    @span("t.coroutine")
    async def work(value: int) -> int:
        await asyncio.sleep(0)
        return value + 1

    async def both() -> list[int]:
        return await asyncio.gather(work(1), work(10))

    assert asyncio.run(both()) == [2, 11]
    names = [name for name, _ in events(logs[0])]
    # Two coroutines on one thread take turns; neither is open while the other runs.
    assert names == ["+t.coroutine", "-t.coroutine"] * 4


def test_a_coroutine_that_raises_ends_its_span(logs):
    @span("t.coroutine.raises")
    async def work() -> None:
        await asyncio.sleep(0)
        raise LookupError("inside")

    with pytest.raises(LookupError, match="inside"):
        asyncio.run(work())
    names = [name for name, _ in events(logs[0])]
    assert names.count("+t.coroutine.raises") == names.count("-t.coroutine.raises") == 2


def test_each_thread_writes_its_own_log(logs):
    ready = threading.Barrier(3)
    shared = span("t.shared")

    def work(n: int) -> None:
        ready.wait()
        for _ in range(n):
            with shared:
                count("t_threads", 2)

    threads = [threading.Thread(target=work, args=(n,), name=f"worker {n}") for n in (10, 20, 30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = {log.name: log for log in logs}
    for n in (10, 20, 30):
        once = ["+t.shared", "t_threads", "-t.shared"]
        assert [name for name, _ in events(found[f"worker {n}"])] == once * n


def test_nothing_is_written_without_a_recorder(clock):
    logs = spans.listen()
    spans.hush()
    with span("t.idle"):
        count("t_idle")
    assert span("t.idle")(lambda: 5)() == 5
    assert [log.events for log in logs] == []
    assert not spans.recording()
    assert clock() == 0, "an idle span does not even read the clock"


def test_restarting_a_recording_starts_new_logs(clock):
    first = spans.listen()
    with span("t.twice"):
        pass
    spans.hush()
    with span("t.twice"):
        pass
    second = spans.listen()
    with span("t.twice"):
        pass
    spans.hush()
    assert [len(events(log)) for log in first] == [2]
    assert [len(events(log)) for log in second] == [2]


def test_spans_created_before_and_during_a_recording_are_recorded(clock):
    early = span("t.early")
    logs = spans.listen()
    late = span("t.late")
    with early, late:
        pass
    spans.hush()
    assert [name for name, _ in events(logs[0])] == ["+t.early", "+t.late", "-t.late", "-t.early"]


def test_counters_carry_their_amount_and_order(logs):
    count("t_steps")
    with span("t.count"):
        count("t_steps", 7)
    count("t_other", -2)
    assert [e for e in events(logs[0]) if not e[0].startswith(("+", "-"))] == [
        ("t_steps", 1), ("t_steps", 7), ("t_other", -2),
    ]  # fmt: skip


def test_spans_are_shared_by_name_and_phase():
    assert span("t.same") is span("t.same")
    other = span("t.same", Phase.LOG)
    assert other is not span("t.same")
    assert (other.name, other.phase) == ("t.same", Phase.LOG)
    assert span("t.same", Phase.LOG) is other
    assert repr(other) == "span('t.same')"


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("replay.sample", Phase.SAMPLE),
        ("env.step", Phase.ENV),
        ("env.render", Phase.RENDER),
        ("Optimizer.Step", Phase.OPTIMISE),
        ("replay.add", Phase.STORE),
        ("loss", Phase.FORWARD),
        ("policy_act", Phase.ACT),
        ("save-checkpoint", Phase.CHECKPOINT),
        ("environments", None),
        ("iteration", None),
        ("", None),
    ],
)
def test_phases_are_guessed_by_whole_words(name, phase):
    assert phase_of(name) is phase


def test_an_explicit_phase_overrides_the_guess_and_hooks_are_not_guessed():
    assert span("t.env.reset", Phase.EVALUATE).phase is Phase.EVALUATE
    assert spans.hook_span("t.env.hook").phase is None


def test_a_hook_span_is_created_only_once():
    first = spans.hook_span("t.hook.again", Phase.ENV)
    assert spans.hook_span("t.hook.again", Phase.ENV) is first
    other = spans.hook_span("t.hook.again", Phase.ACT)
    assert other is not first
    assert spans.hook_span("t.hook.again", Phase.ACT) is other
    assert spans.hook_span("t.hook.again") is first


def test_names_beyond_the_limit_share_one_span_and_warn_once(monkeypatch, capsys):
    monkeypatch.setattr(spans, "_spans", {})
    monkeypatch.setattr(spans, "_by_code", [])
    monkeypatch.setattr(spans, "MAX_NAMES", 3)
    made = [span(f"n{i}") for i in range(6)]
    assert [each.name for each in made] == ["n0", "n1", "n2"] + ["(more names)"] * 3
    assert made[3] is made[5]
    stderr = capsys.readouterr().err
    assert stderr.startswith("hotloop: more than 3 different span names") and stderr.count("\n") == 1
    assert [each.code for each in spans._by_code] == [1, 2, 3, 4], "the span with code c is at index c - 1"


def test_a_counted_span_only_counts(logs):
    each = span("t.modes")
    spans.make_counted(each)
    before = each.tallied()
    for _ in range(2):
        with each:
            pass
    assert not spans.is_live(each)
    assert each.tallied() - before == 2, "reading a tally does not change it"
    assert each.tallied() - before == 2
    assert [name for log in logs for name, _ in events(log)] == []
    spans.make_live(each)
    assert spans.is_live(each)


def test_a_call_ends_in_the_mode_in_which_it_began(logs):
    each = span("t.switched.inside")
    with each:
        spans.make_counted(each)
    with each:
        spans.make_live(each)
    assert [name for log in logs for name, _ in events(log)] == ["+t.switched.inside", "-t.switched.inside"]


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Threads that switch every few microseconds."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    yield
    sys.setswitchinterval(usual)


def test_counts_are_exact_while_spans_are_switched_by_another_thread(clock, eager_threads):
    logs = spans.listen()
    each = span("t.switched")
    before = each.tallied()
    calls: list[int] = []
    switched = threading.Event()

    def work() -> None:
        made = 0
        while not switched.is_set():
            for _ in range(50):
                with each:
                    pass
            made += 50
        calls.append(made)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    modes = random.Random(1).choices((spans.make_counted, spans.make_live), k=400)
    for mode in modes:
        mode(each)
        each.tallied()
        time.sleep(1e-4)
    switched.set()
    for thread in threads:
        thread.join()
    spans.hush()
    timed = sum(log.events[::2].count(each.code) for log in logs)
    counted = each.tallied() - before
    assert timed > 0
    assert counted > 0
    assert timed + counted == sum(calls)
    assert timed == sum(log.events[::2].count(-each.code) for log in logs), "each begin has an end"
