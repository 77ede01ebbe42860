"""The cost of a span in a tight loop, measured in the recorded process: a lower bound of its real cost."""

from __future__ import annotations

import functools

from hotloop.clock import now_ns
from hotloop.spans import hot_path


@functools.cache
def tight_loop_ns(rounds: int = 500) -> float:
    """Return the cost of a span in a tight loop, in ns, which is a lower bound of its real cost.

    Call it while nothing is recording, because it discards the logs. The result is cached; forked children inherit it.
    """

    def nothing() -> None:
        return None

    probe = _Probe(1)
    hot_path.listen()
    try:
        span_ns = min(_loop(lambda: _enter(probe), rounds) - _loop(nothing, rounds) for _ in range(5))
    finally:
        hot_path.listen()
    return max(span_ns, 50.0)


class _Probe(hot_path.Core):
    __slots__ = ()
    __enter__ = hot_path.Core.start
    __exit__ = hot_path.Core.finish


def _enter(probe: _Probe) -> None:
    with probe:
        pass


def _loop(fn: object, rounds: int) -> float:
    begin = now_ns()
    for _ in range(rounds):
        fn()  # type: ignore[operator]
    return (now_ns() - begin) / rounds
