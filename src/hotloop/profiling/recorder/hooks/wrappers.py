"""The functions that hooks put in place of others: each times the original under a span made once.

They run on hot paths, so all that can be known beforehand is worked out beforehand. Each of them steps aside
while torch.compile traces, so that a compiled function is the same with and without hooks.
"""

from __future__ import annotations

import functools
import inspect
import os
import signal
import threading
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, TypeVar

import hotloop
from hotloop.hook_kinds import Hook
from hotloop.notice import notice
from hotloop.phases import Phase
from hotloop.spans.registry import Span, hook_span

MARK = "__hotloop__"
"""Attribute of every wrapper, by which it is known again. The original is its `__wrapped__`."""

Wrapper = Callable[..., Any]


class At:
    """Where a thread is, as far as hooks need to know."""

    __slots__ = ("graph_flops", "inner", "layers", "modules", "samples")

    def __init__(self) -> None:
        self.modules = 0
        """Timed module calls open."""
        self.samples = 0
        """Replay samples open."""
        self.layers: list[tuple[Any, int]] | None = None
        """Where the layers of a first forward leave themselves and their FLOPs, or None."""
        self.inner = 0
        """Module calls of that first forward that are not timed themselves."""
        self.graph_flops = 0
        """FLOPs of the forward passes that the next backward will go through."""


class Here(threading.local):
    """Finds the calling thread's place with one lookup, which costs as much as four of an object's fields."""

    def __init__(self) -> None:
        self.at = At()


here = Here()

quiet: set[int] = set()
"""Threads in which host syncs are a library's own business and are not counted. Nearly always empty."""


def _never() -> bool:
    return False


is_compiling: Callable[[], bool] = _never
"""Becomes `torch.compiler.is_dynamo_compiling`, which the tracer takes for True and costs 30 ns elsewhere."""

_spans: dict[tuple[str, Phase | None], Span] = {}


def span_of(name: str, phase: Phase | None, hook: Hook = Hook.METHOD) -> Span:
    """Return the hook span of that name and phase, the same each time."""
    found = _spans.get((name, phase))
    if found is None:
        found = _spans[name, phase] = hook_span(name, phase, hook)
    return found


BASES = frozenset({"Env", "VectorEnv", "Wrapper", "VectorWrapper", "VecEnv", "VecEnvWrapper"})
"""Classes whose methods do next to nothing: called through super(), they are not timed."""


class SpansByType(dict[type, "Span | None"]):
    """The spans of one method, by the class of the object it is called on: `Adam.step`, `SGD.step`.

    A call through super() bears the name of the class that defines the method instead, so that it does not
    look like a second call of the subclass's. None stands for a call that is not to be timed.
    """

    __slots__ = ("hook", "label", "method", "owner", "phase", "wrapper")

    def __init__(self, owner: type, method: str, phase: Phase | None) -> None:
        self.owner = owner
        self.method = method
        self.phase = phase
        self.hook = Hook.METHOD
        self.label = "." + method
        self.wrapper: Wrapper | None = None

    def __missing__(self, cls: type) -> Span | None:
        owner = class_name(self.owner)
        if look_up(cls, self.method) is self.wrapper:
            found = span_of(class_name(cls) + self.label, self.phase, self.hook)
        elif owner in BASES or owner.startswith("Base"):
            found = None
        else:
            found = span_of(owner + self.label, self.phase, self.hook)
        self[cls] = found
        return found


def mark(wrapper: Wrapper, spans: SpansByType | None = None) -> Wrapper:
    """Make a wrapper known as one."""
    setattr(wrapper, MARK, True)
    if spans is not None:
        spans.wrapper = wrapper
    return wrapper


def hide_frame(error: BaseException) -> None:
    """Remove the entry of the wrapper that calls this from the traceback of an error that passes through it.

    A bare `raise` after it adds no new entry, so that the script's tracebacks are as without hooks.
    """
    if error.__traceback__ is not None:
        error.__traceback__ = error.__traceback__.tb_next


_reported: set[str] = set()
_PACKAGE = os.path.join(os.path.dirname(os.path.abspath(hotloop.__file__)), "")


def report_failure(what: str, error: Exception) -> bool:
    """Say once that hooks failed at something; return False for an error that is to be raised on.

    A script's objects may raise anything when they are looked at. But an error may also come from a signal handler of
    the script, or from another of its threads, that happened to interrupt a hook: it is meant for the script.
    """
    if _is_interruption(error):
        while error.__traceback__ is not None and _is_ours(error.__traceback__.tb_frame):
            error.__traceback__ = error.__traceback__.tb_next
        return False
    if what not in _reported:
        _reported.add(what)
        notice(f"could not {what} ({error!r}): the script goes on")
    return True


def _is_interruption(error: Exception) -> bool:
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    codes = {_code_of(each) for each in handlers if callable(each)}
    trace, last = error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            return True
        trace, last = trace.tb_next, trace.tb_frame
    # Set from another thread, it is raised in our own code, which raises no error of a class of the script's.
    return last is not None and _is_ours(last) and type(error).__module__ != "builtins"


def _code_of(handler: Any) -> CodeType | None:
    while isinstance(handler, functools.partial):
        handler = handler.func
    handler = getattr(handler, "__func__", handler)
    if not hasattr(handler, "__code__"):
        handler = getattr(type(handler), "__call__", None)  # noqa: B004
    return getattr(handler, "__code__", None)


def _is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_PACKAGE)


class_name: Callable[[type], str] = type.__dict__["__name__"].__get__
"""The name of a class, also where its metaclass says something else."""


def look_up(cls: type, name: str) -> Any:
    """Return an attribute of a class, None if it has none, without running code of its metaclass."""
    return next((vars(base)[name] for base in _mro(cls) if name in vars(base)), None)


_mro: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__

Factory = TypeVar("Factory", bound=Callable[..., Any])


def skipped_by_warnings(factory: Factory) -> Factory:
    """Have `warnings.warn(..., stacklevel=2)` pass over the wrappers that a factory makes.

    Python passes over frames of its import system, which it knows by their file name.
    """
    code = factory.__code__
    inner = [
        each.replace(co_filename=f"{each.co_filename} (importlib._bootstrap)") if isinstance(each, CodeType) else each
        for each in code.co_consts
    ]
    factory.__code__ = code.replace(co_consts=tuple(inner))
    return factory


def is_wrapper(value: object) -> bool:
    """Say whether a hook put this there."""
    return hasattr(value, MARK)


@skipped_by_warnings
def timed_method(fn: Wrapper, spans: SpansByType) -> Wrapper:
    """Time a method under the name of its object's class. A generator is timed while it runs."""
    if inspect.isgeneratorfunction(fn) or inspect.iscoroutinefunction(fn):
        return mark(span_of(class_name(spans.owner) + spans.label, spans.phase)(fn), spans)

    @functools.wraps(fn)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            if is_compiling() or (each := spans[type(self)]) is None:
                return fn(self, *args, **kwargs)
            with each:
                return fn(self, *args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    return mark(method, spans)


@skipped_by_warnings
def timed_function(fn: Wrapper, each: Span) -> Wrapper:
    """Time a function under one span."""

    @functools.wraps(fn)
    def function(*args: Any, **kwargs: Any) -> Any:
        try:
            if is_compiling():
                return fn(*args, **kwargs)
            with each:
                return fn(*args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    return mark(function)
