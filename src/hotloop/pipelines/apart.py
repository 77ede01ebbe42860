"""Greedy episodes in a process of their own, for games of which a process can hold only one that is going on.

Configuration and weights go there in one file, and what was played comes back in another. Neither has a name, and the
process ends with the one who started it: however that ends, nothing is left. The training is not touched.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from hotloop.collect.lifeline import ASK, end_with_parent
from hotloop.errors import HotloopError
from hotloop.pipelines.games import Played

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
    # Without buffers: both processes move through one file, and only the system knows where they are in it.
    with tempfile.TemporaryFile(buffering=0) as asked, tempfile.TemporaryFile(buffering=0) as played:
        np.savez(asked, **{ASKED: np.array(json.dumps(question))}, **dict(learner))  # pyright: ignore
        asked.seek(0)
        done = _run(asked.fileno(), played.fileno())
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            raise HotloopError(f"the process that plays greedy episodes failed ({reason}): see --eval-episodes")
        played.seek(0)
        with np.load(played, allow_pickle=False) as found:
            arrays = {key: found[key] for key in found.files}
    won = str(arrays.pop("won"))
    return Played(**arrays | {"cause": arrays["cause"].astype(object)}, won=won)


def _run(asked: int, played: int) -> subprocess.CompletedProcess[str]:
    """Let another process do `serve`, and wait for it."""
    program = f"from hotloop.pipelines.apart import serve; serve({os.getpid()}, {asked}, {played})"
    if sys.platform == "linux" and threading.current_thread() is threading.main_thread():
        program = ASK + program
    # A recording that follows processes must not take this one for a part of the training.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HOTLOOP_")}
    # In a session of its own: Ctrl-C is for the training, which waits for the episodes and then saves.
    return subprocess.run(
        [sys.executable, "-c", program], stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment,
        start_new_session=True, pass_fds=(asked, played),
    )  # fmt: skip


def serve(parent: int, asked: int, played: int) -> None:
    """Play what one file asks for, and leave what was played in the other.

    Args:
        parent: Process with which this one ends; it reads what this one prints.
        asked: Descriptor.
        played: Descriptor.
    """
    end_with_parent(parent, STDOUT)
    from hotloop.pipelines import configuration, game, pipeline
    from hotloop.pipelines.checks import torch_threads

    with open(asked, "rb") as file, np.load(file, allow_pickle=False) as found:
        arrays = {key: found[key] for key in found.files}
    question = json.loads(str(arrays.pop(ASKED)))
    module = pipeline(question["pipeline"])
    config = configuration.with_settings(module.Config(), question["config"], "the call")
    agent = module.Agent(config)
    agent.learner.load(arrays)
    play_episodes = game(question["pipeline"]).play_episodes
    with torch_threads(1):
        told = play_episodes(agent.act, config, question["episodes"], question["place"], choosing=True)
    with open(played, "wb") as file:
        np.savez(
            file, score=told.score, returned=told.returned, length=told.length, cause=told.cause.astype(str),
            won=np.array(told.won),
        )  # fmt: skip
