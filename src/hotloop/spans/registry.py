"""`span()` and `count()`, which everything may import. They do nothing without a recorder.

`hot_path` has the code that runs when a span begins and ends. The recorder's process later derives the call tree and
its times (`profiling.recorder.call_tree.fold`).

The class of a span determines what it does, and the recorder changes that class: `Span` does nothing, `_Live`
records, `_Counted` only counts. A `with` statement looks up `__exit__` when it begins. So a call ends with the class
with which it began, even if the span's class has changed since, and every begin has its end.
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
from hotloop.spans.hot_path import Core, Logs, Tally, note

P = ParamSpec("P")
R = TypeVar("R")
Yielded = TypeVar("Yielded")
Sent = TypeVar("Sent")

COUNTER_BASE = 1 << 24
"""Codes from here on are counters: (code, amount). Below it are spans: (code, ns)."""

_refused: set[str] = set()
"""Counters for which an invalid amount was reported."""
child_program = ""
"""Python statements with which a child process starts to record itself; "" without a recorder."""

MAX_NAMES = 4096
"""Names should be few and fixed. After this many, further ones are recorded under one name, with a warning."""


class Span(Core):
    """A named interval of time, as a context manager and a decorator. All code that uses a name shares one object.

    It holds no state of a single call, so it may be nested in itself and used from any thread.
    """

    __slots__ = ("hook", "name", "phase")

    def __init__(self, name: str, phase: Phase | None, code: int, hook: Hook | None = None) -> None:
        super().__init__(code)
        self.name = name
        self.phase = phase
        self.hook = 0 if hook is None else int(hook)

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
    """Also measures device time, for work that a GPU may do."""

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
_on_new_name: Callable[[], None] | None = None
_register_lock = threading.Lock()


# The cache is written in C: a lookup costs half as much as with a Python function and a dictionary.
@functools.lru_cache(maxsize=2 * MAX_NAMES)
def span(name: str, phase: Phase | None = None) -> Span:
    """Return the span of that name, to use as `with span("replay.sample"):` or `@span("env.render")`.

    Args:
        name: A short fixed name. Use dots to group names: "replay.sample", "env.step".
        phase: What the loop does in this span. Guessed from the name if not given.
    """
    found = _spans.get(name)
    if found is not None and (phase is None or phase is found.phase):
        return found
    return _register(name, phase, None)


@functools.cache
def hook_span(name: str, phase: Phase | None = None, hook: Hook = Hook.METHOD) -> Span:
    """Return a span for a hook. The recorder subtracts the extra cost of the wrapper, which depends on `hook`."""
    return _register(name, phase, hook)


def count(name: str, amount: int = 1) -> None:
    """Add to a counter of the run: `env_steps`, `frames`, `episodes`, `updates`, or one of your own.

    An amount that is not a whole number is not counted, and a message says so once. It does not raise an error, because
    the same call would raise none without a recorder.
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
    """Return the tally of this name, for hooks on calls that take less than a microsecond."""
    found = _tallies.get(name)
    if found is None:
        found = _tallies.setdefault(name, Tally(name, counter_code(name)))
    return found


def recording() -> bool:
    """Return whether a recorder is active."""
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
        chosen = phase if phase is not None or hook is not None else phase_of(name)
        made = _born(name, chosen, len(_by_code) + 1, hook)
        if _born is _Live:
            make_live(made)
        _by_code.append(made)
        _spans[key] = made
    if _on_new_name is not None:
        _on_new_name()
    return made


def _overflow() -> Span:
    name = "(more names)"
    if name not in _spans:
        notice(
            f"more than {MAX_NAMES} different span names: the rest share one. "
            "Use few fixed names, and put varying values into a counter."
        )
        _spans[name] = _born(name, None, len(_by_code) + 1)
        _by_code.append(_spans[name])
    return _spans[name]


def counter_code(name: str) -> int:
    """Return a counter's code. Code that counts often calls `hot_path.note(code, amount)` while `recording()`."""
    with _register_lock:
        is_new = name not in _counters
        code = _counters.setdefault(name, COUNTER_BASE + len(_counters))
    if is_new and _on_new_name is not None:
        _on_new_name()
    return code


def listen(logs: Logs | None = None) -> Logs:
    """Start recording all spans; return the logs of the threads.

    Args:
        logs: If they have been started already.
    """
    global _born, _recording
    if logs is None:
        hot_path.listen()
        logs = Logs()
    _born = _Live
    for each in _by_code:
        each.__class__ = _Live
    _recording = True
    return logs


def hush() -> None:
    """Stop recording: every span does nothing again. The logs keep their events."""
    global _born, _recording, _device
    _recording = False
    _device = None
    _born = Span
    for each in _by_code:
        each.__class__ = Span


def silence() -> list[type[Span]]:
    """Make every span do nothing until `unsilence`; return the classes of the spans, to pass to it."""
    global _born
    classes = [type(each) for each in _by_code]
    _born = Span
    for each in _by_code:
        each.__class__ = Span
    return classes


def unsilence(classes: list[type[Span]]) -> None:
    """Undo `silence`. Spans that were created in between are timed."""
    global _born
    _born = _Live
    for each, was in zip(_by_code, classes, strict=False):
        each.__class__ = was
    for each in _by_code[len(classes) :]:
        make_live(each)


def is_live(each: Span) -> bool:
    """Return whether a span is being timed."""
    return isinstance(each, _Live)


def make_live(each: Span) -> None:
    """Start to time a span."""
    each.__class__ = _OnDevice if _device is not None and each.phase in DEVICE_PHASES else _Live


def make_counted(each: Span) -> None:
    """Count the calls of a span without timing them. Counts are exact, and nothing is logged."""
    each.__class__ = _Counted


def use_device(clock: DeviceClock | None) -> None:
    """Also measure device time, in spans whose phase may run on a device; None: stop doing so."""
    global _device
    _device = clock
    for each in _by_code:
        if is_live(each):
            make_live(each)


def known_spans() -> list[Span]:
    """Return all spans in the order of their codes: the span with code c has index c - 1."""
    return _by_code


def known_tallies() -> list[Tally]:
    """Return all tallies."""
    return list(_tallies.values())


def use_counted(only_counted: bytes | None) -> None:
    """Time all spans but those that are only counted, given by one byte for each code; None: stop recording."""
    if only_counted is None:
        hush()
        return
    for each in _by_code:
        wanted = each.code < len(only_counted) and only_counted[each.code]
        if bool(wanted) == is_live(each):
            (make_counted if wanted else make_live)(each)


def call_on_new_name(callback: Callable[[], None] | None) -> None:
    """Call a function whenever a span or counter gets a new name; None: do not."""
    global _on_new_name
    _on_new_name = callback


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
    """Start new logs in a forked child, without the parent's events."""
    global _register_lock
    hot_path.listen()
    _register_lock = threading.Lock()
