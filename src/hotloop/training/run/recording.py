"""The interface between a training run and the recorder around it, if there is one.

Training emits spans and does not depend on a recorder: the caller may pass one. `hotloop train` does
(`hotloop.cli.recording`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hotloop.json_types import Json


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The run that is about to be recorded."""

    pipeline: str
    run_dir: Path
    config: Mapping[str, Json]
    counts_before: Mapping[str, int] | None
    """Counts of the checkpoint that is resumed."""
    say: Callable[[str], None]
    """Prints a line without breaking the progress bar."""


class Recording(Protocol):
    """A recorder around a training run. Methods that a class does not override do nothing."""

    def start(self, info: RunInfo) -> None:
        """Start recording into the run directory."""

    def begin(self, env_steps: int) -> None:
        """Handle the start of the training loop."""

    def summary_due(self, env_steps: int) -> bool:
        """Return whether a summary is due after this step."""
        return False

    def print_summary(self) -> None:
        """Print a summary of what was recorded so far."""

    def finish(self) -> None:
        """Handle the end of the training loop; evaluation and the last checkpoint follow."""

    def stop(self, exit_code: int) -> None:
        """Complete the recording."""


class NoRecording(Recording):
    """Records nothing."""
