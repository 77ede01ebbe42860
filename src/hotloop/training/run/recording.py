"""The interface between a training run and the recorder around it, if there is one.

Training emits spans and does not depend on a recorder: the caller may pass one. `hotloop train` does
(`hotloop.cli.recording`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The run that is about to be recorded."""

    pipeline: str
    run_dir: Path
    config: Mapping[str, object]
    counts_before: Mapping[str, int] | None
    """Counts of the checkpoint that is resumed."""
    say: Callable[[str], None]
    """Prints a line without breaking the progress bar."""


class Recording(Protocol):
    """A recorder around a training run."""

    def start(self, info: RunInfo) -> None:
        """Start to record into the run directory."""
        ...

    def begin(self, env_steps: int) -> None:
        """Note that the training loop begins."""
        ...

    def summary_due(self, env_steps: int) -> bool:
        """Return whether a summary is due after this step."""
        ...

    def print_summary(self) -> None:
        """Print a summary of what was recorded so far."""
        ...

    def finish(self) -> None:
        """Note that the training loop has ended; evaluation and the last checkpoint follow."""
        ...

    def stop(self, exit_code: int) -> None:
        """Complete the recording."""
        ...


class NoRecording:
    """Records nothing."""

    def start(self, info: RunInfo) -> None:
        """Do nothing."""

    def begin(self, env_steps: int) -> None:
        """Do nothing."""

    def summary_due(self, env_steps: int) -> bool:
        """Return False."""
        return False

    def print_summary(self) -> None:
        """Do nothing."""

    def finish(self) -> None:
        """Do nothing."""

    def stop(self, exit_code: int) -> None:
        """Do nothing."""
