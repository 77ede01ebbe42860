"""The functions that hooks put in place of others: each times the original under a span that is made once.

They are C callables (`_hooks.c`), or Python functions without a C compiler. Once torch.compile is used, those around
the user's own classes become Python functions too: while it traces they only call the original, so that a compiled
function is the same with and without hooks.
"""

from __future__ import annotations

import functools
import inspect
import os
import signal
import threading
from collections.abc import Callable
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

import hotloop
from hotloop.hook_kinds import Hook
from hotloop.notice import notice
from hotloop.phases import Phase
from hotloop.spans import hot_path
from hotloop.spans.registry import Span, hook_span, is_live

if hot_path.ACCELERATED:
    from hotloop.profiling.recorder.hooks._hooks import (  # pyright: ignore[reportMissingImports]
        Tallied,
        Wrapper,
        inspect_calls,
    )
else:
    Tallied = Wrapper = None

    def inspect_calls(on: bool) -> None:
        """Look at module calls below the timed ones. Only C needs to be told."""


if TYPE_CHECKING:
    from torch import nn

IN_C = tuple(each for each in (Wrapper, Tallied, hot_path.Step) if isinstance(each, type))
"""Wrappers in C."""
MARK = "__hotloop__"
"""Attribute that every wrapper has. Its `__wrapped__` is the original."""
PYTHON_FORM = "__hotloop_in_python__"
"""Attribute of wrappers in C: makes the same wrapper in Python."""

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
"""The object that a method is called on."""
W = TypeVar("W", bound=Callable)
Method = Callable[Concatenate[S, P], R]


class At:
    """The hooks' per-thread state."""

    __slots__ = ("graph_flops", "inner", "layers", "modules", "samples")

    def __init__(self) -> None:
        self.modules = 0
        """Timed module calls that are open; only without the C extension."""
        self.samples = 0
        """Replay samples that are open."""
        self.layers: list[tuple[nn.Module, int]] | None = None
        """During the first forward pass of a module: its layers so far, with their FLOPs."""
        self.inner = 0
        """During that pass: module calls that are not timed themselves."""
        self.graph_flops = 0
        """FLOPs of the forward passes that the next backward will go through."""


class Here(threading.local):
    """The calling thread's `At`. One thread-local lookup costs as much as four attribute lookups."""

    def __init__(self) -> None:
        self.at = At()


def _never() -> bool:
    return False


is_compiling: Callable[[], bool] = _never
"""Becomes `torch.compiler.is_dynamo_compiling` when torch is imported: True to the tracer, and 30 ns elsewhere.

A global and not part of `HookState`, because torch.compile must resolve it to a constant while it traces a wrapper.
"""

BASES = frozenset({"Env", "VectorEnv", "Wrapper", "VectorWrapper", "VecEnv", "VecEnvWrapper"})
"""Classes whose methods do next to nothing: called through super(), they are not timed."""


class SpansByType(dict[type, "Span | None"]):
    """The spans of one method, by the class of the object it is called on: `Adam.step`, `SGD.step`.

    A call through super() is named after the class that defines the method, so that it does not look like a second
    call of the subclass's. None marks a call that is not timed.
    """

    __slots__ = ("hook", "label", "method", "owner", "phase", "wrapper")

    def __init__(self, owner: type, method: str, phase: Phase | None) -> None:
        self.owner = owner
        self.method = method
        self.phase = phase
        self.hook = Hook.METHOD
        self.label = "." + method
        self.wrapper: Callable | None = None

    def __missing__(self, cls: type) -> Span | None:
        owner = class_name(self.owner)
        if is_defined_by(self.wrapper, cls, self.method):
            found = hook_span(class_name(cls) + self.label, self.phase, self.hook)
        elif owner in BASES or owner.startswith("Base"):
            found = None
        else:
            found = hook_span(owner + self.label, self.phase, self.hook)
        self[cls] = found
        return found


def mark(wrapper: W, spans: SpansByType | None = None) -> W:
    """Mark a function as a wrapper."""
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


_PACKAGE = os.path.join(os.path.dirname(os.path.abspath(hotloop.__file__)), "")


class Failures:
    """Reports each kind of failure of the hooks once."""

    def __init__(self) -> None:
        self._reported: set[str] = set()

    def report(self, what: str, error: Exception) -> bool:
        """Report that hooks failed to do something; return False if the error is the script's and must be raised.

        A script's objects may raise anything when hooks inspect them. But an error may also come from a signal handler
        of the script, or from another of its threads, that interrupted a hook: it is meant for the script.
        """
        if _is_interruption(error):
            while error.__traceback__ is not None and _is_ours(error.__traceback__.tb_frame):
                error.__traceback__ = error.__traceback__.tb_next
            return False
        if what not in self._reported:
            self._reported.add(what)
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
    # An error set from another thread is raised in our own code, which raises none of the script's classes itself.
    return last is not None and _is_ours(last) and type(error).__module__ != "builtins"


