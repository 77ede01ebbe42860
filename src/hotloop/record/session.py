"""A recording of this process and of the processes it starts, into one run directory.

The main process makes the directory and its manifest. A process that is forked, spawned or comes from a fork
server finds the directory in its environment and records itself beside the others. All share one monotonic
clock; each process also notes what wall-clock time its start was, for systems where that clock is not shared.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from hotloop import spans
from hotloop.clock import now_ns, wall_ns
from hotloop.errors import HotloopError
from hotloop.record.machine import describe_machine, library_versions
from hotloop.record.memory import cuda_in_use
from hotloop.record.options import RecordOptions
from hotloop.record.privacy import redacted, redacted_command
from hotloop.record.recorder import Recorder
from hotloop.trace.model import FORMAT_VERSION
from hotloop.trace.store import write_json

RUN_VARIABLE = "HOTLOOP_RUN"
OPTIONS_VARIABLE = "HOTLOOP_OPTIONS"
HOOKS_VARIABLE = "HOTLOOP_HOOKS"
INTERRUPTED, ENDED = 130, 143
"""Exit codes of a program that Ctrl-C or SIGTERM ended, as shells have them."""


@dataclass(slots=True)
class _Current:
    session: Session | None = None
    at_fork_registered: bool = False


_current = _Current()


class Session:
    """One process's part of a run. Use `record()`; this is what it returns."""

    def __init__(self, path: Path, options: RecordOptions, main: bool) -> None:
        self.path = path
        self.options = options
        self.main = main
        self.recorder: Recorder | None = None
        self._started_ns = now_ns()
        self._undo: list[Callable[[], None]] = []

    def start(self, manifest: Mapping[str, Any], hooks: bool) -> None:
        """Begin to record, or warn and do nothing if the directory cannot be written."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if self.main:
                write_json(self.path / "run.json", dict(manifest))
            folder = self.path / f"{os.getpid()}-{now_ns() % 10**9:09d}"
            self.recorder = Recorder(folder, self.options)
            write_json(folder / "process.json", _describe_process(self.main))
        except OSError as error:
            warnings.warn(f"hotloop cannot write to {self.path} ({error}): training goes on unrecorded.", stacklevel=3)
            return
        if hooks:
            from hotloop.record.hooks import install
            from hotloop.record.hooks.cost import costs_ns, measure_wrappers

            measure_wrappers()
            self.recorder.wrapper_ns = costs_ns
            depth = int(os.environ.get(HOOKS_VARIABLE, "1") or 1)
            if self.main and self.options.looks_closer:
                from hotloop.record.tracing import prepare

                self._undo.append(prepare(depth, self.options))
            self._undo.append(install(modules_depth=depth))
        _follow_children(self, hooks)
        self.recorder.start()
        if self.main and self.options.looks_closer:
            from hotloop.record.tracing import follow

            self._undo.append(follow(self.recorder, folder, self.options))
        atexit.register(self._stop_at_exit)
        _current.session = self

    def stop(self, exit_code: int = 0) -> None:
        """Stop recording and complete the run's files. Safe to call twice.

        Args:
            exit_code: How the program that was recorded ended: 0 well, 130 by Ctrl-C, else by an error.
        """
        atexit.unregister(self._stop_at_exit)
        if _current.session is self:
            _current.session = None
        while self._undo:
            self._undo.pop()()
        recorder, self.recorder = self.recorder, None
        if recorder is None:
            return
        recorder.stop()
        if self.main:
            self._finish_manifest(exit_code, recorder.failure)

    def _stop_at_exit(self) -> None:
        # Python keeps here the error that ended a script. A console keeps any error there that it has shown.
        self.stop(0 if hasattr(sys, "ps1") else exit_code_of(getattr(sys, "last_value", None)))

    def _finish_manifest(self, exit_code: int, failure: str) -> None:
        path = self.path / "run.json"
        try:
            manifest = json.loads(path.read_text(encoding="utf-8"))
            seconds = (now_ns() - self._started_ns) / 1e9
            if (cuda := cuda_in_use()) is not None:
                manifest["machine"]["gpu"] = cuda.get_device_name()
            manifest |= {
                "state": {0: "finished", INTERRUPTED: "interrupted", ENDED: "interrupted"}.get(exit_code, "failed"),
                "exit_code": exit_code,
                "ended_unix_ns": wall_ns(),
                "seconds": seconds,
                "torch": _torch_threads(),
            } | ({"recorder_failed": failure} if failure else {})
            write_json(path, manifest)
        except (OSError, ValueError, KeyError) as error:
            if failure:
                return  # that was one warning already
            warnings.warn(f"hotloop could not complete {path}: {error}", stacklevel=2)

    def abandon(self) -> None:
        """In a forked child: forget the parent's recorder without touching its files."""
        self.recorder = None
        self._undo.clear()
        atexit.unregister(self._stop_at_exit)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop(exit_code_of(error))


