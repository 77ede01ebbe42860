"""A callback that records a training run and tells SB3's logger where the time goes.

What it logs is read from the run's files, as `hotloop explain` does, a few dozen milliseconds each time: it then rests
for a hundred times as long, so that it takes at most 1 % of the training however often it is asked to.
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
from hotloop.profiling.recorder.options import RecordOptions
from hotloop.profiling.recorder.session import Session, current_path, record
from hotloop.profiling.report.progress_summary import periodic
from hotloop.profiling.trace.load import load
from hotloop.profiling.trace.model import Trace
from hotloop.spans import registry

REST = 100
LEAST_S = 0.5
"""Of a shorter loop nothing is told: its rates mean nothing yet."""
LOGGED_COUNTERS = ("env_steps", "updates", "episodes")


@dataclass(slots=True)
class _Going:
    session: Session | None = None
    """What a callback records. It outlives a `learn` that was interrupted, of whose end SB3 tells nobody."""


_going = _Going()


class HotloopCallback(BaseCallback):
    """Records `model.learn(...)` into a run directory: `hotloop explain` reads it, also while it is going.

    Under `hotloop run` it records nothing of its own and logs from that run.

    Args:
        path: The run directory; `runs/<time>-<script>` if not given. A second `learn` gets a directory of its own,
            with a number behind the name.
        summary_every: Print a summary every so many environment steps; 0 for never.
        log_every: Put scalars into SB3's logger every so many environment steps; 0 for never. They are shown and
            written whenever SB3 dumps its own.
        hooks: Whether to time Gymnasium, torch and SB3; without, only spans of your own.
        options: What else to record, and at what cost.
        verbose: 1 to print where the run was written.
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
        """The run directory, once training has begun."""
        self._asked = Path(path) if path is not None else None
        self._summary_every, self._log_every = summary_every, log_every
        self._hooks, self._options = hooks, options
        self._next_log = self._next_summary = 0
        self._rest_until_ns = 0
        self._logged_until_ns = 0

    def _on_training_start(self) -> None:
        self._next_log = self.num_timesteps + self._log_every
        self._next_summary = self.num_timesteps + self._summary_every
        self._rest_until_ns = self._logged_until_ns = 0
        _stop()
        if registry.recording():
            self.path = current_path()
            return
        total = self.locals.get("total_timesteps")
        config = {"algorithm": type(self.model).__name__, "n_envs": self.model.n_envs, "total_timesteps": total}
        _going.session = record(_free(self._asked), hooks=self._hooks, options=self._options, config=config)
        self.path = _going.session.path

    def _on_step(self) -> bool:
        logs = self._log_every and self.num_timesteps >= self._next_log
        prints = self._summary_every and self.num_timesteps >= self._next_summary
        if logs or prints:
            begin = now_ns()
            if begin >= self._rest_until_ns and self._tell(bool(logs), bool(prints)):
                self._rest_until_ns = now_ns() + REST * (now_ns() - begin)
        return True

    def _tell(self, logs: bool, prints: bool) -> bool:
        """Log and print what is due; return whether there was anything to read."""
        try:
            trace = load(self.path) if self.path else None
        except HotloopError:
            trace = None  # nothing is written in the first second
        if trace is None or trace.wall_s < LEAST_S:
            return False
        if logs:
            for name, value in scalars(trace, self._logged_until_ns):
                self.logger.record(name, value)
            self._logged_until_ns = int(trace.main.windows.end_ns[-1])
            self._next_log = self.num_timesteps + self._log_every
        if prints:
            with contextlib.suppress(OSError):  # nobody reads it any more: the training goes on
                print(periodic(trace), file=sys.stderr, flush=True)
            self._next_summary = self.num_timesteps + self._summary_every
        return True

    def _on_training_end(self) -> None:
        stopped = _stop()
        if self._summary_every and self.num_timesteps >= self._next_summary:
            self._tell(logs=False, prints=True)  # It was due, and put off to keep its cost low.
        if stopped and self.verbose:
            see = shlex.join(["hotloop", "explain", str(self.path)])
            notice(f"recorded into {self.path}, see: {see}")


def scalars(trace: Trace, since_ns: int) -> Iterator[tuple[str, float]]:
    """Yield what is logged: rates and shares of the phases in the windows that ended since a moment, cost, memory."""
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
    """End what a callback records; return whether there was anything."""
    session, _going.session = _going.session, None
    if session is not None:
        session.stop()
    return session is not None


def _free(path: Path | None) -> Path | None:
    """Return a path for a new run: the one asked for, or with the next number behind it."""
    if path is None or not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return path
    number = 2
    while (numbered := path.with_name(f"{path.name}-{number}")).exists():
        number += 1
    return numbered
