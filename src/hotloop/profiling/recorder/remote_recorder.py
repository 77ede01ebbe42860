"""The recorder as the recorded process sees it: a process of its own (`companion`), met through shared memory.

In the training process are only the hooks, the memory that they write to, and the thread that samples stacks, which
needs no interpreter. Neither numpy nor pyarrow is imported, and no Python thread is added.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.machinery import PathFinder
from pathlib import Path

import hotloop
from hotloop.clock import now_ns, wall_ns
from hotloop.json_types import Json
from hotloop.notice import notice
from hotloop.profiling.recorder import rendezvous
from hotloop.profiling.recorder.device import DeviceTimes, device_memory
from hotloop.profiling.recorder.messages import Message, counter_message, span_message
from hotloop.profiling.recorder.own_files import is_own
from hotloop.profiling.recorder.record_options import RecordOptions
from hotloop.profiling.recorder.span_cost import tight_loop_ns
from hotloop.spans import hot_path, registry

PATIENCE_S = 20.0
"""How long to wait for a recorder that does not answer."""
POLL_S = 0.002
ROOM_S = 2.0
"""How long to wait for room for a message."""


class RemoteRecorder:
    """Has this process recorded by the companion of the run.

    Args:
        run: The run directory.
        folder: Of this process, in the run directory.
        options: What to record, and at what cost.
        main: Whether this is the main process of the run.
    """

    def __init__(self, run: Path, folder: Path, options: RecordOptions, main: bool) -> None:
        from hotloop.spans import _hot_path  # pyright: ignore[reportAttributeAccessIssue]

        self.options = options
        self.failure = ""
        self.wrapper_ns: dict[str, float] = {}
        """What the wrappers of hooks add to a call, by kind. The hooks may add to it later."""
        self._native = _hot_path
        self._run = run
        self._folder = folder
        self._main = main
        self._spans_sent = self._counters_sent = 0
        self._is_sending = False
        self._costs_sent: dict[str, float] = {}
        self._name_sent = ""
        self._device = DeviceTimes()
        self._pauses = hot_path.Pauses()
        self._classes: list[type[registry.Span]] = []
        self._sampler = None
        self._file = self._inode = -1
        """Of the shared memory, which the recorder opens through /proc."""

    def start(self, companion_runs: bool) -> None:
        """Start to record. Starts the companion, unless it runs.

        Raises:
            OSError: If there is no memory to share, or no process can be started.
        """
        tight_ns = tight_loop_ns()
        self._file = self._native.share()
        self._inode = os.fstat(self._file).st_ino
        self._native.call_on_change(self._follow_change)
        registry.listen(hot_path.Logs())
        self.send({"is": "process", "content": describe_process(self._main)})
        self.send({"is": "tight", "ns": tight_ns})
        registry.call_on_new_name(self.send_names)
        self.send_names()
        gc.callbacks.append(self._pauses)
        if self._main and not companion_runs:
            _start_companion(self._run)
        content: dict[str, Json] = {
            "folder": self._folder.name,
            "main": self._main,
            "start_ns": now_ns(),
            # Not /proc/<pid>: in a namespace of its own, a process has another number there.
            "memory": f"/proc/{os.readlink('/proc/self')}/fd/{self._file}",
            "main_ident": threading.main_thread().ident,
        }
        rendezvous.offer(self._run, content)
        self._start_sampler()

    def _start_sampler(self) -> None:
        if not self.options.hz:
            return
        try:
            from hotloop.profiling.recorder import _stack_reader  # pyright: ignore[reportAttributeAccessIssue]

            if self._main:
                self._observe()
            _stack_reader.start(round(1e9 / self.options.hz))
            self._sampler = _stack_reader
        except (ImportError, AttributeError, OSError):
            pass  # Spans are recorded without samples.

    def _observe(self) -> None:
        from hotloop.profiling.recorder import _observer  # pyright: ignore[reportAttributeAccessIssue]
        from hotloop.profiling.recorder.operand_facts import Describer

        if _observer.SUPPORTED:
            _observer.use(is_own, Describer(self.send))

    def _ignore_pauses(self) -> None:
        if self._pauses in gc.callbacks:
            gc.callbacks.remove(self._pauses)

    def send(self, message: Message) -> bool:
        """Send a message; return whether there was room for it."""
        return self._native.send(json.dumps(message).encode())

    def _send_surely(self, message: Message) -> bool:
        """Send a message that must not be lost: wait for room. Return False if the recorder does not read."""
        deadline = now_ns() + round(ROOM_S * 1e9)
        while not self.send(message):
            if now_ns() > deadline:
                return False
            time.sleep(POLL_S)
        return True

    def send_names(self) -> None:
        """Send the names of new spans and counters, what hooks cost, and the name of this process."""
        if self._is_sending:
            return  # Another thread, or the code around this in a signal handler, sends the new ones, too.
        self._is_sending = True
        try:
            self._send_new_names()
        finally:
            self._is_sending = False

    def _send_new_names(self) -> None:
        # By position: one that is left out would give its name to the next.
        while self._spans_sent < len(spans := registry.known_spans()):
            if not self._send_surely(span_message(spans[self._spans_sent])):
                return
            self._spans_sent += 1
        while self._counters_sent < len(counters := list(registry.known_counters().items())):
            if not self._send_surely(counter_message(*counters[self._counters_sent])):
                return
            self._counters_sent += 1
        if self.wrapper_ns != self._costs_sent:
            self._costs_sent = dict(self.wrapper_ns)
            self.send({"is": "costs", "ns": self._costs_sent})

        if (name := process_name()) != self._name_sent:
            self._name_sent = name
            self.send({"is": "name", "name": name})

    def _follow_change(self) -> None:
        self.send_names()
        registry.use_counted(self._native.counted_only())
        self._follow_device()
        in_use, busy = device_memory()
        self._native.set("gpu_bytes", in_use)
        self._native.set("gpu_busy_percent", busy)

    @property
    def armed(self) -> bool:
        """Whether what is recorded is kept."""
        return not self.options.starts_late or bool(self._native.get("armed"))

    def flush(self) -> bool:
        """Have everything written that was recorded so far; return False during a pause."""
        if self._classes:
            return False
        self._native.set("flush_asked", self._native.get("flush_asked") + 1)
        self._wait_until(lambda: self._native.get("flush_done") == self._native.get("flush_asked"))
        return True

    def pause(self) -> int:
        """Record nothing until `resume`; return when the pause began."""
        self._classes = registry.silence()
        since = now_ns()
        hot_path.set_paused(since)
        self.send({"is": "pause", "at": since})
        return since

    def resume(self, since: int) -> None:
        """End a pause, as if no time had passed."""
        self.send({"is": "resume", "at": now_ns()})
        hot_path.set_paused(0)
        classes, self._classes = self._classes, []
        if registry.recording():
            registry.unsilence(classes)

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Have the recorder do nothing, and let this time not exist for it; used by benchmarks."""
        begin = now_ns()
        self._native.set("resting", 1)
        try:
            yield
        finally:
            self._native.set("rested_ns", self._native.get("rested_ns") + now_ns() - begin)
            self._native.set("resting", 0)

    def stop(self, ending: Message | None = None) -> int:
        """Stop recording, and wait until everything is written.

        Args:
            ending: Of the main process: what completes the manifest.

        Returns:
            The position of the exit code in the completed manifest; 0 if it is not complete.
        """
        stopped_at = now_ns()
        if self._sampler is not None:
            self._sampler.stop()
        registry.hush()
        registry.call_on_new_name(None)
        self._ignore_pauses()
        self._follow_device()
        self.send_names()
        if ending is not None:
            self._send_surely({"is": "ending", "content": ending})
        self._native.call_on_change(None)
        self._native.set("stopped_ns", stopped_at)
        answered = self._wait_until(lambda: self._native.get("finished" if self._main else "recorder_pid") != 0)
        self._close_file()
        self.failure = self._native.failure()
        if not answered and not self.failure:
            self.failure = "the recorder's process has ended or does not answer"
            notice(f"stopped recording: {self.failure}. What it wrote until then is in {self._run}")
        return max(self._native.get("finished") - 1, 0) if self._main else 0

    def _close_file(self) -> None:
        with suppress(OSError):  # The script may have closed it, and its number may be another file's.
            if os.fstat(self._file).st_ino == self._inode:
                os.close(self._file)

    def _follow_device(self) -> None:
        for code, ns in self._device.poll().items():
            self._native.add_device(code, ns)

    def _wait_until(self, is_done) -> bool:
        """Wait for the recorder, while it lives; return whether it answered."""
        deadline = now_ns() + round(PATIENCE_S * 1e9)
        while not is_done():
            recorder = self._native.get("recorder_pid")
            gone = not _is_alive(recorder) if recorder else not rendezvous.is_open(self._run)
            if now_ns() > deadline or (gone and not is_done()):
                return False
            time.sleep(POLL_S)
        return True

    def forget(self) -> None:
        """In a forked child: leave everything to the parent."""
        _stop_counting_calls()
        registry.call_on_new_name(None)
        self._native.call_on_change(None)
        self._ignore_pauses()
        self._close_file()


