"""What the hooks' wrappers cost besides the spans in them, in a tight loop: the least that they can cost."""

from __future__ import annotations

from typing import Any

from hotloop import ticks
from hotloop.clock import now_ns
from hotloop.phases import Phase
from hotloop.record.hooks.envs import quick_stepping, stepping
from hotloop.record.hooks.wrappers import SpansByType, timed_method
from hotloop.spans import Span, make_counted


class _Idle(ticks.Core):
    __slots__ = ()
    __enter__ = ticks.Core.idle
    __exit__ = ticks.Core.idle


class _Env:
    def step(self, action: int) -> tuple[float, float, bool, bool, dict[str, Any]]:
        return 0.0, 0.0, False, False, {}


def wrapper_costs_ns(rounds: int = 400) -> tuple[float, float, float]:
    """Return what the wrapper of a method, of an environment's step, and of a library's step add to a call, in ns."""
    spans = SpansByType(_Env, "step", Phase.ENV)
    spans[_Env] = _Idle(1)  # type: ignore[assignment]
    plain = _Env.step
    counted = SpansByType(_Env, "step", Phase.ENV)
    counted[_Env] = probe = Span("probe", Phase.ENV, 1)
    make_counted(probe)
    method, step, quick = timed_method(plain, spans), stepping(plain, spans), quick_stepping(plain, counted)
    least = {fn: float("inf") for fn in (plain, method, step, quick)}
    env = _Env()
    for _ in range(5):
        for fn in least:
            begin = now_ns()
            for _ in range(rounds):
                fn(env, 0)
            least[fn] = min(least[fn], (now_ns() - begin) / rounds)
    made, stepped, quickly = (max(least[fn] - least[plain], 20.0) for fn in (method, step, quick))
    return made, stepped, quickly
