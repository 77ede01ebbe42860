"""What the hooks' wrappers cost besides the spans in them, in a tight loop: the least that they can cost.

The wrapper of module calls is measured on torch itself, once the script has imported it.
"""

from __future__ import annotations

import types
from typing import Any

from hotloop.clock import now_ns
from hotloop.phases import Phase
from hotloop.profiling.recorder.hooks.environments import quick_stepping, stepping
from hotloop.profiling.recorder.hooks.patching import Patches, Subject
from hotloop.profiling.recorder.hooks.torch import modules
from hotloop.profiling.recorder.hooks.torch.tensors import syncing
from hotloop.profiling.recorder.hooks.torch.unused_graphs import follow_graph
from hotloop.profiling.recorder.hooks.wrappers import SpansByType, here, timed_method
from hotloop.spans import hot_path
from hotloop.spans.registry import Span, make_counted

LEAST_NS = 20.0
costs_ns: dict[str, float] = {}
"""What each kind of wrapper adds to a call around its span, in ns, by its name in a recorder's state."""


class _Idle(hot_path.Core):
    __slots__ = ("within_ns",)
    __enter__ = staticmethod(hot_path.idle)
    __exit__ = staticmethod(hot_path.idle)


class _Env:
    def step(self, action: int) -> tuple[float, float, bool, bool, dict[str, Any]]:
        return 0.0, 0.0, False, False, {}


def measure_wrappers(rounds: int = 400) -> None:
    """Find out what the wrappers that need no library add to a call: write it into `costs_ns`."""
    spans = SpansByType(_Env, "step", Phase.ENV)
    spans[_Env] = idle = _Idle(1)  # type: ignore[assignment]
    plain = _Env.step
    counted = SpansByType(_Env, "step", Phase.ENV)
    counted[_Env] = probe = Span("probe", Phase.ENV, 1)
    make_counted(probe)
    methods = (plain, timed_method(plain, spans), stepping(plain, spans), quick_stepping(plain, counted))
    base, method, step, quick = _least_ns([(fn, _Env(), 0) for fn in methods], rounds)
    digit, bump = str.isdigit, hot_path.Tally("probe", 0).bump
    bare, tallied = _least_ns([(fn, "1") for fn in (digit, syncing(digit, bump))], rounds)
    empty_ns = _with_ns(idle, rounds)
    costs_ns.update(
        wrap_ns=max(method - base - empty_ns, LEAST_NS),
        step_wrap_ns=max(step - base - empty_ns, LEAST_NS),
        quick_wrap_ns=max(quick - base, LEAST_NS),
        tally_wrap_ns=max(tallied - bare, LEAST_NS),
    )


def measure_modules(torch: types.ModuleType, rounds: int = 200) -> None:
    """Find out what the wrapper of module calls adds around a span and takes within it."""
    module, given = torch.nn.Identity(), torch.empty(1)
    plain = torch.nn.Module._wrapped_call_impl
    idle: Any = _Idle(1)
    idle.within_ns = 0.0
    spans = modules.ModuleSpans({type(module): idle})
    deaf, listening = (modules.calling(plain, spans, lambda hears=hears: hears) for hears in (False, True))

    def follow(given: Any) -> Any:
        return follow_graph((given,), given)

    def pass_on(given: Any) -> Any:
        return given

    at = here.at
    level, at.modules = at.modules, 0
    try:
        with torch.no_grad():
            base, around, whole = _least_ns([(fn, module, given) for fn in (plain, deaf, listening)], rounds)
            following, passed = _least_ns([(fn, given) for fn in (follow, pass_on)], rounds)
            at.modules = modules.Depth.modules
            bare, below = _least_ns([(fn, module, given) for fn in (plain, listening)], rounds)
    finally:
        at.modules = level
    modules.Cost.own_ns = whole - around
    modules.Cost.graph_ns = max(following - passed, 0.0)
    modules.Cost.inner_ns = max(below - bare, 0.0)
    costs_ns["module_wrap_ns"] = max(around - base - _with_ns(idle, rounds), LEAST_NS)


def _with_ns(idle: Any, rounds: int) -> float:
    """What a span that does nothing adds to a function: this is part of what a span costs, and not a wrapper's."""

    def enter(each: Any) -> None:
        with each:
            pass

    def leave(each: Any) -> None:
        pass

    inside, outside = _least_ns([(fn, idle) for fn in (enter, leave)], rounds)
    return max(inside - outside, 0.0)


def _least_ns(calls: list[tuple[Any, ...]], rounds: int) -> list[float]:
    """Return what each of some calls, (function, *arguments), takes at best."""
    least = [float("inf")] * len(calls)
    for _ in range(5):
        for i, (fn, *args) in enumerate(calls):
            begin = now_ns()
            for _ in range(rounds):
                fn(*args)
            least[i] = min(least[i], (now_ns() - begin) / rounds)
    return least


def on_torch(torch: types.ModuleType, patches: Patches) -> None:
    """Measure on torch what its hooks cost, before the script makes its first network."""
    measure_modules(torch)


SUBJECT = Subject(on_import={"torch": on_torch})
