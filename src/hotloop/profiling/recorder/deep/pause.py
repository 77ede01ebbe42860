"""Excludes a stretch of the loop from the recording, for measurements that would distort the phases.

Meanwhile spans do nothing, no stacks are sampled, and counters are dropped. The tables do not contain the
stretch: one window ends where it begins, the next begins where it ends, and its length is subtracted from calls that
are open across it. A reader recognises it by the gap between two windows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hotloop.spans import registry

if TYPE_CHECKING:
    from hotloop.profiling.recorder.session import Recorder


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
