"""A training that learns nothing, to test the code around a training loop."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hotloop.cli.recording import ProfileOptions, TrainingRecording
from hotloop.training.run import checkpoint
from hotloop.training.run.counts import Counts, Episodes
from hotloop.training.run.options import Options
from hotloop.training.run.recording import Recording
from hotloop.training.run.result import Result
from hotloop.training.run.training_run import TrainingRun


@dataclass(frozen=True)
class Config:
    seed: int = 0
    kernel: str = "plain"


class Trainee:
    """Takes 10 environment steps and ends an episode per turn; its greedy score is scripted."""

    def __init__(self, scores: list[float]) -> None:
        self.config = Config()
        self.counts = Counts()
        self.episodes = Episodes(1)
        self.evaluated_at: list[int] = []
        self._scores = iter(scores)

    def turn(self) -> None:
        self.episodes.step(np.array([2.0]), np.array([True]), np.array([3]))
        self.counts.add(env_steps=10, updates=4, episodes=1)

    def scalars(self) -> dict[str, float | None]:
        return {"loss": 0.5}

    def evaluate(self, episodes: int) -> dict[str, float | None]:
        self.evaluated_at.append(self.counts.env_steps)
        score = next(self._scores)
        return {"eval_return": 10 * score, "eval_score": score, "success_rate": 0.0}

    def state(self) -> tuple[checkpoint.Groups, dict[str, Any]]:
        return {"learner": {"w": np.array([self.counts.env_steps])}}, {"mine": 1}


def run(
    trainee: Trainee, options: Options, at_step: dict[int, Any] | None = None, recording: Recording | None = None
) -> Result:
    with TrainingRun("fake", trainee.config, options, recording) as run:
        run.begin(trainee)
        while run.going():
            trainee.turn()
            run.after_step()
            if at_step and trainee.counts.env_steps in at_step:
                at_step[trainee.counts.env_steps]()
        return run.finish()


def recorder() -> TrainingRecording:
    return TrainingRecording(ProfileOptions())


def options(tmp_path: Path, **more: Any) -> Options:
    return Options(**{"out": tmp_path / "run", "tensorboard": False, "quiet": True, **more})
