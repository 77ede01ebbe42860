"""Child processes of multiprocessing record themselves: forked ones, spawned ones, and those of its fork server.

A child of multiprocessing starts by running after-fork functions: one of them starts the recording. A spawned
interpreter inherits nothing from its parent, so its command line is changed to start recording first; a fork server
imports `fork_server_preload` before it forks. A child of a plain `os.fork` is not recorded: most of those exit or exec
at once. The environment variables are changed only while a fork server starts.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import TYPE_CHECKING

from hotloop.profiling.recorder.options import RecordOptions

if TYPE_CHECKING:
    from hotloop.profiling.recorder.hooks.patching import Patches

SERVER_VARIABLE = "HOTLOOP_CHILDREN"


@dataclass(frozen=True, slots=True)
class Settings:
    """What a child process needs to know to record itself."""

    path: str
    """The run directory."""
    options: RecordOptions
    modules: int | None
    """Levels of nested torch module calls that hooks time; None for no hooks."""

    def text(self) -> str:
        """Return them as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Settings:
        """Return what `text` gave."""
        content = json.loads(text)
        return cls(content["path"], RecordOptions(**content["options"]), content["modules"])

    def program(self) -> str:
        """Return the Python statements by which a new interpreter starts to record itself."""
        return f"from hotloop.profiling.recorder.child_processes import start_here; start_here({self.text()!r}); "


def follow_spawned(settings: Settings) -> Callable[[], None]:
    """Change how multiprocessing starts interpreters, now or when it is imported; return a function that undoes it."""
    from hotloop.profiling.recorder.hooks.patching import ImportWatch, Patches

    patches = Patches()
    anchors: list[_Anchor] = []
    changes: dict[str, Callable[[ModuleType], None]] = {
        "multiprocessing.util": lambda module: _add_after_fork(module, settings, anchors),
        "multiprocessing.spawn": lambda module: _change_spawn(module, settings, patches),
        "multiprocessing.forkserver": lambda module: _change_fork_server(module, settings, patches),
    }
    watch = ImportWatch(changes, lambda module: changes[module.__name__](module))
    for name, change in changes.items():
        if name in sys.modules:
            change(sys.modules[name])
    sys.meta_path.insert(0, watch)

    def undo() -> None:
        if watch in sys.meta_path:
            sys.meta_path.remove(watch)
        patches.restore()
        anchors.clear()

    return undo


def _change_spawn(spawn: ModuleType, settings: Settings, patches: Patches) -> None:
    original = spawn.get_command_line

    def get_command_line(**kwargs: int) -> list[str]:
        words = original(**kwargs)
        if "-c" in words:
            place = words.index("-c") + 1
            words[place] = settings.program() + words[place]
        return words

    patches.put(spawn, "get_command_line", get_command_line)


def _change_fork_server(forkserver: ModuleType, settings: Settings, patches: Patches) -> None:
    server = forkserver._forkserver
    ensure_running = server.ensure_running

    def start() -> None:
        before = server._preload_modules
        os.environ[SERVER_VARIABLE] = settings.text()
        server._preload_modules = [*before, "hotloop.profiling.recorder.fork_server_preload"]
        try:
            ensure_running()
        finally:
            server._preload_modules = before
            os.environ.pop(SERVER_VARIABLE, None)

    patches.put(server, "ensure_running", start)
    # The module also binds this method to a name.
    patches.put(forkserver, "ensure_running", start)


class _Anchor:
    """Keeps an after-fork function registered: multiprocessing refers to it weakly."""


def _add_after_fork(util: ModuleType, settings: Settings, anchors: list[_Anchor]) -> None:
    def start(_: _Anchor) -> None:
        from hotloop.profiling.recorder.session import record_child, stop_current

        record_child(settings)
        # A forked child leaves by os._exit, which skips atexit but runs finalizers.
        util.Finalize(None, stop_current, exitpriority=100)

    anchors.append(_Anchor())
    util.register_after_fork(anchors[-1], start)


def start_here(settings: str) -> None:
    """Record this process, which a recorded one started."""
    from hotloop.profiling.recorder.session import record_child

    record_child(Settings.read(settings))
