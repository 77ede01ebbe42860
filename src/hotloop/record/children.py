"""Child processes record themselves: those that multiprocessing spawns, and those of its fork server.

A spawned interpreter knows nothing of its parent, so its command line is made to start recording first; a fork
server imports this module before it forks. Forked children are caught by `os.register_at_fork`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from multiprocessing import forkserver, spawn, util
from typing import Any

START = "from hotloop.record.children import start_here; start_here(); "


def follow_spawned() -> Callable[[], None]:
    """Change how multiprocessing starts interpreters; return what undoes it."""
    original = spawn.get_command_line

    def get_command_line(**kwargs: Any) -> list[str]:
        words = original(**kwargs)
        place = words.index("-c") + 1 if "-c" in words else None
        if place is not None:
            words[place] = START + words[place]
        return words

    spawn.get_command_line = get_command_line
    server: Any = forkserver._forkserver  # type: ignore[attr-defined]
    before = list(server._preload_modules)
    server._preload_modules = [*before, "hotloop.record.preload"]

    def undo() -> None:
        spawn.get_command_line = original
        server._preload_modules = before

    return undo


def start_here() -> None:
    """Record this process, if it was started by a recorded one."""
    from hotloop.record.session import RUN_VARIABLE, _stop_current, record_child

    path = os.environ.get(RUN_VARIABLE)
    if path:
        record_child(path)
        stop_at_exit(_stop_current)


def stop_at_exit(stop: Callable[[], None]) -> None:
    """Call `stop` when a multiprocessing child ends: it leaves by os._exit, past atexit.

    Its finalizers are cleared when it is bootstrapped, so this one is registered just after that.
    """
    anchor = _Anchor()
    _anchors.append(anchor)
    util.register_after_fork(anchor, lambda _: util.Finalize(None, stop, exitpriority=100))


class _Anchor:
    """Something that multiprocessing can refer to weakly."""


_anchors: list[_Anchor] = []
