"""The functions that hooks put in place of others: each times the original under a span made once.

They run on hot paths, so all that can be known beforehand is worked out beforehand. Each of them steps aside
while torch.compile traces, so that a compiled function is the same with and without hooks.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any

from hotloop.spans import Hook, Phase, Span, hook_span

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
        owner = self.owner.__name__
        if getattr(cls, self.method, None) is self.wrapper:
            found = span_of(cls.__name__ + self.label, self.phase, self.hook)
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


def is_wrapper(value: object) -> bool:
    """Say whether a hook put this there."""
    return hasattr(value, MARK)


def timed_method(fn: Wrapper, spans: SpansByType) -> Wrapper:
    """Time a method under the name of its object's class. A generator is timed while it runs."""
    if inspect.isgeneratorfunction(fn) or inspect.iscoroutinefunction(fn):
        return mark(span_of(spans.owner.__name__ + spans.label, spans.phase)(fn), spans)

    @functools.wraps(fn)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling() or (each := spans[type(self)]) is None:
            return fn(self, *args, **kwargs)
        with each:
            return fn(self, *args, **kwargs)

    return mark(method, spans)


def timed_function(fn: Wrapper, each: Span) -> Wrapper:
    """Time a function under one span."""

    @functools.wraps(fn)
    def function(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return fn(*args, **kwargs)
        with each:
            return fn(*args, **kwargs)

    return mark(function)