def exit_code_of(error: BaseException | None) -> int:
    """Return the exit code of a program that an error ends; 0 for none."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    return int(error is not None)


def record(
    path: str | os.PathLike[str] | None = None,
    *,
    options: RecordOptions | None = None,
    hooks: bool = False,
    config: Mapping[str, object] | None = None,
    command: list[str] | None = None,
) -> Session:
    """Record from here on, until the returned session is stopped or its `with` block is left.

    Args:
        path: The run directory; `runs/<time>-<name>` if not given. Must be new or empty.
        options: What to record, and at what cost.
        hooks: Also time what Gymnasium, torch and other libraries do, without a change to the script.
        config: The run's configuration, kept in its manifest (what looks secret is not).
        command: The command line to note, if it is not this process's own.
    """
    if _current.session is not None:
        raise HotloopError(f"already recording into {_current.session.path}: stop it before starting another")
    words = command or sys.argv
    target = Path(path) if path is not None else default_path(words)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise HotloopError(
            f"{target} is not an empty directory: choose another (--out DIR, or the path given to record), or remove it"
        )
    session = Session(target.absolute(), options or RecordOptions(), main=True)
    manifest = {
        "format": FORMAT_VERSION,
        "name": target.name,
        "state": "running",
        "started_unix_ns": wall_ns(),
        "pid": os.getpid(),
        "process_create_time": psutil.Process().create_time(),
        "command": redacted_command(words),
        "config": redacted(dict(config or {})),
        "options": asdict(session.options),
        "machine": describe_machine(),
        "versions": library_versions(),
        "hooks": hooks,
    }
    session.start(manifest, hooks)
    return session


def record_child(path: str) -> None:
    """Record a child process of a recorded one, if its run directory is still there."""
    options = RecordOptions(**json.loads(os.environ.get(OPTIONS_VARIABLE, "{}")))
    if Path(path).is_dir():
        Session(Path(path), options, main=False).start({}, hooks=HOOKS_VARIABLE in os.environ)


def default_path(words: list[str]) -> Path:
    """`runs/<time>-<name of the script>`, never one that is there already."""
    name = Path(words[0] if words else "run").stem or "run"
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    path = Path("runs") / f"{stamp}-{name}"
    number = 1
    while path.exists():
        number += 1
        path = Path("runs") / f"{stamp}-{name}-{number}"
    return path


def _describe_process(main: bool) -> dict[str, Any]:
    return {
        "pid": os.getpid(), "parent_pid": os.getppid(), "main": main,
        "clock_ns": now_ns(), "wall_ns": wall_ns(), "argv": redacted_command(sys.argv),
    }  # fmt: skip


def _torch_threads() -> dict[str, Any] | None:
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    threads = {"threads": torch.get_num_threads(), "interop_threads": torch.get_num_interop_threads()}
    hooks = sys.modules.get("hotloop.record.hooks.torch_hooks")
    gradients = sys.modules.get("hotloop.record.hooks.gradients")
    dropped = gradients.dropped_at.most_common(1) if gradients else []
    return (
        threads
        | ({"set_at": hooks.threads_set_at} if hooks and hooks.threads_set_at else {})
        | ({"gradients_dropped_at": dropped[0][0]} if dropped else {})
    )


def _follow_children(session: Session, hooks: bool) -> None:
    """Make processes started from here on record themselves into the same run."""
    os.environ[RUN_VARIABLE] = str(session.path)
    os.environ[OPTIONS_VARIABLE] = json.dumps(asdict(session.options))
    if hooks:
        os.environ.setdefault(HOOKS_VARIABLE, "1")
    if session.main:
        from hotloop.record.children import follow_spawned

        session._undo.append(follow_spawned())
        session._undo.append(_forget_run)
    if not _current.at_fork_registered and hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_forked_child)
        _current.at_fork_registered = True


def _forget_run() -> None:
    for name in (RUN_VARIABLE, OPTIONS_VARIABLE, HOOKS_VARIABLE):
        os.environ.pop(name, None)


def _before_fork() -> None:
    if _current.session and _current.session.recorder:
        _current.session.recorder.fork_lock().acquire()


def _after_fork() -> None:
    if _current.session and _current.session.recorder:
        _current.session.recorder.fork_lock().release()


def _in_forked_child() -> None:
    parent, _current.session = _current.session, None
    if parent is None or parent.recorder is None:
        return
    parent.recorder.forget()
    parent.abandon()
    spans.hush()
    spans.after_fork()
    path = os.environ.get(RUN_VARIABLE)
    if path:
        record_child(path)
        from hotloop.record.children import stop_at_exit

        stop_at_exit(_stop_current)


def _stop_current() -> None:
    if _current.session is not None:
        _current.session.stop()
