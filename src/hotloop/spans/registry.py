"""span(): the tiny API that everything may import. A no-op until a recorder listens.

What a span writes when it begins and ends is in `ticks`; who calls whom, and how long, is worked out later by
the recorder's background thread (`record.fold`).

A span's behaviour is its class, swapped by the recorder: `Span` does nothing, `_Live` records, `_Counted` only
counts. A `with` statement looks up `__exit__` when it begins, so a call that was begun by one class is ended by
the same, whatever happens meanwhile: each begin has its end.
"""

from __future__ import annotations

import functools
import inspect
import threading
import types
from collections.abc import Callable, Coroutine, Generator
from typing import ParamSpec, TypeVar

from hotloop.clock import DeviceClock
from hotloop.hook_kinds import Hook
from hotloop.notice import notice
from hotloop.phases import DEVICE_PHASES, Phase, phase_of
from hotloop.spans import hot_path
from hotloop.spans.hot_path import Core, Log, Tally, note

P = ParamSpec("P")
R = TypeVar("R")
Yielded = TypeVar("Yielded")
Sent = TypeVar("Sent")

COUNTER_BASE = 1 << 24
"""Codes from here on are counters: (code, amount). Below it are spans: (code, ns)."""

_refused: set[str] = set()
"""Counters that were given an amount which cannot be counted."""
child_program = ""
"""Python statements by which a child process starts to record itself; "" while nothing records."""

MAX_NAMES = 4096
"""Names are meant to be few and fixed. More than this are recorded under one name, with a warning."""


class Span(Core):
    """A named stretch of time: a context manager and a decorator, shared by all who use its name.

    It holds no state of a single call, so it may be nested in itself and used from any thread.
    """

    __slots__ = ("hook", "name", "phase", "within_ns")

    def __init__(self, name: str, phase: Phase | None, code: int, hook: Hook | None = None) -> None:
        super().__init__(code)
        self.name = name
        self.phase = phase
        self.hook = 0 if hook is None else int(hook)
        self.within_ns = 0.0
        """What a hook's wrapper took within the span, as far as that differs from call to call; a tight loop's ns."""

    __enter__ = staticmethod(hot_path.idle)
    __exit__ = staticmethod(hot_path.idle)

    def __call__(self, fn: Callable[P, R]) -> Callable[P, R]:
        """Decorate a function, method, generator or coroutine function."""
        return _decorate(self, fn)

    def __repr__(self) -> str:
        return f"span({self.name!r})"


class _Live(Span):
    __slots__ = ()
    __enter__ = Core.start
    __exit__ = Core.finish


class _OnDevice(_Live):
    """Also takes the device's time, where the work is done by a GPU."""

    __slots__ = ()

    def __enter__(self) -> None:
        self.start()
        if _device is not None:
            _device.begin(self.code)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if _device is not None:
            _device.end(self.code)
        self.finish(kind, error, trace)


class _Counted(Span):
    __slots__ = ()
    __enter__ = Core.tally


hot_path.use_classes(_Live, _Counted)
_tallies: dict[str, Tally] = {}
_spans: dict[str, Span] = {}
_by_code: list[Span] = []
_counters: dict[str, int] = {}
_born: type[Span] = Span
_device: DeviceClock | None = None
_recording = False
_register_lock = threading.Lock()


# The cache is C: finding a span by its name costs half of what a Python function and a dictionary would.
@functools.lru_cache(maxsize=2 * MAX_NAMES)
def span(name: str, phase: Phase | None = None) -> Span:
    """Return the span of that name, to use as `with span("replay.sample"):` or `@span("env.render")`.

    Args:
        name: A short fixed name. Dots order it: "replay.sample", "env.step".
        phase: What the loop is doing meanwhile. Guessed from the name if not given.
    """
    found = _spans.get(name)
    if found is not None and (phase is None or phase is found.phase):
        return found
    return _register(name, phase, None)


@functools.cache
def hook_span(name: str, phase: Phase | None = None, hook: Hook = Hook.METHOD) -> Span:
    """Return a span of a zero-code hook, whose wrapper costs a call more, which the recorder accounts for."""
    return _register(name, phase, hook)


def count(name: str, amount: int = 1) -> None:
    """Add to a counter of the run: `env_steps`, `frames`, `episodes`, `updates`, or one of your own.

    An amount that is no whole number is not counted; a message says so once. It is no error, for without a recorder
    it would not be noticed.
    """
    if not _recording:
        return
    try:
        code = _counters.get(name)
        if code is None:
            code = counter_code(name if isinstance(name, str) else repr(name))
        note(code, amount)
    except (TypeError, OverflowError) as error:
        _refuse_amount(name, error)


def _refuse_amount(name: str, error: Exception) -> None:
    if repr(name) in _refused:
        return
    _refused.add(repr(name))
    notice(f"an amount for the counter {name!r} is not counted ({error}): give whole numbers below 2**63")


