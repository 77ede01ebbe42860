"""The hook of torch's module calls: times the outermost, counts their FLOPs, follows their graphs.

A network of ten layers goes through this wrapper eleven times a forward pass, so a call inside another does next to
nothing. Its cost is added up in the span of the outermost call, from costs measured when recording starts.
"""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING, Any

from hotloop.hook_kinds import Hook
from hotloop.phases import Phase
from hotloop.profiling.recorder.hooks import wrappers
from hotloop.profiling.recorder.hooks.patching import module_of
from hotloop.profiling.recorder.hooks.torch.flops import layer_flops
from hotloop.profiling.recorder.hooks.torch.training_mode import ModeLayers, layers_that_differ, note_mode
from hotloop.profiling.recorder.hooks.wrappers import (
    At,
    Method,
    P,
    R,
    Wrapper,
    class_name,
    dressed,
    hide_frame,
    inspect_calls,
    mark,
    skipped_by_warnings,
)
from hotloop.spans.hot_path import note
from hotloop.spans.registry import Span, counter_code, hook_span, is_live

if TYPE_CHECKING:
    import torch
    from torch import nn

    from hotloop.profiling.recorder.hooks.state import HookState

_FLOPS = counter_code("flops")


class ModuleCosts:
    """What the wrapper takes within the span of an outermost call, in a tight loop, in ns."""

    def __init__(self) -> None:
        self.own_ns = 0.0
        """For the call itself."""
        self.graph_ns = 0.0
        """In addition, where a graph is built."""
        self.inner_ns = 0.0
        """For each call inside it."""


class Kind:
    """Calls of one module with inputs of one shape."""

    __slots__ = ("flops", "graph_ns", "plain_ns")

    def __init__(self, flops: int, inner: int, costs: ModuleCosts) -> None:
        self.flops = flops
        self.plain_ns = costs.own_ns + inner * costs.inner_ns
        """What the wrapper takes within one such call."""
        self.graph_ns = self.plain_ns + costs.graph_ns
        """The same where a graph is built."""


class Seen:
    """What is known of a module."""

    __slots__ = ("differing", "kinds", "module")

    def __init__(self, module: nn.Module, state: HookState) -> None:
        self.module = weakref.ref(module)
        self.differing: ModeLayers = ()
        try:
            self.differing = layers_that_differ(module, state.torch)
        except Exception as error:
            if not state.failures.report("inspect the layers of a module", error):
                raise
        self.kinds: dict[torch.Size | None, Kind] = {}
        """By the shape of the first input; None if that is not a plain tensor."""


class ModuleSpans(dict[type, Span | None]):
    """The spans of module calls, by class. None for a compiled module, which is named after what it holds."""

    def __missing__(self, cls: type) -> Span | None:
        compiled = class_name(cls) == "OptimizedModule" and module_of(cls).startswith("torch.")
        found = self[cls] = None if compiled else self.named(cls)
        return found

    def of(self, compiled: nn.Module) -> Span:
        """Return the span of a compiled module."""
        return self.named(type(compiled._orig_mod))

    def named(self, cls: type) -> Span:
        """Return the span with the name of a class."""
        return hook_span(class_name(cls), Phase.FORWARD, Hook.MODULE)


def calling(fn: Method[nn.Module, P, R], state: HookState, spans: ModuleSpans | None = None) -> Method[nn.Module, P, R]:
    """Time outermost module calls, and `state.depth` - 1 levels below them.

    Args:
        fn: `Module.__call__`.
        state: Of the recording.
        spans: The spans of its calls; new ones by default.
    """
    spans = ModuleSpans() if spans is None else spans
    python = functools.partial(calling_in_python, fn, state, spans)
    if Wrapper is None:
        return python()
    timed, inner, below = looking(fn, state, spans), listing(fn, state, 0), listing(fn, state, 1)
    return dressed(Wrapper(fn, spans, timed, None, state.levels, inner, below), fn, python)