def _code_of(handler: Callable) -> CodeType | None:
    while isinstance(handler, functools.partial):
        handler = handler.func
    handler = getattr(handler, "__func__", handler)
    if not hasattr(handler, "__code__"):
        handler = getattr(type(handler), "__call__", handler)  # noqa: B004
    return getattr(handler, "__code__", None)


def _is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_PACKAGE)


class_name: Callable[[type], str] = type.__dict__["__name__"].__get__
"""The real name of a class, even if its metaclass overrides `__name__`."""


_mro: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__


def is_defined_by(wrapper: Callable | None, cls: type, name: str) -> bool:
    """Check whether a class's attribute is this wrapper, without running code of its metaclass."""
    return next((vars(base)[name] for base in _mro(cls) if name in vars(base)), None) is wrapper


def skipped_by_warnings(factory: W) -> W:
    """Make `warnings.warn(..., stacklevel=2)` skip the wrappers that a factory makes.

    Python skips frames of its import system, which it recognises by their file name.
    """
    code = factory.__code__
    inner = [
        each.replace(co_filename=f"{each.co_filename} (importlib._bootstrap)") if isinstance(each, CodeType) else each
        for each in code.co_consts
    ]
    factory.__code__ = code.replace(co_consts=tuple(inner))
    return factory


def is_wrapper(value: object) -> bool:
    """Check whether this is a wrapper of the hooks."""
    return hasattr(value, MARK)


def is_suspended(fn: Callable) -> bool:
    """Check whether a function makes a generator or coroutine, which runs only later and piece by piece."""
    return inspect.isgeneratorfunction(fn) or inspect.iscoroutinefunction(fn)


def timed_method(fn: Method[S, P, R], spans: SpansByType) -> Method[S, P, R]:
    """Time a method under the name of its object's class. A generator is timed while it runs."""
    if is_suspended(fn):
        return mark(hook_span(class_name(spans.owner) + spans.label, spans.phase)(fn), spans)
    return wrapped_method(fn, spans)


def wrapped_method(
    fn: Method[S, P, R],
    spans: SpansByType,
    closer: Method[S, P, R] | None = None,
    quick: Method[S, P, R] | None = None,
) -> Method[S, P, R]:
    """Put a wrapper around a method.

    Args:
        fn: The method.
        spans: Its spans, by the class of the object.
        closer: Called instead of it to look more closely at a call that is timed; not at each where they are frequent.
        quick: Called instead of it otherwise.
    """
    if Wrapper is None:
        return method_in_python(fn, spans, closer, quick)
    python = functools.partial(method_in_python, fn, spans, closer, quick)
    return dressed(Wrapper(fn, spans, closer, quick), fn, python, spans)


def timed_function(fn: Callable[P, R], each: Span, closer: Callable[P, R] | None = None) -> Callable[P, R]:
    """Time a function under one span. The arguments are as for `wrapped_method`."""
    if Wrapper is None:
        return function_in_python(fn, each, closer)
    return dressed(Wrapper(fn, each, closer), fn, functools.partial(function_in_python, fn, each, closer))


def dressed(wrapper: W, fn: Callable, python: Callable[[], Callable], spans: SpansByType | None = None) -> W:
    """Give a wrapper in C the name of what it wraps, and a function that makes its Python form."""
    functools.update_wrapper(wrapper, fn)
    vars(wrapper)[PYTHON_FORM] = python
    return mark(wrapper, spans)


def in_python(wrapper: object) -> object:
    """Return the Python form of a wrapper in C, which torch.compile cannot trace; others as they are."""
    make = getattr(wrapper, "__dict__", {}).get(PYTHON_FORM)
    return wrapper if make is None else make()


@skipped_by_warnings
def method_in_python(
    fn: Method[S, P, R],
    spans: SpansByType,
    closer: Method[S, P, R] | None = None,
    quick: Method[S, P, R] | None = None,
) -> Method[S, P, R]:
    """Do in Python what `wrapped_method` does. torch.compile can trace through it."""
    closer, quick = closer or fn, quick or fn

    @functools.wraps(fn)
    def method(self: S, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            if is_compiling() or (each := spans[type(self)]) is None:
                return fn(self, *args, **kwargs)
            with each:
                return (closer if is_live(each) else quick)(self, *args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    return mark(method, spans)


@skipped_by_warnings
def function_in_python(fn: Callable[P, R], each: Span, closer: Callable[P, R] | None = None) -> Callable[P, R]:
    """Do in Python what `wrapped_function` does."""
    closer = closer or fn

    @functools.wraps(fn)
    def function(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            if is_compiling():
                return fn(*args, **kwargs)
            with each:
                return (closer if is_live(each) else fn)(*args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    return mark(function)
