"""Takes a stretch of the loop out of the recording: for measurements that would disturb the phases.

Meanwhile spans do nothing, the background thread stands still and counters are dropped. To the tables the stretch has
not been: the window before it ends where it begins, the next one begins where it ends, and calls that are open
across it are shorter by it. The hole between two windows is how a reader knows of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hotloop.clock import now_ns
from hotloop.profiling.recorder.background import Recorder
from hotloop.spans import registry


@contextmanager
def background_held(recorder: Recorder) -> Iterator[None]:
    """Pause the recorder's background thread and exclude this time from its schedule: for benches."""
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
    """A stretch that is not recorded, from `begin` to `end`, which the same thread need not call."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._since_ns = 0
        self.on = False

    @property
    def possible(self) -> bool:
        """Whether something is being recorded now that could be paused."""
        return registry.recording() and self._recorder.armed and not self.on

    def begin(self) -> None:
        """Stop the recording here."""
        self._since_ns = self._recorder.pause()
        self.on = True

    def end(self) -> None:
        """Go on with the recording here. Safe to call twice."""
        if not self.on:
            return
        self.on = False
        self._recorder.resume(self._since_ns)
