"""Hooks for replay and rollout buffers: what has `sample` and a way to add, by whatever name.

The user's own classes are taken by their shape; those of libraries only if their name says so as well, for
data frames and decks of cards have `add` and `sample` too.
"""

from __future__ import annotations

import functools
import inspect
import re
import types
from typing import Any

import numpy as np

from hotloop.phases import Phase
from hotloop.profiling.recorder.hooks import wrappers
from hotloop.profiling.recorder.hooks.patching import Patches, Subject, definer, is_own, root
from hotloop.profiling.recorder.hooks.wrappers import (
    SpansByType,
    Wrapper,
    here,
    hide_frame,
    mark,
    report_failure,
    skipped_by_warnings,
    timed_method,
)
from hotloop.spans import count
from hotloop.spans.registry import recording

_WHAT = r"(_(batch|all|many|step|transitions?|experiences?|sequences?|episodes?|rows|memory|minibatch|n))?"
_ADD = re.compile(r"_?(add|push|append|store|remember|put|insert|extend|write|save)" + _WHAT)
_TAKE = re.compile(r"(sample|get_batch|get_minibatch|get_samples)" + _WHAT)
_NAMED = re.compile(r"buffer|replay|memory|rollout|storage", re.IGNORECASE)
_NOT_REPLAY = frozenset({"torch", "builtins", "pandas", "polars", "random"})

_sized: set[type] = {np.ndarray}


def on_class(cls: type, patches: Patches) -> None:
    """Time the methods of a buffer class."""
    if not _is_buffer(cls):
        return
    for name, value in list(vars(cls).items()):
        if not isinstance(value, types.FunctionType) or getattr(value, "__isabstractmethod__", False):
            continue
        if _ADD.fullmatch(name):
            patches.time_method(cls, name, Phase.STORE, adding)
        elif _TAKE.fullmatch(name) or (name == "get" and inspect.isgeneratorfunction(value)):
            patches.time_method(cls, name, Phase.SAMPLE, sampling)
        elif name in ("compute_returns_and_advantage", "compute_returns", "compute_gae"):
            patches.time_method(cls, name, Phase.STORE)


def _is_buffer(cls: type) -> bool:
    if root(cls) in _NOT_REPLAY or any(base.__name__ == "Module" and root(base) == "torch" for base in cls.__mro__):
        return False  # a policy samples actions, and a list of layers can be extended
    names = [name for base in cls.__mro__[:-1] for name in vars(base)]
    if not any(map(_ADD.fullmatch, names)):
        return False
    named = _NAMED.search(cls.__name__) is not None
    takes = any(map(_TAKE.fullmatch, names)) or (named and definer(cls, "get") is not None)
    return takes and (named or is_own(cls))


@skipped_by_warnings
def adding(fn: Wrapper, spans: SpansByType) -> Wrapper:
    """Time a method that stores, and count the bytes of the arrays given to it."""
    if inspect.isgeneratorfunction(fn) or inspect.iscoroutinefunction(fn):
        return timed_method(fn, spans)

    @functools.wraps(fn)
    def add(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            if wrappers.is_compiling() or (each := spans[type(self)]) is None:
                return fn(self, *args, **kwargs)
            with each:
                if recording():
                    # Of these types alone: theirs cannot fail.
                    n = sum([value.nbytes for value in args if type(value) in _sized])
                    if n:
                        count("replay_adds_bytes", n)
                return fn(self, *args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    return mark(add, spans)


@skipped_by_warnings
def sampling(fn: Wrapper, spans: SpansByType) -> Wrapper:
    """Time a method that samples, and count the bytes of what it returns or yields."""
    if inspect.isgeneratorfunction(fn):

        @functools.wraps(fn)
        def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
            for batch in fn(self, *args, **kwargs):
                if recording():
                    count("replay_bytes", batch_bytes(batch))
                yield batch

        return timed_method(counted, spans)
    if inspect.iscoroutinefunction(fn):
        return timed_method(fn, spans)

    @functools.wraps(fn)
    def sample(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            if wrappers.is_compiling() or (each := spans[type(self)]) is None:
                return fn(self, *args, **kwargs)
            at = here.at
            depth = at.samples
            at.samples = depth + 1
            try:
                with each:
                    out = fn(self, *args, **kwargs)
                    if not depth and recording():
                        count("replay_bytes", batch_bytes(out))
                    return out
            finally:
                at.samples = depth
        except BaseException as error:
            hide_frame(error)
            raise

    return mark(sample, spans)


def batch_bytes(batch: Any) -> int:
    """Return the bytes of the arrays in a batch: an array, a collection of them, or a list of transitions."""
    try:
        return _batch_bytes(batch)
    except Exception as error:
        if not report_failure("tell how large a batch is", error):
            raise
        return 0


def _batch_bytes(batch: Any) -> int:
    nbytes = getattr(batch, "nbytes", None)
    if isinstance(nbytes, int):
        return nbytes
    if isinstance(batch, dict):
        batch = tuple(batch.values())
    elif not isinstance(batch, (tuple, list)):
        batch = tuple(vars(batch).values()) if hasattr(batch, "__dict__") else ()
    if isinstance(batch, list) and batch and isinstance(batch[0], (tuple, list, dict)):
        # Transitions are alike: one is measured for all.
        return len(batch) * _row_bytes(batch[0])
    return _row_bytes(batch)


def _row_bytes(row: Any) -> int:
    total = 0
    for each in row.values() if isinstance(row, dict) else row:
        nbytes = getattr(each, "nbytes", 0)
        if isinstance(nbytes, int):
            total += nbytes
        elif isinstance(each, dict):
            total += sum(getattr(part, "nbytes", 0) for part in each.values())
    return total


def on_torch(torch: types.ModuleType, patches: Patches) -> None:
    """Let tensors be measured where arrays are."""
    _sized.update({torch.Tensor, torch.nn.Parameter})


SUBJECT = Subject(on_class=on_class, on_import={"torch": on_torch})
