"""Our FrameReplayBuffer beside SB3's own ReplayBuffer, both as SB3 uses them: memory, sampling, adding.

Observations are stacks of 4×84×84 from eight environments, as VecFrameStack makes them for Atari, in episodes of 300
steps. SB3's buffer is taken as it comes, and with optimize_memory_usage, which keeps next observations once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from gymnasium import spaces
from measure import Row, Times, estimate, exactly, interleave, main, ratio_of, say
from stable_baselines3.common.buffers import ReplayBuffer

from hotloop.integrations.sb3 import FrameReplayBuffer

ENVS, STACK, SIDE, EPISODE, BATCH = 8, 4, 84, 300, 32
SEEN = spaces.Box(0, 255, (STACK, SIDE, SIDE), np.uint8)
ACTIONS = spaces.Discrete(6)
SB3, LEAN = "Stable-Baselines3", "Stable-Baselines3, optimize_memory_usage"
HELD = 24_000
US, MS, KB = 1e3, 1e6, 1e3
Step = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]


def run(quick: bool) -> list[Row]:
    """Measure everything this bench shows."""
    held, rounds = (2_400, 8) if quick else (HELD, 200)
    buffers: dict[str, Any] = {
        "ours": FrameReplayBuffer(held, SEEN, ACTIONS, "cpu", ENVS, stack=STACK),
        SB3: ReplayBuffer(held, SEEN, ACTIONS, "cpu", ENVS),
        LEAN: ReplayBuffer(held, SEEN, ACTIONS, "cpu", ENVS, True, handle_timeout_termination=False),
    }
    say(f"sb3_replay: filling three buffers with {held} transitions")
    for step in steps(held // ENVS + STACK):
        for buffer in buffers.values():
            buffer.add(*step)
    return [*sizes(buffers, held), *sampling(buffers, rounds), *adding(buffers, rounds)]


def steps(number: int) -> Iterator[Step]:
    """Yield steps of eight environments whose stacks begin with zeros, as VecFrameStack's do."""
    frames = np.random.default_rng(0).integers(0, 256, (64, ENVS, SIDE, SIDE), dtype=np.uint8)
    action, reward = np.zeros(ENVS, np.int64), np.zeros(ENVS, np.float32)
    no_infos: list[dict[str, Any]] = [{} for _ in range(ENVS)]
    obs = first(frames[0])
    for t in range(1, number + 1):
        after = np.concatenate([obs[:, 1:], frames[t % 64][:, None]], axis=1)
        done = np.full(ENVS, t % EPISODE == 0)
        yield obs, after, action, reward, done, no_infos
        obs = first(frames[t % 64]) if done[0] else after


def first(frame: np.ndarray) -> np.ndarray:
    """Return the stacks at the beginning of an episode."""
    stack = np.zeros((ENVS, STACK, SIDE, SIDE), np.uint8)
    stack[:, -1] = frame
    return stack


def sizes(buffers: dict[str, Any], held: int) -> list[Row]:
    """Bytes a transition: ours counts the slot that each end of an episode takes."""
    ours = buffers["ours"].nbytes / held * (1 + 1 / EPISODE)
    rows = []
    for name in (SB3, LEAN):
        peer = buffers[name]
        columns = [peer.observations, peer.actions, peer.rewards, peer.dones, peer.timeouts]
        columns += [peer.next_observations] if name == SB3 else []
        theirs = sum(each.nbytes for each in columns) / held
        found = exactly(theirs / ours)
        rows.append(Row("memory a transition", ours / KB, theirs / KB, name, "kB", found.value, found.low, found.high))
    return rows


def sampling(buffers: dict[str, Any], rounds: int) -> list[Row]:
    """Draw batches as DQN does, and larger ones."""
    rows = []
    for size in (BATCH, 256):
        variants: dict[str, Callable[[], object]] = {
            name: lambda buffer=buffer, size=size: buffer.sample(size) for name, buffer in buffers.items()
        }
        times = interleave(variants, rounds, calls=8)
        rows += [compared(f"a batch of {size} sampled", times, name, MS, "ms") for name in (SB3, LEAN)]
    return rows


def adding(buffers: dict[str, Any], rounds: int) -> list[Row]:
    """Add a step of all eight environments, the check of the stacks included."""
    ways = {name: steps(10**9) for name in buffers}
    buffers["ours"].reset()
    variants: dict[str, Callable[[], object]] = {
        name: lambda buffer=buffer, way=ways[name]: buffer.add(*next(way)) for name, buffer in buffers.items()
    }
    # Making a step costs all of them the same, and is timed alone to be taken off.
    making = steps(10**9)
    times = interleave(variants | {"making": lambda: next(making)}, rounds, calls=20)
    for name in buffers:
        times[name] = np.maximum(times[name] - times["making"], 1.0)
    return [compared("a step of 8 environments added", times, name, US, "µs") for name in (SB3, LEAN)]


def compared(what: str, times: dict[str, Times], peer: str, unit_ns: float, unit: str) -> Row:
    """Make the row of two variants of the same rounds."""
    found = estimate(ratio_of, times[peer], times["ours"])
    ours, theirs = (float(np.median(times[name])) / unit_ns for name in ("ours", peer))
    return Row(what, ours, theirs, peer, unit, found.value, found.low, found.high)


if __name__ == "__main__":
    main(run, __doc__)
