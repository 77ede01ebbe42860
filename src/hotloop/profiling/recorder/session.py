"""A recording of this process and of the processes it starts, into one run directory.

The main process claims the directory. Processes that are forked, spawned or started by a fork server record themselves
into the same directory. All share one monotonic clock. Each process also stores the wall-clock time of its start, for
systems on which the monotonic clock is not shared.
"""

from __future__ import annotations

import atexit
import os
import shlex
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from hotloop.clock import now_ns
from hotloop.default_run_path import default_path
from hotloop.errors import HotloopError, exit_code_of
from hotloop.files import make_private
from hotloop.json_types import Json
from hotloop.notice import notice
from hotloop.profiling.recorder.child_processes import Settings, follow_spawned
from hotloop.profiling.recorder.device import cuda_in_use
from hotloop.profiling.recorder.record_options import RecordOptions
from hotloop.profiling.recorder.remote_recorder import RemoteRecorder
from hotloop.spans import hot_path, registry

if TYPE_CHECKING:
    from hotloop.profiling.recorder.hooks.state import HookState
    from hotloop.profiling.recorder.thread_recorder import ThreadRecorder

    Recorder = RemoteRecorder | ThreadRecorder

MANIFEST = "run.json"


@dataclass(slots=True)
class _Current:
    session: Session | None = None
    at_fork_registered: bool = False


_current = _Current()


class Session:
    """One process's part of a run. Use `record()`; this is what it returns.

    Args:
        path: The run directory, which must exist.
        options: What to record, and at what cost.
        modules: Levels of nested torch module calls that hooks time; None for no hooks at all.
        main: Whether this is the main process of the run.
    """

    def __init__(self, path: Path, options: RecordOptions, modules: int | None, main: bool = True) -> None:
        self.path = path
        self.options = options
        self.main = main
        self.announced_as = ""
        """The run directory as the user wrote it, for the message at the end of the process; empty for no message."""
        self.recorder: Recorder | None = None
        self._modules = modules
        self._hook_state: HookState | None = None
        self._started_ns = now_ns()
        self._undo: list[Callable[[], None]] = []

    def start(self, companion_runs: bool = False) -> None:
        """Start to record. If that is not possible, only print the reason.

        Args:
            companion_runs: Whether the run's companion has been started already.
        """
        atexit.register(self._stop_at_exit)
        folder = self.path / f"{os.getpid()}-{now_ns() % 10**9:09d}"
        try:
            self.recorder = new_recorder(self.path, folder, self.options, self.main)
            if self._modules is not None:
                self._install_hooks(self._modules, self.recorder)
            self._follow_children()
            self.recorder.start(companion_runs or not self.main)
        except OSError as error:
            self._give_up()
            if self.main:
                notice(f"cannot record into {self.path} ({error}): training continues without recording")
            return
        if self.main and self.options.looks_closer:
            from hotloop.profiling.recorder.deep.schedule import follow

            make_private(folder)
            self._undo.append(follow(self.recorder, folder, self.options, self._hook_state))
        _current.session = self

    def _give_up(self) -> None:
        while self._undo:
            self._undo.pop()()
        self.recorder = None
        registry.hush()

    def _install_hooks(self, modules: int, recorder: Recorder) -> None:
        from hotloop.profiling.recorder.hooks import install, new_state
        from hotloop.profiling.recorder.wrapper_overhead import measure_wrappers

        state = self._hook_state = new_state(modules)
        if not state.wrapper_ns:  # A forked child inherits them from its parent.
            measure_wrappers(state)
        state.recorder, recorder.wrapper_ns = recorder.send, state.wrapper_ns
        if self.main and self.options.looks_closer:
            from hotloop.profiling.recorder.deep.schedule import prepare

            prepare(state, self.options)
        self._undo.append(install(state))

    def _follow_children(self) -> None:
        """Make processes that start from now on record themselves into the same run."""
        settings = Settings(str(self.path), self.options, self._modules)
        registry.child_program = settings.program()
        self._undo += [follow_spawned(settings), _forget_children]
        if not _current.at_fork_registered and hasattr(os, "register_at_fork"):
            os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_forked_child)
            _current.at_fork_registered = True

    def flush(self) -> bool:
        """Write everything recorded so far; return False while a deep sample has paused the recording."""
        return self.recorder is None or self.recorder.flush()

    def stop(self, exit_code: int = 0) -> None:
        """Stop recording and complete the run's files. Safe to call twice.

        Args:
            exit_code: Exit code of the recorded program: 0 for success, 130 after Ctrl-C, others for an error.
        """
        atexit.unregister(self._stop_at_exit)
        if _current.session is self:
            _current.session = None
        while self._undo:
            self._undo.pop()()
        recorder, self.recorder = self.recorder, None
        if recorder is None:
            return
        position = recorder.stop({"exit_code": exit_code, "changes": self._facts()} if self.main else None)
        if not self.main:
            return
        # A failure of the recorder or of completing the manifest has been reported already, unless it was killed.
        position = position or self._finish_manifest(exit_code, recorder.failure)
        if self.announced_as and position:
            hot_path.note_exit_code(os.fsencode(self.path / MANIFEST), position)
        if self.announced_as and position and not recorder.failure:
            notice(f"recorded {self.announced_as}. Next: hotloop explain {shlex.quote(self.announced_as)}")

    def _stop_at_exit(self) -> None:
        # `sys.last_value` is the error that ended the script. In a console it is the last error shown: ignore it there.
        try:
            self.stop(0 if hasattr(sys, "ps1") else exit_code_of(getattr(sys, "last_value", None)))
        except Exception as error:  # At exit, the script may have replaced or cleared anything that this needs.
            notice(f"could not complete {self.path}: {error!r}")

    def _facts(self) -> dict[str, Json]:
        """Return what is known of the run at its end, for the manifest."""
        changes: dict[str, Json] = {
            "seconds": (now_ns() - self._started_ns) / 1e9,
            "torch": _torch_facts(self._hook_state),
        }
        if (cuda := cuda_in_use()) is not None:
            changes["machine"] = {"gpu": cuda.get_device_name()}
        return changes

    def _finish_manifest(self, exit_code: int, failure: str) -> int:
        """Complete the manifest in this process, if nobody else has; return the position of the exit code, or 0."""
        from hotloop.profiling.recorder.manifest import finish
        from hotloop.profiling.recorder.privacy.redact_text import redacted_text

        changes = self._facts()
        if failure:
            changes["recorder_failed"] = redacted_text(failure)
        try:
            return finish(self.path, exit_code, changes)[1]
        except (OSError, ValueError) as error:
            if not failure:
                notice(f"could not complete {self.path}: {error}")
            return 0

    def abandon(self) -> None:
        """In a forked child: drop the parent's recorder without touching its files."""
        self.recorder = None
        self._undo.clear()
        atexit.unregister(self._stop_at_exit)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop(exit_code_of(error))


