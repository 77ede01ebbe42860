"""The hook of torch's module calls: times the outermost, counts their arithmetic, follows up their graphs.

A network of ten layers goes through this wrapper eleven times a forward pass, so a call inside another does next to
nothing. What it does cost is added up in the span of the outermost call, from costs measured when recording starts.
"""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Callable
from typing import Any

from hotloop.hook_kinds import Hook
from hotloop.phases import Phase
from hotloop.profiling.recorder.hooks import wrappers
from hotloop.profiling.recorder.hooks.patching import Subject, module_of
from hotloop.profiling.recorder.hooks.torch.flops import layer_flops
from hotloop.profiling.recorder.hooks.torch.training_mode import layers_that_differ, note_mode
from hotloop.profiling.recorder.hooks.torch.unused_graphs import follow_graph
from hotloop.profiling.recorder.hooks.wrappers import (
    At,
    Wrapper,
    class_name,
    here,
    hide_frame,
    mark,
    report_failure,
    skipped_by_warnings,
    span_of,
)
from hotloop.profiling.recorder.printed_timings.collect import name_layers, note_layers
from hotloop.spans.hot_path import note
from hotloop.spans.registry import Span, counter_code, recording

_FLOPS = counter_code("flops")


class Depth:
    """How many levels of nested module calls are timed. One for all wrappers."""

    modules = 1


class Cost:
    """What the wrapper takes within the span of an outermost call, in a tight loop, in ns. Set by `cost`."""

    own_ns = 0.0
    """For the call itself."""
    graph_ns = 0.0
    """Besides, where a graph is built."""
    inner_ns = 0.0
    """For each call inside it."""


class Kind:
    """Calls of one module with inputs of one shape."""

    __slots__ = ("flops", "graph_ns", "plain_ns")

    def __init__(self, flops: int, inner: int) -> None:
        self.flops = flops
        self.plain_ns = Cost.own_ns + inner * Cost.inner_ns
        """What the wrapper takes within one such call."""
        self.graph_ns = self.plain_ns + Cost.graph_ns
        """The same where a graph is built."""


class Seen:
    """What is known of a module."""

    __slots__ = ("differing", "kinds", "module")

    def __init__(self, module: Any) -> None:
        self.module = weakref.ref(module)
        self.differing: tuple[tuple[Any, int], ...] = ()
        try:
            self.differing = layers_that_differ(module)
        except Exception as error:
            if not report_failure("look at the layers of a module", error):
                raise
        self.kinds: dict[Any, Kind] = {}
        """By the shape of the first input; None where that is no plain tensor."""


class ModuleSpans(dict[type, Span | None]):
    """The spans of module calls, by class. None for a compiled module, which is named by what it holds."""

    def __missing__(self, cls: type) -> Span | None:
        compiled = class_name(cls) == "OptimizedModule" and module_of(cls).startswith("torch.")
        found = self[cls] = None if compiled else span_of(class_name(cls), Phase.FORWARD, Hook.MODULE)
        return found


class Torch:
    """What is known of torch once it is imported."""

    tensor: type | None = None


class Grad:
    """Whether graphs are built now."""

    enabled: Callable[[], bool] = staticmethod(bool)
    """Says no until torch is there."""


grad = Grad()
_seen: dict[int, Seen] = {}


@skipped_by_warnings
def calling(fn: Wrapper, spans: ModuleSpans | None = None, listening: Callable[[], bool] = recording) -> Wrapper:
    """Time outermost module calls, and those of as many levels below as asked for.

    Args:
        fn: `Module.__call__`.
        spans: The spans of its calls, if not new ones.
        listening: Says whether a recorder listens.
    """
    spans = ModuleSpans() if spans is None else spans

    @functools.wraps(fn)
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            if wrappers.is_compiling():
                return fn(self, *args, **kwargs)
            at = here.at
            level = at.modules
            if level >= Depth.modules:
                if at.layers is not None:
                    at.inner += 1
                    return note_layer(at, self, fn(self, *args, **kwargs))
                return fn(self, *args, **kwargs)
            each: Any = spans[type(self)] or spans[type(self._orig_mod)]
            at.modules = level + 1
            try:
                with each:
                    if level:
                        return note_layer(at, self, fn(self, *args, **kwargs))
                    if not listening():
                        return fn(self, *args, **kwargs)
                    seen = _seen.get(id(self))
                    if seen is None or seen.module() is not self:
                        seen = _seen[id(self)] = Seen(self)
                    if seen.differing:
                        note_mode(seen.differing)
                    kind = seen.kinds.get(args[0].shape if args and type(args[0]) is Torch.tensor else None)
                    if kind is None:
                        out, kind = look_inside(at, seen, fn, args, kwargs)
                    else:
                        out = fn(self, *args, **kwargs)
                    if kind.flops:
                        note(_FLOPS, kind.flops)
                    if not grad.enabled():
                        each.within_ns += kind.plain_ns
                        return out
                    at.graph_flops += kind.flops
                    each.within_ns += kind.graph_ns
                    return follow_graph(args, out)
            finally:
                at.modules = level
        except BaseException as error:
            hide_frame(error)
            raise

    return mark(__call__)


def look_inside(at: At, seen: Seen, fn: Wrapper, args: Any, kwargs: Any) -> tuple[Any, Kind]:
    """Make the first call of a kind; learn how much arithmetic and how many inner calls it is."""
    module = seen.module()
    shape = args[0].shape if args and type(args[0]) is Torch.tensor else None
    at.layers, at.inner = layers, _ = [], 0
    try:
        out = note_layer(at, module, fn(module, *args, **kwargs))
    except BaseException as error:
        hide_frame(error)
        raise
    finally:
        at.layers = None
    kind = seen.kinds[shape] = Kind(sum(flops for _, flops in layers), at.inner)
    try:
        name_layers(module)
        note_layers(module, layers)
    except Exception as error:
        if not report_failure("look at the layers of a module", error):
            raise
    return out, kind


def note_layer(at: At, layer: Any, out: Any) -> Any:
    """Add a layer's FLOPs to the first call that is being looked at, if one is. Returns `out`."""
    if at.layers is not None:
        at.layers.append((layer, layer_flops(layer, out)))
    return out


def on_torch(torch: types.ModuleType, patches: Any) -> None:
    """Learn to ask torch whether a backward can follow."""
    grad.enabled = torch.is_grad_enabled
    Torch.tensor = torch.Tensor


SUBJECT = Subject(on_import={"torch": on_torch})
