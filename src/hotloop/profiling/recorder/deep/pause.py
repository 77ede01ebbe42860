"""Excludes a stretch of the loop from the recording, for measurements that would distort the phases.

Meanwhile spans do nothing, the background thread pauses, and counters are dropped. The tables do not contain the
stretch: one window ends where it begins, the next begins where it ends, and its length is subtracted from calls that
are open across it. A reader recognises it by the gap between two windows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hotloop.clock import now_ns
from hotloop.profiling.recorder.recorder import Recorder
from hotloop.spans import registry


@contextmanager
def background_held(recorder: Recorder) -> Iterator[None]:
    """Pause the recorder's background thread and exclude this time from its schedule; used by benchmarks."""
    with recorder.working:
        recorder.sampler.hold(True)
        begin = now_ns()
        try:
            yield
        finally:
            for mark in ("_block_start", "_second_start", "_learned_at", "_drained_at"):
                setattr(recorder, mark, getattr(recorder, mark) + now_ns() - begin)
            recorder.sampler.hold(False)


class Pause:
    """A stretch that is not recorded, from `begin` to `end`. Different threads may call the two."""

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
        """Resume the recording. Calling it twice is safe."""
        if not self.on:
            return
        self.on = False
        self._recorder.resume(self._since_ns)
