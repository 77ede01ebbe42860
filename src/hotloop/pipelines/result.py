"""What a training run gives back, and as JSON the contract of `hotloop train --json`."""

from __future__ import annotations

import json
import resource
import sys
from dataclasses import asdict, dataclass
from typing import Any

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Result:
    """The end of a run. Means are None where no episode ended, evaluations where none was asked for."""

    pipeline: str
    env_steps: int
    frames: int
    updates: int
    episodes: int
    steps_per_episode: float | None
    """Mean length of all episodes that ended."""
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
    """steps, episodes, seconds, SIGINT or SIGTERM."""
    exit_code: int
    peak_rss_bytes: int
    """Of this process; worker processes are not in it."""
    run_dir: str
    checkpoint: str

    def as_dict(self) -> dict[str, Any]:
        """Return what JSON shows."""
        return {"schema": SCHEMA} | asdict(self)

    def as_json(self) -> str:
        """Return one line."""
        return json.dumps(self.as_dict())


def peak_rss_bytes() -> int:
    """Return the most memory that this process ever held."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
