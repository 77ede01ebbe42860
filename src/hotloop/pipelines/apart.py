"""Greedy episodes in a process of their own, for games of which a process can hold only one that is going on.

Configuration and weights go there as files, and what was played comes back as one. The training is not touched.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from hotloop.errors import HotloopError
from hotloop.pipelines.games import Played

ASKED, WEIGHTS, PLAYED = "asked.json", "learner.npz", "played.npz"


def play_apart(pipeline: str, config: Any, learner: Mapping[str, np.ndarray], episodes: int, place: Any) -> Played:
    """Play episodes of a pipeline's game in another process, and wait for it.

    Args:
        pipeline: Its name.
        config: Its configuration.
        learner: `tensors()` of the learner.
        episodes: How many.
        place: Where, as the game has it.
    """
    with tempfile.TemporaryDirectory(prefix="hotloop-") as name:
        folder = Path(name)
        asked = {"pipeline": pipeline, "config": asdict(config), "episodes": episodes, "place": place}
        (folder / ASKED).write_text(json.dumps(asked), encoding="utf-8")
        np.savez(folder / WEIGHTS, **dict(learner))  # pyright: ignore  # no array is called allow_pickle
        # A recording that follows processes must not take this one for a part of the training.
        environment = {key: value for key, value in os.environ.items() if not key.startswith("HOTLOOP_")}
        words = [sys.executable, "-m", "hotloop.pipelines.apart", name]
        # In a session of its own: Ctrl-C is for the training, which waits for the episodes and then saves.
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment, start_new_session=True
        )
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            raise HotloopError(f"the process that plays greedy episodes failed ({reason}): see --eval-episodes")
        with np.load(folder / PLAYED, allow_pickle=False) as found:
            arrays = {key: found[key] for key in found.files}
    won = str(arrays.pop("won"))
    return Played(**arrays | {"cause": arrays["cause"].astype(object)}, won=won)


def play_here(folder: Path) -> None:
    """Play what a folder asks for, and leave what was played in it."""
    from hotloop.pipelines import configuration, game, pipeline
    from hotloop.pipelines.checks import torch_threads

    asked = json.loads((folder / ASKED).read_text(encoding="utf-8"))
    module = pipeline(asked["pipeline"])
    config = configuration.with_settings(module.Config(), asked["config"], "the call")
    agent = module.Agent(config)
    with np.load(folder / WEIGHTS, allow_pickle=False) as weights:
        agent.learner.load(weights)
    with torch_threads(1):
        played = game(asked["pipeline"]).play_episodes(agent.act, config, asked["episodes"], asked["place"])
    np.savez(
        folder / PLAYED,
        score=played.score, returned=played.returned, length=played.length, cause=played.cause.astype(str),
        won=np.array(played.won),
    )  # fmt: skip


if __name__ == "__main__":
    play_here(Path(sys.argv[1]))
