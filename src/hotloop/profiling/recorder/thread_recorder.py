"""The recorder as a thread of the recorded process, where the C extensions were not built."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hotloop.clock import now_ns, thread_cpu_ns
from hotloop.profiling.recorder.feed import InProcessFeed
from hotloop.profiling.recorder.messages import Message
from hotloop.profiling.recorder.privacy.redact_text import redacted_command
from hotloop.profiling.recorder.record_options import RecordOptions
from hotloop.profiling.recorder.recorder import Recorder
from hotloop.profiling.recorder.remote_recorder import describe_process
from hotloop.profiling.recorder.span_cost import tight_loop_ns
from hotloop.spans import hot_path, registry


class ThreadRecorder:
    """Records this process from a thread of its own.

    Args:
        run: The run directory.
        folder: Of this process, in the run directory.
        options: What to record, and at what cost.
        main: Whether this is the main process of the run.
    """

    def __init__(self, run: Path, folder: Path, options: RecordOptions, main: bool) -> None:
        process = describe_process(main)
        process["argv"] = redacted_command(process["argv"])
        self.options = options
        self.wrapper_ns: dict[str, float] = {}
        """What the wrappers of hooks add to a call, by kind."""
        self.working = threading.Lock()
        """Held while the thread works. Forks wait for it, so that no half-finished state is copied."""
        self._run, self._main = run, main
        self._feed = InProcessFeed(options.hz)
        self._recorder = Recorder(folder, options, self._feed, process, main)
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._ident = 0
        self._classes: list[type[registry.Span]] = []

    @property
    def failure(self) -> str:
        """Why the recorder failed; empty if it did not."""
        return self._recorder.failure

    @property
    def armed(self) -> bool:
        """Whether what is recorded is kept."""
        return self._recorder.armed

    def start(self, companion_runs: bool) -> None:
        """Start to record."""
        self.send({"is": "tight", "ns": tight_loop_ns()})
        self._feed.start()
        self._recorder.start(now_ns())
        self._thread = threading.Thread(target=self._work, name="hotloop", daemon=True)
        self._thread.start()

    def send(self, message: Message) -> bool:
        """Send a message to the recorder; return whether there was room for it."""
        self._feed.inbox.append(message)
        return True

    def flush(self) -> bool:
        """Write everything recorded so far; return False during a pause."""
        if self._classes:
            return False
        with self.working:
            self._recorder.flush()
        return True

    def pause(self) -> int:
        """Record nothing until `resume`; return when the pause began."""
        self.working.acquire()
        self._feed.sampler.hold(True)
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
        self._feed.sampler.hold(False)
        self.working.release()

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Have the recorder do nothing, and let this time not exist for it; used by benchmarks."""
        with self.working:
            self._feed.sampler.hold(True)
            begin = now_ns()
            try:
                yield
            finally:
                self._recorder.rest(now_ns() - begin)
                self._feed.sampler.hold(False)

    def stop(self, ending: Message | None = None) -> int:
        """Stop recording and write the rest; complete the manifest and return the position of the exit code in it."""
        thread, self._thread = self._thread, None
        if thread is None:
            return 0
        stopped_at, self._stopping = now_ns(), True  # the time from here on is the recorder's, not the training's
        self._feed.sampler.wake()
        thread.join(10)
        registry.hush()
        self.send({"is": "costs", "ns": self.wrapper_ns})
        self._recorder.stop(stopped_at)
        return 0

    def forget(self) -> None:
        """In a forked child: leave everything to the parent."""
        self._feed.stats.close()

    def _work(self) -> None:
        self.send({"is": "costs", "ns": self.wrapper_ns})
        while not self._stopping and not self._recorder.ended:
            self._feed.sampler.wait(self._recorder.due_ns)
            if self._stopping:
                break
            with self.working:
                self._recorder.tick(thread_cpu_ns())
