"""Makes child processes of multiprocessing record themselves: forked, spawned, and those of its fork server.

A forked child of multiprocessing first runs after-fork functions, and one of these starts the recording. A spawned
interpreter inherits nothing from its parent, so we change its command line to start recording first. A fork server
imports `fork_server_preload` before it forks. A child of a plain `os.fork` is not recorded, because most of those exit
or call exec at once. Environment variables are changed only while a fork server starts.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import TYPE_CHECKING

from hotloop.profiling.recorder.record_options import RecordOptions

if TYPE_CHECKING:
    from hotloop.profiling.recorder.hooks.patching import Patches

SERVER_VARIABLE = "HOTLOOP_CHILDREN"


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings with which a child process records itself."""

    path: str
    """The run directory."""
    options: RecordOptions
    modules: int | None
    """Levels of nested torch module calls that hooks time; None for no hooks."""

    def text(self) -> str:
        """Return the settings as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Settings:
        """Return settings from the JSON that `text` returned."""
        content = json.loads(text)
        return cls(content["path"], RecordOptions(**content["options"]), content["modules"])

    def program(self) -> str:
        """Return the Python statements with which a new interpreter starts to record itself."""
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
    # The module also has the method as a function.
    patches.put(forkserver, "ensure_running", start)


class _Anchor:
    """Keeps an after-fork function registered: multiprocessing refers to it weakly."""


def _add_after_fork(util: ModuleType, settings: Settings, anchors: list[_Anchor]) -> None:
    def start(_: _Anchor) -> None:
        from hotloop.profiling.recorder.session import record_child, stop_current

        record_child(settings)
        # A forked child of multiprocessing ends with os._exit, which skips atexit. It runs finalizers before that.
        util.Finalize(None, stop_current, exitpriority=100)

    anchors.append(_Anchor())
    util.register_after_fork(anchors[-1], start)


def start_here(settings: str) -> None:
    """Start to record this process. Called in a spawned interpreter, with settings as JSON."""
    from hotloop.profiling.recorder.session import record_child

    record_child(Settings.read(settings))
