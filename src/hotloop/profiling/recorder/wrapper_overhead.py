"""Measures what the hooks' wrappers cost in addition to their spans, in a tight loop. This is a lower bound.

The wrapper of module calls is measured with torch itself, once the script has imported it.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

from hotloop.clock import now_ns
from hotloop.phases import Phase
from hotloop.profiling.recorder.hooks.environments import stepping, stepping_in_python
from hotloop.profiling.recorder.hooks.patching import Patches, Subject
from hotloop.profiling.recorder.hooks.state import HookState
from hotloop.profiling.recorder.hooks.torch import modules
from hotloop.profiling.recorder.hooks.torch.tensors import syncing
from hotloop.profiling.recorder.hooks.wrappers import SpansByType, Wrapper, timed_method
from hotloop.spans.hot_path import Tally
from hotloop.spans.registry import Span, make_counted

if TYPE_CHECKING:
    from torch import Tensor

LEAST_NS = 20.0


class _Env:
    def step(self, action: int) -> tuple[float, float, bool, bool, dict[str, float]]:
        return 0.0, 0.0, False, False, {}


def measure_wrappers(state: HookState, rounds: int = 400) -> None:
    """Measure the time that wrappers add to a call, for those that need no library."""
    spans, counted = SpansByType(_Env, "step", Phase.ENV), SpansByType(_Env, "step", Phase.ENV)
    spans[_Env] = idle = Span("idle", Phase.ENV, 1)
    counted[_Env] = probe = Span("probe", Phase.ENV, 1)
    make_counted(probe)
    plain = _Env.step
    methods = (
        plain,
        timed_method(plain, spans),
        stepping_in_python(plain, spans, state),
        stepping(plain, counted, state),
    )
    base, method, step, quick = _least_ns([(fn, _Env(), 0) for fn in methods], rounds)
    digit = str.isdigit
    bare, tallied = _least_ns([(fn, "1") for fn in (digit, syncing(digit, Tally("probe", 0), state))], rounds)
    empty_ns = _with_ns(idle, rounds)
    state.wrapper_ns.update(
        wrap_ns=max(method - base - (empty_ns if Wrapper is None else 0.0), LEAST_NS),
        step_wrap_ns=max(step - base - empty_ns, LEAST_NS),
        quick_wrap_ns=max(quick - base, LEAST_NS),
        tally_wrap_ns=max(tallied - bare, LEAST_NS),
    )


def measure_modules(torch: ModuleType, state: HookState, rounds: int = 200) -> None:
    """Measure the time that the wrapper of module calls adds around its span and within it."""
    module, given = torch.nn.Identity(), torch.empty(1)
    plain = torch.nn.Module._wrapped_call_impl
    spans = modules.ModuleSpans({type(module): Span("idle", Phase.FORWARD, 1)})
    scratch = HookState(state.depth)
    scratch.torch.use(torch)
    around, within = modules.calling(plain, scratch, spans), modules.looking(plain, scratch, spans)
    below = modules.calling(plain, HookState(0), spans)

    def follow(given: Tensor) -> Tensor:
        return scratch.graphs.follow((given,), given)

    def pass_on(given: Tensor) -> Tensor:
        return given

    with torch.no_grad():
        base, outer, inside, inner = _least_ns([(fn, module, given) for fn in (plain, around, within, below)], rounds)
        following, passed = _least_ns([(fn, given) for fn in (follow, pass_on)], rounds)
    state.module_costs.own_ns = inside - base
    state.module_costs.graph_ns = max(following - passed, 0.0)
    state.module_costs.inner_ns = max(inner - base, 0.0)
    state.wrapper_ns["module_wrap_ns"] = max(outer - base, LEAST_NS)


def _with_ns(idle: Span, rounds: int) -> float:
    """Return the time of a `with` statement over an inactive span: part of the span's cost, not of the wrapper's."""

    def enter(each: Span) -> None:
        with each:
            pass

    def leave(each: Span) -> None:
        pass

    inside, outside = _least_ns([(fn, idle) for fn in (enter, leave)], rounds)
    return max(inside - outside, 0.0)


def _least_ns(calls: list[tuple], rounds: int) -> list[float]:
    """Return the shortest time of each call: (function, *arguments)."""
    least = [float("inf")] * len(calls)
    for _ in range(5):
        for i, (fn, *args) in enumerate(calls):
            begin = now_ns()
            for _ in range(rounds):
                fn(*args)
            least[i] = min(least[i], (now_ns() - begin) / rounds)
    return least


def on_torch(torch: ModuleType, patches: Patches, state: HookState) -> None:
    """Measure the cost of the hooks for torch when torch is imported, before the script creates a network."""
    measure_modules(torch, state)


SUBJECT = Subject(on_import={"torch": on_torch})
