"""Hooks for waiting: sleeping, queues, pipes, locks, joins.

Plain thread locks are C objects without a class that could be changed, and are not hooked. The recorder's own threads
wait on plain locks, too, so their waiting is not recorded.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Protocol, TypeVar

from hotloop.phases import Phase
from hotloop.profiling.recorder.hooks.patching import OnImport, Patches, Subject, Target, targets
from hotloop.profiling.recorder.hooks.wrappers import (
    R,
    hide_frame,
    is_wrapper,
    mark,
    skipped_by_warnings,
    timed_function,
)
from hotloop.spans.registry import hook_span

if TYPE_CHECKING:
    from hotloop.profiling.recorder.hooks.state import HookState


class Lock(Protocol):
    """A lock of multiprocessing."""

    acquire: Callable[..., bool]


L = TypeVar("L", bound=Lock)


def _waits(*paths: str) -> OnImport:
    return targets(*(Target(path, Phase.WAIT) for path in paths))


def on_semaphores(module: ModuleType, patches: Patches, state: HookState) -> None:
    """Time the locks of multiprocessing, whose `acquire` is set on each object when it is created."""
    cls = module.SemLock
    for kind in ("Lock", "RLock", "Semaphore", "BoundedSemaphore"):
        hook_span(f"{kind}.acquire", Phase.WAIT)
    if not is_wrapper(cls._make_methods):
        patches.put(cls, "_make_methods", making_methods(cls._make_methods))
    if not is_wrapper(cls.__enter__):
        patches.put(cls, "__enter__", entering(cls.__enter__))
    _waits("Condition.wait", "Event.wait")(module, patches, state)


@skipped_by_warnings
def making_methods(fn: Callable[[L], None]) -> Callable[[L], None]:
    """Time the `acquire` of each new lock."""

    @functools.wraps(fn)
    def make_methods(self: L) -> None:
        try:
            fn(self)
            self.acquire = timed_function(self.acquire, hook_span(f"{type(self).__name__}.acquire", Phase.WAIT))
        except BaseException as error:
            hide_frame(error)
            raise

    return mark(make_methods)


@skipped_by_warnings
def entering(fn: Callable[[L], R]) -> Callable[[L], R]:
    """Time entering a lock's `with`."""

    @functools.wraps(fn)
    def enter(self: L) -> R:
        try:
            with hook_span(f"{type(self).__name__}.acquire", Phase.WAIT):
                return fn(self)
        except BaseException as error:
            hide_frame(error)
            raise

    return mark(enter)


def on_connection(module: ModuleType, patches: Patches, state: HookState) -> None:
    """Time pipes: receiving is waiting, sending is moving data."""
    base = "_ConnectionBase"
    _waits(f"{base}.recv", f"{base}.recv_bytes", f"{base}.poll")(module, patches, state)
    targets(
        Target(f"{base}.send", Phase.TRANSFER),
        Target(f"{base}.send_bytes", Phase.TRANSFER),
        Target("wait", Phase.WAIT, "connection.wait"),
    )(module, patches, state)


SUBJECT = Subject(
    on_import={
        "time": targets(Target("sleep", Phase.WAIT, "time.sleep")),
        "threading": _waits("Event.wait", "Condition.wait", "Barrier.wait", "Thread.join", "Semaphore.acquire"),
        "queue": _waits("Queue.get", "Queue.put", "Queue.join"),
        "multiprocessing.queues": _waits(
            "Queue.get", "Queue.put", "SimpleQueue.get", "SimpleQueue.put", "JoinableQueue.join"
        ),
        "multiprocessing.synchronize": on_semaphores,
        "multiprocessing.connection": on_connection,
        "multiprocessing.process": _waits("BaseProcess.join"),
        "multiprocessing.pool": _waits("ApplyResult.get", "ApplyResult.wait", "IMapIterator.next"),
        "concurrent.futures._base": _waits("Future.result", "wait"),
        "subprocess": _waits("Popen.wait", "Popen.communicate"),
        "ray": targets(Target("get", Phase.WAIT, "ray.get"), Target("wait", Phase.WAIT, "ray.wait")),
    }
)
