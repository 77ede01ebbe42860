"""The call tracer in Python: the reference for `_functions.c`, and the fallback where there is no C compiler.

It costs ten times as much per call. The time inside the callback is still subtracted, because the clock is read when it
begins and when it ends.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import TYPE_CHECKING

from hotloop.clock import now_ns

if TYPE_CHECKING:
    from hotloop.profiling.recorder.deep.functions import Native

MOST_NODES = 200_000
Key = CodeType | tuple[str | type | None, str]
"""The code of a Python function; the module or class and the name of a native one."""


class Tracer:
    """Counts and times the calls of the thread that starts it."""

    def __init__(self, describe: Callable[[Callable], Native]) -> None:
        self._describe = describe
        self._known: list[CodeType | Native] = []
        self._numbers: dict[Key, int] = {}
        self._places: dict[tuple[int, Key], int] = {}
        self._keys: list[Key | None] = [None]
        self._nodes: list[list[int]] = [[-1, -1, 0, 0]]
        self._open: list[tuple[int, int]] = []
        self._spent_ns = self._begun_ns = self._wall_ns = self._events = self._lost = 0

    def start(self, codes: tuple[CodeType, ...]) -> None:
        """Begin, below the calls that are open: their code, outermost first."""
        at = self._begun_ns = now_ns()
        self._spent_ns = 0
        self._open = [(0, at)]
        for code in codes:
            self._enter(code, code, at, 0)
        sys.setprofile(self._on_event)

    def stop(self) -> None:
        """End; calls that are open end now."""
        if not self._open:
            return
        sys.setprofile(None)
        at = now_ns() - self._spent_ns
        while self._open:
            self._close(at)
        self._wall_ns += at + self._spent_ns - self._begun_ns

    def nodes(self) -> list[tuple[int, int, int, int]]:
        """(parent, function, calls, total_ns) of each node; the root is first."""
        return [(parent, function, calls, total) for parent, function, calls, total in self._nodes]

    def known(self) -> list[CodeType | Native]:
        """Each function: its code, or how it was described."""
        return list(self._known)

    def sums(self) -> tuple[int, int, int, int]:
        """(wall_ns, spent_ns, events, lost)."""
        return self._wall_ns, self._spent_ns, self._events, self._lost

    def _on_event(self, frame: FrameType, event: str, arg: Callable) -> None:
        begin = now_ns()
        at = begin - self._spent_ns
        if event == "call":
            self._enter(frame.f_code, frame.f_code, at, 1)
        elif event == "return":
            self._leave(frame.f_code, at)
        elif event == "c_call":
            self._enter(_native_key(arg), arg, at, 1)
        else:
            self._leave(_native_key(arg), at)
        self._events += 1
        self._spent_ns += now_ns() - begin

    def _enter(self, key: Key, what: CodeType | Callable, at: int, calls: int) -> None:
        parent = self._open[-1][0]
        node = self._places.get((parent, key))
        if node is None:
            if len(self._nodes) >= MOST_NODES:
                self._lost += 1
                return
            if key not in self._numbers:
                self._numbers[key] = len(self._known)
                self._known.append(what if isinstance(what, CodeType) else self._describe(what))
            node = self._places[parent, key] = len(self._nodes)
            self._nodes.append([parent, self._numbers[key], 0, 0])
            self._keys.append(key)
        self._nodes[node][2] += calls
        self._open.append((node, at))

    def _leave(self, key: Key, at: int) -> None:
        """End the innermost open call of this function, and what it left open. One that began before is not ours."""
        depth = len(self._open) - 1
        while depth > 0 and self._keys[self._open[depth][0]] != key:
            depth -= 1
        while depth and len(self._open) > depth:
            self._close(at)

    def _close(self, at: int) -> None:
        node, since = self._open.pop()
        self._nodes[node][3] += at - since


def _native_key(function: Callable) -> Key:
    """Identify a native function: methods bound to different objects are the same."""
    owner = getattr(function, "__self__", None)
    if owner is None or isinstance(owner, type(sys)):
        return getattr(function, "__module__", None), function.__name__
    return owner if isinstance(owner, type) else type(owner), function.__name__