@skipped_by_warnings
def looking(fn: Method[nn.Module, P, R], state: HookState, spans: ModuleSpans) -> Method[nn.Module, P, R]:
    """Return what is done in the span of a module's call: its FLOPs are counted, its mode and graph looked at."""
    here, torch = state.here, state.torch

    def timed(self: nn.Module, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            at = here.at
            seen = state.modules.get(id(self))
            if seen is None or seen.module() is not self:
                seen = state.modules[id(self)] = Seen(self, state)
            if seen.differing:
                note_mode(seen.differing, state.failures)
            first: Any = args[0] if args else None
            shape = first.shape if type(first) is torch.tensor else None
            kind = seen.kinds.get(shape)
            if kind is None:
                out, kind = look_inside(at, state, self, fn, *args, **kwargs)
                seen.kinds[shape] = kind
            else:
                out = fn(self, *args, **kwargs)
            if kind.flops:
                note(_FLOPS, kind.flops)
            each = spans[type(self)] or spans.of(self)
            if not torch.grad_enabled():
                each.within_ns += kind.plain_ns
                return out
            at.graph_flops += kind.flops
            each.within_ns += kind.graph_ns
            return state.graphs.follow(args, out)
        except BaseException as error:
            hide_frame(error)
            raise

    return timed


@skipped_by_warnings
def listing(fn: Method[nn.Module, P, R], state: HookState, untimed: int) -> Method[nn.Module, P, R]:
    """Return what is done in calls within the first of its kind: they are listed with their FLOPs.

    Args:
        fn: `Module.__call__`.
        state: Of the recording.
        untimed: 1 for calls that are not timed themselves, else 0.
    """
    here = state.here

    def inner(self: nn.Module, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            here.at.inner += untimed
            return note_layer(here.at, state, self, fn(self, *args, **kwargs))
        except BaseException as error:
            hide_frame(error)
            raise

    return inner


@skipped_by_warnings
def calling_in_python(
    fn: Method[nn.Module, P, R],
    state: HookState,
    spans: ModuleSpans,
) -> Method[nn.Module, P, R]:
    """Do in Python what `calling` does."""
    here, timed = state.here, looking(fn, state, spans)
    inner, below = listing(fn, state, 0), listing(fn, state, 1)

    @functools.wraps(fn)
    def __call__(self: nn.Module, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            if wrappers.is_compiling():
                return fn(self, *args, **kwargs)
            at = here.at
            level = at.modules
            if level >= state.depth:
                return (fn if at.layers is None else below)(self, *args, **kwargs)
            each = spans[type(self)] or spans.of(self)
            at.modules = level + 1
            try:
                with each:
                    within = timed if not level else fn if at.layers is None else inner
                    return (within if is_live(each) else fn)(self, *args, **kwargs)
            finally:
                at.modules = level
        except BaseException as error:
            hide_frame(error)
            raise

    return mark(__call__)


def look_inside(
    at: At, state: HookState, module: nn.Module, fn: Method[nn.Module, P, R], /, *args: P.args, **kwargs: P.kwargs
) -> tuple[R, Kind]:
    """Make the first call of a kind; find out how many FLOPs and inner calls it has."""
    at.layers, at.inner = layers, _ = [], 0
    inspect_calls(True)
    try:
        out = note_layer(at, state, module, fn(module, *args, **kwargs))
    except BaseException as error:
        hide_frame(error)
        raise
    finally:
        at.layers = None
        inspect_calls(False)
    kind = Kind(sum(flops for _, flops in layers), at.inner, state.module_costs)
    try:
        state.printed.layers.note(module, layers)
    except Exception as error:
        if not state.failures.report("inspect the layers of a module", error):
            raise
    return out, kind


def note_layer(at: At, state: HookState, layer: nn.Module, out: R) -> R:
    """Add a layer's FLOPs to the first call that is being inspected, if one is. Returns `out`."""
    if at.layers is not None:
        at.layers.append((layer, layer_flops(layer, out, state.failures)))
    return out
