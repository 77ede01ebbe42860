"""Greedy episodes in a process of their own, for games of which a process can hold only one that is going on.

Configuration and weights go there in one file, and what was played comes back in another. Neither has a name, and the
process ends with the one who started it: however that ends, nothing is left. The training is not touched.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import asdict
from io import FileIO
from typing import Any

import numpy as np

from hotloop.errors import HotloopError
from hotloop.training.tasks.game import Played
from hotloop.training.worker_process import end_with_parent, start_worker

ASKED = "asked"
"""Under this name the question stands among the weights, none of which has it."""
STDOUT = 1


def play_apart(pipeline: str, config: Any, learner: Mapping[str, np.ndarray], episodes: int, place: Any) -> Played:
    """Play the episodes that choose the best checkpoint of a pipeline in another process, and wait for it.

    Args:
        pipeline: Its name.
        config: Its configuration.
        learner: `tensors()` of the learner.
        episodes: How many.
        place: Where, as the game has it.
    """
    question = {"pipeline": pipeline, "config": asdict(config), "episodes": episodes, "place": place}
    with _memory_file() as asked, _memory_file() as played:
        np.savez(asked, **{ASKED: np.array(json.dumps(question))}, **dict(learner))  # pyright: ignore
        asked.seek(0)
        code, said = _run(asked.fileno(), played.fileno())
        if code:
            reason = (said.strip().splitlines() or [f"exit code {code}"])[-1]
            raise HotloopError(f"the process that plays greedy episodes failed ({reason}): see --eval-episodes")
        played.seek(0)
        with np.load(played, allow_pickle=False) as found:
            arrays = {key: found[key] for key in found.files}
    won = str(arrays.pop("won"))
    return Played(**arrays | {"cause": arrays["cause"].astype(object)}, won=won)


def _memory_file() -> FileIO:
    """Open a file in memory, which needs no disk. Unbuffered: both processes move through it together."""
    return FileIO(os.memfd_create("hotloop-episodes"), "w+b")


def _run(asked: int, played: int) -> tuple[int, str]:
    """Let another process do `serve`; return its exit code and what it wrote to stderr."""
    program = f"from hotloop.training.agents.subprocess_player import serve; serve({asked}, {played})"
    # A recording that follows processes must not take this one for a part of the training.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HOTLOOP_")}
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with start_worker(program, env=environment, pass_fds=(asked, played), **pipes) as process:
        try:
            _, said = process.communicate()
        except BaseException:
            process.kill()
            raise
    return process.returncode, said


def serve(asked: int, played: int) -> None:
    """Play what one file asks for, and leave what was played in the other.

    Args:
        asked: Descriptor.
        played: Descriptor.
    """
    end_with_parent(STDOUT)
    from hotloop.training.registry import pipeline, task
    from hotloop.training.run import configuration
    from hotloop.training.run.config_checks import torch_threads

    with open(asked, "rb") as file, np.load(file, allow_pickle=False) as found:
        arrays = {key: found[key] for key in found.files}
    question = json.loads(str(arrays.pop(ASKED)))
    module = pipeline(question["pipeline"])
    config = configuration.with_settings(module.Config(), question["config"], "the call")
    agent = module.Agent(config)
    agent.learner.load(arrays)
    play_episodes = task(question["pipeline"]).play_episodes
    with torch_threads(1):
        told = play_episodes(agent.act, config, question["episodes"], question["place"], choosing=True)
    with open(played, "wb") as file:
        np.savez(
            file, score=told.score, returned=told.returned, length=told.length, cause=told.cause.astype(str),
            won=np.array(told.won),
        )  # fmt: skip
