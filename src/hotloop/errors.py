"""Errors. Each message says what is wrong, the value seen, and the remedy."""

from __future__ import annotations

INTERRUPTED = 130
"""Exit code after Ctrl-C."""


class HotloopError(Exception):
    """A user's mistake: shown as one line, with exit code 2."""


class Interrupted(KeyboardInterrupt):
    """Repeated signals end a training at once. Not a `HotloopError`, which code may catch to continue.

    Attributes:
        exit_code: Exit code of the first signal.
    """

    def __init__(self, exit_code: int) -> None:
        super().__init__()
        self.exit_code = exit_code


class RunNotFound(HotloopError):
    """There is no such run."""


class RunUnreadable(HotloopError):
    """The directory is not a run of hotloop, is empty, or was written by a newer version."""


class ScriptNotFound(HotloopError):
    """The script or module to record does not exist."""


class DependencyMissing(HotloopError):
    """A required optional library is not installed."""


def interrupt_in(error: BaseException | None) -> KeyboardInterrupt | None:
    """Return the Ctrl-C behind an error, if any. During compiled code it becomes the cause of a SystemError."""
    cause = error.__cause__ if isinstance(error, SystemError) else error
    return cause if isinstance(cause, KeyboardInterrupt) else None


def exit_code_of(error: BaseException | None) -> int:
    """Return the exit code of a program that ends with this error; 0 for none."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    return int(error is not None)
