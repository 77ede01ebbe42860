"""The result of a training run; as JSON, the contract of `hotloop train --json`."""

from __future__ import annotations

import resource
import sys
from dataclasses import asdict, dataclass

from hotloop.escaping import json_text
from hotloop.json_types import Json

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Result:
    """The end of a run. Means are None if no episode ended, evaluation fields if there was no evaluation."""

    pipeline: str
    env_steps: int
    frames: int
    updates: int
    episodes: int
    steps_per_episode: float | None
    """env_steps / episodes."""
    counts: dict[str, float | None]
    """The same five numbers of this call; those above are totals, including the runs it resumes."""
    seconds: float
    """Duration of this call: warm-up, training, evaluations, checkpoints."""
    warmup_seconds: float
    """Time before the first step: building, compiling, choosing a kernel."""
    env_steps_per_s: float
    """Rate in this call, without the warm-up."""
    updates_per_s: float
    return_mean: float | None
    return_last100: float | None
    score_mean: float | None
    score_last100: float | None
    score_best: float | None
    eval_return: float | None
    """Mean return of the last greedy evaluation."""
    eval_score: float | None
    best_eval_score: float | None
    success_rate: float | None
    """Share of the last evaluation's episodes that were won."""
    kernel: str
    stopped_by: str
    """steps, episodes, seconds, SIGINT, SIGTERM or SIGHUP."""
    exit_code: int
    """2 if the last checkpoint could not be written, or the training diverged."""
    peak_rss_bytes: int
    """Of this process, without worker processes."""
    run_dir: str
    checkpoint: str | None
    """The newest one; None if none could be written."""

    def as_dict(self) -> dict[str, Json]:
        """Return the JSON object."""
        return {"schema": SCHEMA} | asdict(self)

    def as_json(self) -> str:
        """Return one line."""
        return json_text(self.as_dict(), compact=True)


def peak_rss_bytes() -> int:
    """Return the peak memory use of this process."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
