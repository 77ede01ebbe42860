"""What can go wrong in a user's call. Each message says what, the value seen, and the remedy."""

from __future__ import annotations


class HotloopError(Exception):
    """A mistake of the call: shown as one line, exit code 2."""


class RunNotFound(HotloopError):
    """There is no run where one was asked for."""


class RunUnreadable(HotloopError):
    """The directory is not a run of hotloop, is empty, or was written by a newer version."""


class ScriptNotFound(HotloopError):
    """The script or module to record is not there."""


class DependencyMissing(HotloopError):
    """An optional library that this needs is not installed."""