def tally(name: str) -> Tally:
    """Return the tally of that name, for hooks on calls that take less than a microsecond."""
    found = _tallies.get(name)
    if found is None:
        found = _tallies.setdefault(name, Tally(name, counter_code(name)))
    return found


def recording() -> bool:
    """Say whether a recorder listens now."""
    return _recording


def _register(name: str, phase: Phase | None, hook: Hook | None) -> Span:
    with _register_lock:
        same = name not in _spans or phase is None or _spans[name].phase is phase
        key = name if same else f"{name}\0{phase}"
        found = _spans.get(key)
        if found is not None:
            return found
        if len(_by_code) >= MAX_NAMES:
            return _overflow()
        told = phase if phase is not None or hook is not None else phase_of(name)
        made = _born(name, told, len(_by_code) + 1, hook)
        if _born is _Live:
            make_live(made)
        _by_code.append(made)
        _spans[key] = made
        return made


def _overflow() -> Span:
    name = "(more names)"
    if name not in _spans:
        notice(
            f"more than {MAX_NAMES} different span names: the rest share one. "
            "Use few fixed names and put what varies into a counter."
        )
        _spans[name] = _born(name, None, len(_by_code) + 1)
        _by_code.append(_spans[name])
    return _spans[name]


def counter_code(name: str) -> int:
    """Return the code of a counter, for who adds to it often: `ticks.note(code, amount)` while `recording()`."""
    with _register_lock:
        return _counters.setdefault(name, COUNTER_BASE + len(_counters))


def listen() -> list[Log]:
    """Start recording all spans; return the list in which each thread's log will appear."""
    global _born, _recording
    logs = hot_path.listen()
    _born = _Live
    for each in _by_code:
        each.__class__ = _Live
    _recording = True
    return logs


def hush() -> None:
    """Stop recording: every span is a no-op again. What the logs hold stays theirs."""
    global _born, _recording, _device
    _recording = False
    _device = None
    _born = Span
    for each in _by_code:
        each.__class__ = Span


def silence() -> list[type[Span]]:
    """Make every span do nothing for a while; return what they were, for `unsilence`."""
    global _born
    classes = [type(each) for each in _by_code]
    _born = Span
    for each in _by_code:
        each.__class__ = Span
    return classes


def unsilence(classes: list[type[Span]]) -> None:
    """Make every span what it was before `silence`; those that are new since are timed."""
    global _born
    _born = _Live
    for each, was in zip(_by_code, classes, strict=False):
        each.__class__ = was
    for each in _by_code[len(classes) :]:
        make_live(each)


def is_live(each: Span) -> bool:
    """Say whether a span is being timed."""
    return isinstance(each, _Live)


def make_live(each: Span) -> None:
    """Let a span be timed again."""
    each.__class__ = _OnDevice if _device is not None and each.phase in DEVICE_PHASES else _Live


def make_counted(each: Span) -> None:
    """Let a span only be counted: exactly, at a fraction of the cost, with nothing written."""
    each.__class__ = _Counted


def use_device(clock: DeviceClock | None) -> None:
    """Take the device's time too, in the spans whose work a device may do."""
    global _device
    _device = clock
    for each in _by_code:
        if is_live(each):
            make_live(each)


def known_spans() -> list[Span]:
    """Return all spans by code: the span of code c is at c - 1."""
    return _by_code


def known_tallies() -> list[Tally]:
    """Return all tallies."""
    return list(_tallies.values())


def known_counters() -> dict[str, int]:
    """Return all counters: name to code."""
    return _counters


def _decorate(each: Span, fn: Callable[P, R]) -> Callable[P, R]:
    if inspect.isgeneratorfunction(fn):

        @functools.wraps(fn)
        def generator(*args: P.args, **kwargs: P.kwargs) -> Generator:
            return _resume(each, fn(*args, **kwargs))

        return generator  # type: ignore[return-value]
    if inspect.iscoroutinefunction(fn):

        @functools.wraps(fn)
        async def coroutine(*args: P.args, **kwargs: P.kwargs) -> R:
            return await types.coroutine(_resume)(each, fn(*args, **kwargs))

        return coroutine  # type: ignore[return-value]

    @functools.wraps(fn)
    def function(*args: P.args, **kwargs: P.kwargs) -> R:
        with each:
            return fn(*args, **kwargs)

    return function


def _resume(
    each: Span, inner: Generator[Yielded, Sent | None, R] | Coroutine[Yielded, Sent | None, R]
) -> Generator[Yielded, Sent | None, R]:
    """Drive a generator or coroutine, timing it only while it runs and not while it is suspended."""
    step: Callable[[], Yielded] = functools.partial(inner.send, None)
    while True:
        with each:
            try:
                item = step()
            except StopIteration as stop:
                return stop.value
        try:
            sent = yield item
        except GeneratorExit:
            inner.close()
            raise
        except BaseException as error:
            step = functools.partial(inner.throw, error)
        else:
            step = functools.partial(inner.send, sent)


def after_fork() -> None:
    """In a forked child: leave the parent's logs behind."""
    global _register_lock
    hot_path.listen()
    _register_lock = threading.Lock()
