"""What a training run gives back, and as JSON the contract of `hotloop train --json`."""

from __future__ import annotations

import resource
import sys
from dataclasses import asdict, dataclass
from typing import Any

from hotloop.escaping import json_text

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
    counts: dict[str, Any]
    """The same five of this call alone; the above are totals, those of the training that it resumes included."""
    seconds: float
    """Of this call: warm-up, training, evaluations, checkpoints."""
    warmup_seconds: float
    """Of it until the first step: building, compiling, choosing a kernel."""
    env_steps_per_s: float
    """Of this call, without the warm-up."""
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
    """2 if the last checkpoint could not be written, or the training has diverged."""
    peak_rss_bytes: int
    """Of this process; worker processes are not in it."""
    run_dir: str
    checkpoint: str | None
    """The newest that was written; None if none could be."""

    def as_dict(self) -> dict[str, Any]:
        """Return what JSON shows."""
        return {"schema": SCHEMA} | asdict(self)

    def as_json(self) -> str:
        """Return one line."""
        return json_text(self.as_dict(), compact=True)


def peak_rss_bytes() -> int:
    """Return the most memory that this process ever held."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
