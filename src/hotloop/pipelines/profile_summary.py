"""Prints summaries of the recording while a training is going on: `--profile-summary-every`."""

from __future__ import annotations

from collections.abc import Callable

from hotloop.errors import HotloopError
from hotloop.record.session import Session


class ProfileSummaries:
    """Prints a summary every so many environment steps; once at the end of a run that is shorter than that.

    The recording is written out first, so that the summary counts all steps up to the one it is printed after.

    Args:
        session: The recording.
        pipeline: Its name, with which the summaries begin.
        every: Environment steps from one summary to the next.
        say: Prints.
    """

    def __init__(self, session: Session, pipeline: str, every: int, say: Callable[[str], None]) -> None:
        self._session = session
        self._pipeline = pipeline
        self._every = every
        self._say = say
        self._periods = 0
        self._due = False
        self._printed = False

    def begin(self, env_steps: int) -> None:
        """Start to count periods here; multiples of the period are counted from the training's first step."""
        self._periods = env_steps // self._every

    def after_step(self, env_steps: int) -> bool:
        """Say whether a summary is due."""
        periods = env_steps // self._every
        self._due |= periods > self._periods
        self._periods = periods
        return self._due

    def finish(self) -> bool:
        """Say whether a last one is due: none was printed."""
        return not self._printed

    def print(self) -> None:
        """Print the summary, unless a closer look has paused the recording: then it stays due."""
        from hotloop.report.running import periodic
        from hotloop.trace.load import load

        if not self._session.flush():
            return
        self._due, self._printed = False, True
        try:
            self._say(periodic(load(self._session.path), self._pipeline))
        except HotloopError as error:
            self._say(f"{self._pipeline}: no profile summary: {error}")
