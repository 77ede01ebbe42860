"""What the hooks' wrappers cost besides the spans in them, in a tight loop: the least that they can cost."""

from __future__ import annotations

from typing import Any

from hotloop import ticks
from hotloop.clock import now_ns
from hotloop.phases import Phase
from hotloop.record.hooks.envs import stepping
from hotloop.record.hooks.wrappers import SpansByType, timed_method


class _Idle(ticks.Core):
    __slots__ = ()
    __enter__ = ticks.Core.idle
    __exit__ = ticks.Core.idle


class _Env:
    def step(self, action: int) -> tuple[float, float, bool, bool, dict[str, Any]]:
        return 0.0, 0.0, False, False, {}


def wrapper_costs_ns(rounds: int = 400) -> tuple[float, float]:
    """Return what the wrapper of a method, and that of an environment's step, add to a call, in ns."""
    spans = SpansByType(_Env, "step", Phase.ENV)
    spans[_Env] = _Idle(1)  # type: ignore[assignment]
    plain = _Env.step
    method, step = timed_method(plain, spans), stepping(plain, spans)
    least = {fn: float("inf") for fn in (plain, method, step)}
    env = _Env()
    for _ in range(5):
        for fn in least:
            begin = now_ns()
            for _ in range(rounds):
                fn(env, 0)
            least[fn] = min(least[fn], (now_ns() - begin) / rounds)
    return max(least[method] - least[plain], 20.0), max(least[step] - least[plain], 20.0)
