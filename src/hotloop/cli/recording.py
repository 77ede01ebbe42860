"""Records a training run. Only this module connects pipelines to the recorder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hotloop.errors import HotloopError
from hotloop.training.run.recording import Recording, RunInfo

if TYPE_CHECKING:
    from hotloop.profiling.recorder.session import Session


@dataclass(frozen=True, slots=True)
class ProfileOptions:
    """What `hotloop train` records. Recording does not change what the same seed learns."""

    profile: bool = True
    """Record where the time goes, for `hotloop explain`."""
    profile_report: Path | None = None
    """Also write the report to this JSON file."""
    profile_summary_every: int = 0
    """Print a summary of the recording after every N environment steps, or at the end of a shorter run; 0: none."""
    functions: int = 0
    """Trace all function calls of N iterations, for `hotloop explain`; 0: none."""
    ops: int = 0
    """Trace torch's operators in N iterations; 0: none."""
    warmup: int | None = None
    """Iterations before --functions and --ops begin. Default: 100, and the first update."""

    def __post_init__(self) -> None:
        """Check the values."""
        for name in ("profile_summary_every", "functions", "ops", "warmup"):
            if (getattr(self, name) or 0) < 0:
                raise HotloopError(f"--{name.replace('_', '-')} is {getattr(self, name)}: give 0 or more")
        for name in ("profile_report", "profile_summary_every", "functions", "ops"):
            if getattr(self, name) and not self.profile:
                flag = name.replace("_", "-")
                raise HotloopError(f"--{flag} needs the recording that --no-profile turns off: give one of them")


class TrainingRecording(Recording):
    """Records a training run and prints summaries of the recording during it.

    A summary is printed after every N environment steps, or once at the end of a shorter run. The recording is flushed
    first, so a summary includes all steps before it.

    Args:
        options: What to record.
        quiet: Print no summaries.
    """

    def __init__(self, options: ProfileOptions, quiet: bool = False) -> None:
        self._options = options
        self._every = 0 if quiet else options.profile_summary_every
        self._session: Session
        self._info: RunInfo
        self._periods = 0
        self._due = self._printed = False

    def start(self, info: RunInfo) -> None:
        """Start to record into the run directory."""
        from hotloop.profiling.recorder.record_options import RecordOptions
        from hotloop.profiling.recorder.session import record

        self._info = info
        given = self._options
        options = RecordOptions(functions=given.functions, ops=given.ops, warmup=given.warmup)
        config = {**info.config, "pipeline": info.pipeline}
        self._session = record(info.run_dir, options=options, config=config, counts_before=info.counts_before)

    def begin(self, env_steps: int) -> None:
        """Start counting the periods between summaries, at the steps of the checkpoint that is resumed."""
        self._periods = env_steps // self._every if self._every else 0

    def summary_due(self, env_steps: int) -> bool:
        """Return whether a period has ended since the last summary."""
        if self._every:
            periods = env_steps // self._every
            self._due |= periods > self._periods
            self._periods = periods
        return self._due

    def print_summary(self) -> None:
        """Print the summary. While the recording is paused for a deep sample, it stays due."""
        from hotloop.profiling.report.progress_summary import periodic
        from hotloop.profiling.trace.load import load

        if not self._session.flush():
            return
        self._due, self._printed = False, True
        try:
            self._info.say(periodic(load(self._session.path), self._info.pipeline))
        except HotloopError as error:
            self._info.say(f"{self._info.pipeline}: no profile summary: {error}")

    def finish(self) -> None:
        """Print a summary if none was printed before."""
        if self._every and not self._printed:
            self.print_summary()

    def stop(self, exit_code: int) -> None:
        """Complete the recording."""
        self._session.stop(exit_code)
