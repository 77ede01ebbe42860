"""The stack sampler sees where the time is, whoever has the interpreter's lock, and never disturbs the script."""

from __future__ import annotations

import gc
import itertools
import os
import random
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import hotloop
from hotloop.clock import now_ns
from hotloop.profiling.recorder.python_sampler import PythonSampler
from hotloop.profiling.recorder.samples import BLOCKED, COLLECTING, MAX_DEPTH, Taken
from hotloop.profiling.recorder.stack_book import StackBook
from hotloop.spans import hot_path, registry

MS = 1_000_000
native = pytest.mark.skipif(not hot_path.ACCELERATED, reason="the C extension is not built")
both = pytest.mark.parametrize("is_native", [pytest.param(True, marks=native), False])


@contextmanager
def sampling(is_native: bool = True, interval_ns: int = MS) -> Iterator[list[Taken]]:
    """Sample this process; the list has what was taken in the end."""
    taken: list[Taken] = []
    with (native_sampling if is_native else python_sampling)(interval_ns, taken):
        yield taken


@contextmanager
def native_sampling(interval_ns: int, taken: list[Taken]) -> Iterator[None]:
    from hotloop.profiling.recorder import _stack_reader
    from hotloop.profiling.recorder.channel_feed import ChannelFeed
    from hotloop.spans import _hot_path

    file = _hot_path.share()
    feed = ChannelFeed(f"/proc/self/fd/{file}", threading.get_ident())
    os.close(file)
    _stack_reader.start(interval_ns)
    try:
        yield
    finally:
        _stack_reader.stop()
        taken.append(feed.samples())


@contextmanager
def python_sampling(interval_ns: int, taken: list[Taken]) -> Iterator[None]:
    sampler = PythonSampler()
    started, stop = threading.Event(), threading.Event()

    def work() -> None:
        sampler.start(interval_ns)
        started.set()
        while not stop.is_set():
            sampler.wait(now_ns() + 5 * MS)

    thread = threading.Thread(target=work)
    thread.start()
    started.wait()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        sampler.stop()
        taken.append(sampler.take())


def time_by_line(taken: Taken) -> Counter[tuple[str, int]]:
    """Sampled time of this thread by function and line of the innermost frame in this file."""
    book = StackBook()
    book.add(taken.codes, taken.stacks)
    frames = {entry["id"]: entry for entry in book.fresh if entry["is"] == "frame"}
    stacks = {entry["id"]: entry["frames"] for entry in book.fresh if entry["is"] == "stack"}
    found: Counter[tuple[str, int]] = Counter()
    for (_, ident, _, elapsed, *_), stack in zip(
        taken.samples.tolist(), book.numbers(taken.samples[:, 2]), strict=True
    ):
        if ident == threading.get_ident():
            mine = next((frames[each] for each in stacks[stack] if frames[each]["file"] == __file__), None)
            if mine is not None:
                found[mine["function"], mine["line"]] += elapsed
    return found


NUMBERS = list(range(3000))


def holds_the_lock_in_c(until_ns: int) -> tuple[int, int, int]:
    """Return the time in a search through a list, in a sort, and in plain Python, each on lines of its own."""
    searched = sorted_ns = plain = 0
    values = [random.random() for _ in range(200)]
    begin = now_ns()
    while begin < until_ns:
        missing = -1 in NUMBERS
        middle = now_ns()
        sorted(values)
        late = now_ns()
        total = 0
        for i in range(200):
            total += i * i % 7
        end = now_ns()
        searched, sorted_ns, plain = searched + middle - begin, sorted_ns + late - middle, plain + end - late
        begin = end
    assert not missing
    return searched, sorted_ns, plain


