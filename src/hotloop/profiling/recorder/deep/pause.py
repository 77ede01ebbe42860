"""Pauses the recording during measurements that would distort the phases.

During a pause, spans do nothing, the background thread waits and counters are dropped. The tables do not contain the
pause: one window ends when it begins, the next one starts when it ends, and its duration is subtracted from calls that
are open across it. Readers recognise a pause by the gap between two windows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hotloop.clock import now_ns
from hotloop.profiling.recorder.background import Recorder
from hotloop.spans import hot_path, registry


@contextmanager
def background_held(recorder: Recorder) -> Iterator[None]:
    """Pause the recorder's background thread and exclude this time from its schedule: for benches."""
    with recorder.working:
        hot_path.hold(True)
        begin = now_ns()
        try:
            yield
        finally:
            for mark in ("_block_start", "_second_start", "_learned_at", "_last_look", "_drained_at"):
                setattr(recorder, mark, getattr(recorder, mark) + now_ns() - begin)
            hot_path.hold(False)


class Pause:
    """A pause from `begin` to `end`, which may be called in different threads."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._since_ns = 0
        self.on = False

    @property
    def possible(self) -> bool:
        """Whether a recording is in progress that can be paused."""
        return registry.recording() and self._recorder.armed and not self.on

    def begin(self) -> None:
        """Pause the recording."""
        self._since_ns = self._recorder.pause()
        self.on = True

    def end(self) -> None:
        """Continue the recording. Safe to call twice."""
        if not self.on:
            return
        self.on = False
        self._recorder.resume(self._since_ns)
