"""A callback that records a training run and logs to SB3 where the time goes.

To log, it loads the run's files, as `hotloop explain` does. That takes a few dozen milliseconds, so it then pauses for
a hundred times as long: it costs at most 1 % of the training however small the logging interval.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback

from hotloop.clock import now_ns
from hotloop.errors import HotloopError
from hotloop.notice import notice
from hotloop.profiling.recorder.record_options import RecordOptions
from hotloop.profiling.recorder.session import Session, current_path, record
from hotloop.profiling.report.progress_summary import periodic
from hotloop.profiling.trace.load import load
from hotloop.profiling.trace.model import Trace
from hotloop.spans import registry

PAUSE_FACTOR = 100
MIN_WALL_S = 0.5
"""A shorter run is not logged: its rates mean nothing yet."""
LOGGED_COUNTERS = ("env_steps", "updates", "episodes")


@dataclass(slots=True)
class _Recording:
    session: Session | None = None
    """The recording of a callback. It outlives an interrupted `learn`, because SB3 does not report its end."""


_recording = _Recording()


class HotloopCallback(BaseCallback):
    """Records `model.learn(...)` into a run directory: `hotloop explain` reads it, even during training.

    Under `hotloop run` it does not record and logs from that run.

    Args:
        path: The run directory; default `runs/<time>-<script>`. A second `learn` gets its own directory, with a number
            appended to the name.
        summary_every: Print a summary every this many environment steps; 0: never.
        log_every: Pass scalars to SB3's logger every this many environment steps; 0: never. SB3 writes them with its
            own.
        hooks: Whether to time Gymnasium, torch and SB3; otherwise only your own spans are timed.
        options: Further options of the recording.
        verbose: 1: print where the run was written.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        summary_every: int = 0,
        log_every: int = 1_000,
        hooks: bool = True,
        options: RecordOptions | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(verbose)
        for name, value in (("summary_every", summary_every), ("log_every", log_every)):
            if value < 0:
                raise HotloopError(f"{name} is {value}: give a number of environment steps, or 0 for never")
        self.path: Path | None = None
        """The run directory; None before training starts."""
        self._requested_path = Path(path) if path is not None else None
        self._summary_every, self._log_every = summary_every, log_every
        self._hooks, self._options = hooks, options
        self._next_log = self._next_summary = 0
        self._paused_until_ns = 0
        self._logged_until_ns = 0

    def _on_training_start(self) -> None:
        self._next_log = self.num_timesteps + self._log_every
        self._next_summary = self.num_timesteps + self._summary_every
        self._paused_until_ns = self._logged_until_ns = 0
        _stop()
        if registry.recording():
            self.path = current_path()
            return
        total = self.locals.get("total_timesteps")
        config = {"algorithm": type(self.model).__name__, "n_envs": self.model.n_envs, "total_timesteps": total}
        _recording.session = record(
            _unused(self._requested_path), hooks=self._hooks, options=self._options, config=config
        )
        self.path = _recording.session.path

    def _on_step(self) -> bool:
        logs = self._log_every and self.num_timesteps >= self._next_log
        prints = self._summary_every and self.num_timesteps >= self._next_summary
        if logs or prints:
            begin = now_ns()
            if begin >= self._paused_until_ns and self._report(bool(logs), bool(prints)):
                self._paused_until_ns = now_ns() + PAUSE_FACTOR * (now_ns() - begin)
        return True

    def _report(self, logs: bool, prints: bool) -> bool:
        """Log and print what is due; return False if the run has no data yet."""
        try:
            trace = load(self.path) if self.path else None
        except HotloopError:
            trace = None  # Nothing is written in the first second.
        if trace is None or trace.wall_s < MIN_WALL_S:
            return False
        if logs:
            for name, value in scalars(trace, self._logged_until_ns):
                self.logger.record(name, value)
            self._logged_until_ns = int(trace.main.windows.end_ns[-1])
            self._next_log = self.num_timesteps + self._log_every
        if prints:
            with contextlib.suppress(OSError):  # stderr was closed: training continues
                print(periodic(trace), file=sys.stderr, flush=True)
            self._next_summary = self.num_timesteps + self._summary_every
        return True

    def _on_training_end(self) -> None:
        stopped = _stop()
        if self._summary_every and self.num_timesteps >= self._next_summary:
            self._report(logs=False, prints=True)  # It was due, but postponed to limit the overhead.
        if stopped and self.verbose:
            see = shlex.join(["hotloop", "explain", str(self.path)])
            notice(f"recorded into {self.path}, see: {see}")


def scalars(trace: Trace, since_ns: int) -> Iterator[tuple[str, float]]:
    """Yield the logged values: rates and phase shares of the windows that ended after `since_ns`, overhead, memory."""
    windows = trace.main.windows
    recent = windows.in_loop & (windows.end_ns > since_ns)
    if not recent.any():
        return
    seconds = float((windows.end_ns - windows.start_ns)[recent].sum()) / 1e9
    for counter in LOGGED_COUNTERS:
        if counter in windows.counts:
            yield f"hotloop/{counter}_per_s", float(windows.counts[counter][recent].sum()) / max(seconds, 1e-9)
    phases = {str(phase): int(ns[recent].sum()) for phase, ns in windows.phase_self_ns.items()}
    measured = max(sum(phases.values()), 1)
    for phase, ns in sorted(phases.items()):
        if ns:
            yield f"time/phase_{phase}_share", ns / measured
    yield "hotloop/overhead_share", trace.main.overhead.share
    yield "hotloop/memory_mb", float(np.max(trace.main.memory.rss_bytes[recent])) / 1e6


def _stop() -> bool:
    """Stop the recording of a callback; return whether there was one."""
    session, _recording.session = _recording.session, None
    if session is not None:
        session.stop()
    return session is not None


def _unused(path: Path | None) -> Path | None:
    """Return a path for a new run: the given one, with the next free number appended if it exists."""
    if path is None or not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return path
    number = 2
    while (numbered := path.with_name(f"{path.name}-{number}")).exists():
        number += 1
    return numbered
