"""A light game whose frames carry a checksum, a policy that detects torn weights, and a check of sampled batches.

A frame encodes its episode and time, which determine action, reward and every pixel. So a sample that mixes two steps,
or contains half of one, is detected.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from hotloop.errors import HotloopError
from hotloop.training.collect import Job, Recipe
from hotloop.training.replay import Batch, FrameReplay

ROOT = Path(__file__).resolve().parent.parent
SIDE, STACK, HEADER = 16, 4, 12
ACTIONS = 97


def draw_frame(episode: int, t: int, side: int = SIDE) -> np.ndarray:
    """Return the frame at a given time, uint8 [side, side]: episode, time, checksum, pattern."""
    flat = ((np.arange(side * side, dtype=np.uint32) * (2 * t + 1) + episode) & 255).astype(np.uint8)
    flat[:8] = np.array([episode, t], np.uint32).view(np.uint8)
    flat[8:HEADER] = 0
    flat[8:HEADER] = np.array([zlib.crc32(flat.tobytes())], np.uint32).view(np.uint8)
    return flat.reshape(side, side)


def read_frame(frame: np.ndarray) -> tuple[int, int]:
    """Return episode and time of a frame; fail if it is torn."""
    flat = np.ascontiguousarray(frame).reshape(-1).copy()
    episode, t, checksum = (int(each) for each in flat[:HEADER].view(np.uint32))
    flat[8:HEADER] = 0
    assert checksum == zlib.crc32(flat.tobytes()), f"torn frame: episode {episode}, time {t}"
    return episode, t


def choose(episode: int, t: int) -> int:
    """The action at a given time."""
    return (7 * t + episode) % ACTIONS


class LightEnv(gymnasium.Env[np.ndarray, Any]):
    """Episodes of 1 to `longest` steps; every other is truncated.

    Args:
        side: Side of a frame in pixels.
        longest: Maximum length of an episode.
        pause_s: Maximum of a random pause per step, not seeded.
        trouble: What happens at step `at`: "fail", "hang", "exit", "die", or at once: "refuse", "break".
        at: Step of the process at which the trouble happens.
        once: A file: only the process that creates it has the trouble.
    """

    observation_space = spaces.Box(0, 255, (SIDE, SIDE), np.uint8)
    action_space = spaces.Discrete(ACTIONS)

    def __init__(  # the parts of a test
        self, side: int = SIDE, longest: int = 30, pause_s: float = 0.0, trouble: str = "", at: int = 0, once: str = ""
    ) -> None:
        self._side, self._longest, self._pause_s = side, longest, pause_s
        self._trouble, self._at, self._once = trouble, at, once
        self._chance = np.random.default_rng()
        self._steps = 0
        if trouble == "refuse":
            raise HotloopError("this game is not for you: buy another")
        if trouble == "break":
            raise ZeroDivisionError("nothing works here")

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._episode, self._length = (int(each) for each in self.np_random.integers([1 << 32, self._longest]))
        self._length += 1
        self._t = 0
        return draw_frame(self._episode, 0, self._side), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        assert action == choose(self._episode, self._t)
        if self._steps == self._at and self._trouble:
            self._have_trouble()
        if self._pause_s:
            time.sleep(self._pause_s * float(self._chance.random()))
        self._steps += 1
        reward = float(self._t)
        self._t += 1
        over, odd = self._t == self._length, bool(self._length % 2)
        info = {"episode": self._episode, "flag": np.bool_(odd), "distance": np.float32(self._t), "nothing": None}
        return draw_frame(self._episode, self._t, self._side), reward, over and odd, over and not odd, info

    def _have_trouble(self) -> None:
        if self._once:
            try:
                os.close(os.open(self._once, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return
        if self._trouble == "fail":
            raise ValueError(f"no more after {self._steps} steps")
        if self._trouble == "hang":
            time.sleep(1000)
        if self._trouble == "exit":
            sys.exit(7)
        if self._trouble == "die":
            os.kill(os.getpid(), signal.SIGKILL)


class LightPolicy:
    """Plays the action that the newest frame encodes; rejects torn weights."""

    def __init__(self) -> None:
        self._versions = [0]

    def load(self, weights: Mapping[str, np.ndarray], version: int) -> None:
        values = np.concatenate([each.reshape(-1) for each in weights.values()])
        assert (values == values[0]).all(), f"torn weights: {np.unique(values)}"
        assert version > self._versions[-1]
        self._versions.append(version)

    def act(self, seen: np.ndarray, steps: int, rng: np.random.Generator) -> np.ndarray:
        return np.array([choose(*read_frame(each[-1])) for each in seen])


class RandomPolicy:
    """Plays at random."""

    def __init__(self, actions: int) -> None:
        self._actions = actions

    def load(self, weights: Mapping[str, np.ndarray], version: int) -> None:
        pass

    def act(self, seen: np.ndarray, steps: int, rng: np.random.Generator) -> np.ndarray:
        return rng.integers(0, self._actions, len(seen))


def start_sleeper() -> None:
    """Start a process that sleeps, as an environment might; its id is written where $SLEEPER says."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    Path(os.environ["SLEEPER"]).write_text(str(process.pid))


def shared_memory(pid: int | None = None) -> set[int]:
    """Return the inodes of hotloop's shared memory that a process, by default this one, has open or mapped."""
    place, name = Path("/proc") / str(pid or "self"), "/memfd:hotloop"
    found = set()
    for line in (place / "maps").read_text().splitlines():
        words = line.split(maxsplit=5)
        if len(words) == 6 and words[5].startswith(name):
            found.add(int(words[4]))
    for each in (place / "fd").iterdir():
        try:
            if os.readlink(each).startswith(name):
                found.add(each.stat().st_ino)
        except FileNotFoundError:
            continue  # the descriptor of the directory listing itself
    return found


def light_weights(value: float = 1.0) -> dict[str, np.ndarray]:
    return {"a": np.full((40, 50), value, np.float32), "b": np.full(7, value), "c": np.array(value)}


def light_job(seed: int = 0, **options: Any) -> Job:
    return Job(Recipe("tests.collecting:LightEnv", options), Recipe("tests.collecting:LightPolicy"), seed)


def light_replay(length: int, lanes: int = 2, **options: Any) -> FrameReplay:
    options = {"action_dtype": np.int64, "storage": "shared"} | options
    return FrameReplay(length * lanes, lanes, (SIDE, SIDE), STACK, **options)


def check_batch(batch: Batch) -> set[tuple[int, int]]:
    """Fail unless every transition of a batch (n = 1) is consistent; return episodes and times."""
    found = set()
    for i in range(len(batch.action)):
        episode, t = read_frame(batch.obs[i, -1])
        for k in range(STACK):
            assert read_frame(batch.obs[i, k]) == (episode, max(0, t - (STACK - 1) + k))
            assert read_frame(batch.next_obs[i, k]) == (episode, max(0, t + 1 - (STACK - 1) + k))
        assert int(batch.action[i]) == choose(episode, t)
        assert batch.reward[i] == t
        found.add((episode, t))
    return found
