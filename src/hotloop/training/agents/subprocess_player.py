"""Plays greedy episodes in another process, for games of which a process can hold only one at a time.

Configuration and weights are passed in one unnamed file, and the episodes come back in another. The process ends with
its parent, so nothing is ever left behind.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import asdict
from io import FileIO

import numpy as np

from hotloop.errors import HotloopError
from hotloop.training.run.config_checks import Config
from hotloop.training.tasks.game import Played
from hotloop.training.worker_process import end_with_parent, start_worker, without_recording

REQUEST = "request"
"""Key of the request in the file of weights; no weight has this name."""
STDOUT = 1


def play_apart(
    pipeline: str, config: Config, learner: Mapping[str, np.ndarray], episodes: int, place: int | str
) -> Played:
    """Play the episodes that choose the best checkpoint of a pipeline, with the `tensors()` of its learner."""
    task_request = {"pipeline": pipeline, "config": asdict(config), "episodes": episodes, "place": place}
    with _memory_file() as request, _memory_file() as played:
        np.savez(request, **{REQUEST: np.array(json.dumps(task_request))}, **dict(learner))  # pyright: ignore
        request.seek(0)
        code, said = _run(request.fileno(), played.fileno())
        if code:
            reason = (said.strip().splitlines() or [f"exit code {code}"])[-1]
            raise HotloopError(f"the process that plays greedy episodes failed ({reason}): see --eval-episodes")
        played.seek(0)
        with np.load(played, allow_pickle=False) as found:
            arrays = {key: found[key] for key in found.files}
    won = str(arrays.pop("won"))
    return Played(**arrays | {"cause": arrays["cause"].astype(object)}, won=won)


def _memory_file() -> FileIO:
    """Open a file in memory. It is unbuffered, because both processes share its position."""
    return FileIO(os.memfd_create("hotloop-episodes"), "w+b")


def _run(request: int, played: int) -> tuple[int, str]:
    """Run `serve` in another process; return its exit code and its stderr."""
    program = f"from hotloop.training.agents.subprocess_player import serve; serve({request}, {played})"
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with start_worker(program, env=without_recording(), pass_fds=(request, played), **pipes) as process:
        try:
            _, said = process.communicate()
        except BaseException:
            process.kill()
            raise
    return process.returncode, said


def serve(request: int, played: int) -> None:
    """Play the episodes requested in one file and write them to the other, both given by descriptor."""
    end_with_parent(STDOUT)
    from hotloop.training.registry import pipeline, task
    from hotloop.training.run import configuration
    from hotloop.training.run.config_checks import torch_threads

    with open(request, "rb") as file, np.load(file, allow_pickle=False) as found:
        arrays = {key: found[key] for key in found.files}
    task_request = json.loads(str(arrays.pop(REQUEST)))
    module = pipeline(task_request["pipeline"])
    config = configuration.with_settings(module.Config(), task_request["config"], "the call")
    agent = module.Agent(config)
    agent.learner.load(arrays)
    play_episodes = task(task_request["pipeline"]).play_episodes
    with torch_threads(1):
        episodes = play_episodes(agent.act, config, task_request["episodes"], task_request["place"], choosing=True)
    with open(played, "wb") as file:
        numbers = {name: getattr(episodes, name) for name in ("score", "returned", "length")}
        np.savez(file, cause=episodes.cause.astype(str), won=np.array(episodes.won), **numbers)
