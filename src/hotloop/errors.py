"""What can go wrong in a user's call. Each message says what, the value seen, and the remedy."""

from __future__ import annotations

INTERRUPTED = 130
"""Exit code of a program that Ctrl-C ended."""


class HotloopError(Exception):
    """A mistake of the call: shown as one line, exit code 2."""


class Interrupted(KeyboardInterrupt):
    """Repeated signals end a training at once. Not a `HotloopError`: nothing may catch it and go on.

    Attributes:
        exit_code: That of the first signal.
    """

    def __init__(self, exit_code: int) -> None:
        super().__init__()
        self.exit_code = exit_code


class RunNotFound(HotloopError):
    """There is no run where one was asked for."""


class RunUnreadable(HotloopError):
    """The directory is not a run of hotloop, is empty, or was written by a newer version."""


class ScriptNotFound(HotloopError):
    """The script or module to record is not there."""


class DependencyMissing(HotloopError):
    """An optional library that this needs is not installed."""


def exit_code_of(error: BaseException | None) -> int:
    """Return the exit code of a program that an error ends; 0 for none."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    return int(error is not None)