def describe_process(main: bool) -> Message:
    """Return the content of `process.json`."""
    return {
        "pid": os.getpid(),
        "parent_pid": os.getppid(),
        "main": main,
        "clock_ns": now_ns(),
        "wall_ns": wall_ns(),
        "name": process_name(),
        "argv": list(getattr(sys, "argv", [])),
    }


def _stop_counting_calls() -> None:
    """End a window that was open when this process was forked: the thread that would end it does not exist here."""
    with suppress(ImportError, AttributeError):
        from hotloop.profiling.recorder import _call_counter  # pyright: ignore[reportAttributeAccessIssue]

        _call_counter.stop()


def process_name() -> str:
    """Return the name that multiprocessing gave this process."""
    multiprocessing = sys.modules.get("multiprocessing.process")
    return multiprocessing.current_process().name if multiprocessing else "MainProcess"


def _is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _start_companion(run: Path) -> None:
    """Start the companion, as nobody's child: a script that waits for its children must not see it."""
    program = (
        f"import sys; sys.path[:0] = {_library_paths()!r}; "
        f"from hotloop.profiling.recorder.companion import main; main({str(run)!r}, detach=True)"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    child = os.posix_spawn(
        sys.executable,
        [sys.executable, "-I", "-S", "-c", program],
        environment | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        file_actions=[(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1)],
    )
    _, status = os.waitpid(child, 0)
    if status:
        raise OSError(f"the recorder's process ended with status {status}")


def _library_paths() -> list[str]:
    """Return the folders from which this process imports hotloop and what its recorder needs, without the script's."""
    folders = {str(Path(hotloop.__file__).parents[1]): None}
    folders |= {sysconfig.get_path(key): None for key in ("purelib", "platlib")}
    for name in ("numpy", "pyarrow", "psutil"):
        spec = PathFinder.find_spec(name)
        if spec is not None and spec.origin is not None:
            folders[str(Path(spec.origin).parents[1])] = None
    return list(folders)