@native
def test_time_is_seen_on_the_line_where_it_is_spent():
    """Regression: stacks were read at calls and jumps, so that the line after a search got its time."""
    with sampling(True, MS // 2) as taken:
        measured = holds_the_lock_in_c(now_ns() + 1500 * MS)
    first = holds_the_lock_in_c.__code__.co_firstlineno
    by_line = time_by_line(taken[0])
    rows = ((6,), (8,), (10, 11, 12))
    sampled = [sum(by_line["holds_the_lock_in_c", first + row] for row in each) for each in rows]
    assert np.array(sampled) / sum(by_line.values()) == pytest.approx(np.array(measured) / sum(measured), abs=0.08)


@both
def test_a_sleeping_thread_uses_no_cpu_time(is_native):
    with sampling(is_native) as taken:
        time.sleep(0.2)
    mine = taken[0].samples[taken[0].samples[:, 1] == threading.get_ident()]
    assert mine[:, 3].sum() >= 100 * MS
    assert mine[mine[:, 4] >= 0, 4].sum() < 0.5 * mine[:, 3].sum()


@native
def test_the_state_of_the_main_thread_is_seen():
    with sampling() as taken:
        time.sleep(0.1)
    flags = taken[0].samples[taken[0].samples[:, 1] == threading.main_thread().ident, 6]
    assert (flags & BLOCKED != 0).mean() > 0.5


@native
def test_garbage_collection_is_seen():
    nodes: list[list] = [[] for _ in range(200_000)]
    for a, b in itertools.pairwise(nodes):
        a.append(b)
    with sampling() as taken:
        for _ in range(10):
            gc.collect()
    assert (taken[0].samples[:, 6] & COLLECTING != 0).any()


@native
def test_tallies_are_reported_as_differences():
    old = registry.tally("sampler.old")
    old.bump()
    with sampling() as taken:
        new = registry.tally("sampler.new")
        for _ in range(3):
            old.bump()
            new.bump()
        time.sleep(0.05)
    counted: Counter[int] = Counter()
    for _, code, amount in taken[0].changes.tolist():
        counted[code] += amount
    assert (counted[new.code], counted[old.code]) == (3, 3)


@native
def test_nothing_is_sampled_during_a_pause():
    with sampling() as taken:
        hot_path.set_paused(now_ns())
        time.sleep(0.02)
        paused_at = now_ns()
        time.sleep(0.05)
        hot_path.set_paused(0)
    assert (taken[0].samples[:, 0] < paused_at).all()


def deep(n: int, work: Callable[[], None]) -> None:
    if n:
        deep(n - 1, work)
    else:
        work()


@native
def test_threads_that_come_and_go_and_deep_stacks_do_no_harm():
    def churn() -> None:
        for _ in range(30):
            threads = [threading.Thread(target=deep, args=(300, lambda: None)) for _ in range(10)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    with sampling(True, 100_000) as taken:
        deep(400, churn)
        for i in range(2000):  # code objects that are freed at once, and their addresses reused
            exec(compile(f"def f{i}():\n    return sum(range(50))\nf{i}()", f"made{i}", "exec"), {})
    assert len(taken[0].samples)
    assert max(len(frames) for _, frames in taken[0].stacks) <= 60


def functions_seen(taken: Taken) -> list[list[str]]:
    """The functions of each stack of the main thread, innermost first."""
    names = {code[0]: code[2] for code in taken.codes}
    frames = dict(taken.stacks)
    mine = taken.samples[taken.samples[:, 1] == threading.get_ident()]
    return [[names[code] for code, _ in frames[stack]] for stack in mine[:, 2].tolist()]


@native
def test_deep_stacks_keep_both_ends():
    """Regression: frames beyond the sixtieth were dropped, and with them the user's own lines."""

    def busy() -> None:
        end = now_ns() + 100 * MS
        while now_ns() < end:
            pass

    with sampling() as taken:
        deep(200, busy)
    stacks = [each for each in functions_seen(taken[0]) if any("busy" in name for name in each)]
    assert stacks
    assert all(any("test_deep_stacks" in name for name in each) for each in stacks)
    assert all(len(each) <= MAX_DEPTH for each in stacks)


def leaves(depth: int) -> Iterator[int]:
    if depth:
        yield from leaves(depth - 1)
        yield from leaves(depth - 1)
    else:
        yield 1


@native
def test_generators_keep_their_callers():
    """Regression: a generator that yielded while its stack was read seemed to have no caller."""
    with sampling(True, MS // 4) as taken:
        end = now_ns() + 500 * MS
        while now_ns() < end:
            sum(leaves(8))
    stacks = [each for each in functions_seen(taken[0]) if "leaves" in each]
    assert stacks
    assert all(any("test_generators" in name for name in each) for each in stacks)


@native
def test_a_forked_child_can_sample_too():
    program = """
import os, time
from hotloop.profiling.recorder import _stack_reader
from hotloop.profiling.recorder.channel_feed import ChannelFeed
from hotloop.spans import _hot_path
def begin(interval_ns):
    feed = ChannelFeed(f"/proc/self/fd/{_hot_path.share()}", 1)
    _stack_reader.start(interval_ns)
    return feed
def sampled(feed):
    time.sleep(0.1)
    _stack_reader.stop()
    return len(feed.samples().samples) > 0
first = begin(200000)
for _ in range(20):
    child = os.fork()
    if not child:
        os._exit(0 if sampled(begin(1000000)) else 3)
    assert os.waitpid(child, 0)[1] == 0
print(sampled(first))
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


@native
def test_signals_never_reach_the_native_thread():
    caught: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: caught.append(threading.get_ident()))
    try:
        with sampling():
            for _ in range(50):
                os.kill(os.getpid(), signal.SIGUSR1)
                time.sleep(0.001)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(caught) == 50


def test_without_a_rate_nothing_is_sampled():
    sampler = PythonSampler()
    sampler.start(0)
    sampler.wait(now_ns() + MS)
    assert len(sampler.take().samples) == 0


@native
def test_no_assertion_of_the_interpreter_s_headers_ends_the_process():
    """Regression: on Python 3.13, what was read of a frame that changed was no code object, and Py_SIZE aborted."""
    folder, suffix = Path(hotloop.__file__).parent, sysconfig.get_config_var("EXT_SUFFIX")
    built = list(folder.rglob(f"*{suffix}"))
    assert len(built) > 5
    assert [each.name for each in built if b"__assert_fail" in each.read_bytes()] == []