def new_recorder(run: Path, folder: Path, options: RecordOptions, main: bool) -> Recorder:
    """Return what records this process: another process, or a thread if the C extensions were not built."""
    if hot_path.ACCELERATED:
        return RemoteRecorder(run, folder, options, main)
    from hotloop.profiling.recorder.thread_recorder import ThreadRecorder

    return ThreadRecorder(run, folder, options, main)


def record(
    path: str | os.PathLike[str] | None = None,
    *,
    options: RecordOptions | None = None,
    hooks: bool = False,
    config: Mapping[str, object] | None = None,
    command: list[str] | None = None,
    counts_before: Mapping[str, int] | None = None,
) -> Session:
    """Record from now on, until the returned session is stopped or its `with` block ends.

    Args:
        path: The run directory; `runs/<time>-<name>` if not given. Must be new or empty.
        options: What to record, and at what cost.
        hooks: Also time calls of Gymnasium, torch and other libraries, without a change to the script.
        config: The run's configuration, stored in its manifest, with secrets redacted.
        command: The command line to store, if it is not this process's own.
        counts_before: Counts of the run that this one resumes, by counter: `env_steps`, `updates`, ...
    """
    if _current.session is not None:
        raise HotloopError(f"already recording into {_current.session.path}: stop it before starting another")
    words = command or sys.argv
    chosen = options or RecordOptions()
    modules = 1 if hooks else None
    from hotloop.profiling.recorder.manifest import claim, describe_run

    manifest = describe_run(words, chosen, config, hooks) | {"counts_before": dict(counts_before or {})}
    try:
        target = claim(path, manifest, words)
    except OSError as error:
        where = Path(path) if path is not None else default_path(words)
        notice(f"cannot write to {where} ({error}): training continues without recording")
        return Session(where.absolute(), chosen, modules)
    session = Session(target, chosen, modules)
    session.start()
    return session


def record_child(settings: Settings) -> None:
    """Record this child of a recorded process, if the run directory still exists."""
    if _current.session is None and Path(settings.path).is_dir():
        Session(Path(settings.path), settings.options, settings.modules, main=False).start()


def current_path() -> Path | None:
    """Return the run directory into which this process is recording, or None."""
    return _current.session.path if _current.session is not None else None


def _torch_facts(state: HookState | None) -> dict[str, Json] | None:
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "get_num_threads"):
        return None  # Not imported, or a module of the script's own.
    facts: dict[str, Json] = {"threads": torch.get_num_threads(), "interop_threads": torch.get_num_interop_threads()}
    if state is not None and state.threads_set_at is not None:
        facts["set_at"] = state.threads_set_at
    if state is not None and (dropped := state.gradients.dropped_at.most_common(1)):
        facts["gradients_dropped_at"] = dropped[0][0]
    return facts


def _forget_children() -> None:
    registry.child_program = ""


def _before_fork() -> None:
    if (working := _working()) is not None:
        working.acquire()


def _after_fork() -> None:
    if (working := _working()) is not None:
        working.release()


def _working() -> threading.Lock | None:
    """Return the lock that a recorder in this process holds while it works."""
    recorder = _current.session.recorder if _current.session is not None else None
    return None if recorder is None or isinstance(recorder, RemoteRecorder) else recorder.working


def _in_forked_child() -> None:
    parent, _current.session = _current.session, None
    if parent is None or parent.recorder is None:
        return
    parent.recorder.forget()
    parent.abandon()
    registry.hush()
    registry.after_fork()


def stop_current() -> None:
    """End this process's recording, if there is one."""
    if _current.session is not None:
        _current.session.stop()
