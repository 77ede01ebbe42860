"""Hooks for replay and rollout buffers: classes with a `sample` method and a method that adds.

The user's own classes are recognised by their methods; those of libraries must have a matching name as well, because
data frames and decks of cards have `add` and `sample` too.
"""

from __future__ import annotations

import functools
import inspect
import re
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from hotloop.phases import Phase
from hotloop.profiling.recorder.hooks.patching import Patches, Subject, definer, is_own, root
from hotloop.profiling.recorder.hooks.wrappers import (
    Failures,
    Method,
    P,
    R,
    S,
    SpansByType,
    hide_frame,
    is_suspended,
    skipped_by_warnings,
    timed_method,
    wrapped_method,
)
from hotloop.spans import count
from hotloop.spans.registry import recording

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hotloop.profiling.recorder.hooks.state import HookState

_WHAT = r"(_(batch|all|many|step|transitions?|experiences?|sequences?|episodes?|rows|memory|minibatch|n))?"
_ADD = re.compile(r"_?(add|push|append|store|remember|put|insert|extend|write|save)" + _WHAT)
_TAKE = re.compile(r"(sample|get_batch|get_minibatch|get_samples)" + _WHAT)
_NAMED = re.compile(r"buffer|replay|memory|rollout|storage", re.IGNORECASE)
_NOT_REPLAY = frozenset({"torch", "builtins", "pandas", "polars", "random"})

Batch = TypeVar("Batch")


def on_class(cls: type, patches: Patches, state: HookState) -> None:
    """Time the methods of a buffer class."""
    if not _is_buffer(cls):
        return
    for name, value in list(vars(cls).items()):
        if not isinstance(value, types.FunctionType) or getattr(value, "__isabstractmethod__", False):
            continue
        if _ADD.fullmatch(name):
            patches.time_method(cls, name, Phase.STORE, functools.partial(adding, state=state))
        elif inspect.isgeneratorfunction(value) and (_TAKE.fullmatch(name) or name == "get"):
            patches.time_method(cls, name, Phase.SAMPLE, functools.partial(yielding, state=state))
        elif _TAKE.fullmatch(name):
            patches.time_method(cls, name, Phase.SAMPLE, functools.partial(sampling, state=state))
        elif name in ("compute_returns_and_advantage", "compute_returns", "compute_gae"):
            patches.time_method(cls, name, Phase.STORE)


def _is_buffer(cls: type) -> bool:
    if root(cls) in _NOT_REPLAY or any(base.__name__ == "Module" and root(base) == "torch" for base in cls.__mro__):
        return False  # A policy samples actions, and a list of layers can be extended.
    names = [name for base in cls.__mro__[:-1] for name in vars(base)]
    if not any(map(_ADD.fullmatch, names)):
        return False
    named = _NAMED.search(cls.__name__) is not None
    takes = any(map(_TAKE.fullmatch, names)) or (named and definer(cls, "get") is not None)
    return takes and (named or is_own(cls))


@skipped_by_warnings
def adding(fn: Callable[..., R], spans: SpansByType, state: HookState) -> Callable[..., R]:
    """Time a method that stores, and count the bytes of the arrays given to it."""
    if is_suspended(fn):
        return timed_method(fn, spans)
    sized = state.torch.sized

    def add(self: object, *args: NDArray, **kwargs: NDArray) -> R:
        try:
            # Only of these types: reading it from them cannot fail.
            n = sum([value.nbytes for value in args if type(value) in sized])
            if n:
                count("replay_adds_bytes", n)
            return fn(self, *args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    return wrapped_method(fn, spans, closer=add)


@skipped_by_warnings
def sampling(fn: Method[S, P, R], spans: SpansByType, state: HookState) -> Method[S, P, R]:
    """Time a method that samples, and count the bytes of the batch it returns."""
    if is_suspended(fn):
        return timed_method(fn, spans)

    def sample(self: S, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            at = state.here.at
            depth = at.samples
            at.samples = depth + 1
            try:
                out = fn(self, *args, **kwargs)
            finally:
                at.samples = depth
            if not depth:
                count("replay_bytes", batch_bytes(out, state.failures))
            return out
        except BaseException as error:
            hide_frame(error)
            raise

    return wrapped_method(fn, spans, closer=sample)


def yielding(fn: Method[S, P, Iterator[Batch]], spans: SpansByType, state: HookState) -> Method[S, P, Iterator[Batch]]:
    """Time a method that yields batches, and count their bytes."""

    @functools.wraps(fn)
    def counted(self: S, *args: P.args, **kwargs: P.kwargs) -> Iterator[Batch]:
        for batch in fn(self, *args, **kwargs):
            if recording():
                count("replay_bytes", batch_bytes(batch, state.failures))
            yield batch

    return timed_method(counted, spans)


def batch_bytes(batch: object, failures: Failures) -> int:
    """Return the bytes of the arrays in a batch: an array, a collection of them, or a list of transitions."""
    try:
        return _batch_bytes(batch)
    except Exception as error:
        if not failures.report("measure a batch", error):
            raise
        return 0


def _batch_bytes(batch: object) -> int:
    nbytes = getattr(batch, "nbytes", None)
    if isinstance(nbytes, int):
        return nbytes
    if isinstance(batch, list) and batch and isinstance(batch[0], (tuple, list, dict)):
        # Transitions have the same size, so that one is measured for all.
        return len(batch) * _row_bytes(batch[0])
    if isinstance(batch, (tuple, list, dict)):
        return _row_bytes(batch)
    return _row_bytes(vars(batch)) if hasattr(batch, "__dict__") else 0


def _row_bytes(row: tuple | list | dict) -> int:
    total = 0
    for each in row.values() if isinstance(row, dict) else row:
        nbytes = getattr(each, "nbytes", 0)
        if isinstance(nbytes, int):
            total += nbytes
        elif isinstance(each, dict):
            total += sum(getattr(part, "nbytes", 0) for part in each.values())
    return total


def on_numpy(numpy: types.ModuleType, patches: Patches, state: HookState) -> None:
    """Count the bytes of arrays, too."""
    state.torch.sized.add(numpy.ndarray)


SUBJECT = Subject(on_class=on_class, on_import={"numpy": on_numpy})
