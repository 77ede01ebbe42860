"""Sampling from replay, compared with a copy of the same bytes and with other libraries' buffers.

A batch is 256 transitions of 4×96×96 with their next observations: 256 windows of five frames, 11.8 MB. It is compared
as stored, and as input for a network: float32, scaled. A peer that is not installed is skipped with a message.
"""

from __future__ import annotations

import importlib.util
import logging
import random
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import psutil
import torch
from measure import Estimate, Row, Times, against_limit, estimate, exactly, interleave, main, ratio_of, say

from hotloop.training.replay import FrameReplay, Prioritised, VectorReplay

MS, US = 1e6, 1e3
BATCH, STACK, SIDE = 256, 4, 96
FRAME = SIDE * SIDE
EPISODE = 300
HELD, MANY, LISTED, PRIORITISED = 20_000, 1_000_000, 4_000, 1_000_000
COPY, OURS, INPUT = "a copy of the same bytes", "as stored", "as input of a network"
STUDY, SB3, CPPRB, TORCHRL = "the study's list", "Stable-Baselines3", "cpprb, compressed", "TorchRL"
ASKED = {STUDY: 15.0, SB3: 4.0, CPPRB: 1.7, TORCHRL: 8.0}
COPY_LIMIT, SIZE_LIMIT, MANY_LIMIT, PRIORITISED_ASKED = 1.6, 9_400, 1.5, 2.5
Sample = Callable[[], object]


def run(quick: bool) -> list[Row]:
    """Measure everything this bench shows."""
    held, many, rounds = (3_000, 30_000, 8) if quick else (HELD, MANY, 300)
    ours = filled_frames(held)
    rng = np.random.default_rng(1)
    rows = [*beside_a_copy(ours, rng, rounds), size(many)]
    rows += beside_peers(ours, rng, held, rounds // 4)
    rows += large(ours, rng, many, rounds)
    rows += prioritised(50_000 if quick else PRIORITISED, rounds)
    rows += flat(rounds)
    return rows


def filled_frames(held: int) -> FrameReplay:
    """Return our replay of eight environments, full, with episodes of 300 steps."""
    envs = 8
    replay = FrameReplay(held, envs, (SIDE, SIDE), STACK, action_shape=(3,), action_dtype=np.float32)
    frames = np.random.default_rng(0).integers(0, 256, (64, envs, SIDE, SIDE), dtype=np.uint8)
    action, reward, no = np.zeros((envs, 3), np.float32), np.zeros(envs, np.float32), np.zeros(envs, bool)
    for t in range(held // envs + STACK):
        replay.add(frames[t % 64], action, reward, no, no if t % EPISODE else ~no, frames[(t + 1) % 64])
    return replay


def beside_a_copy(ours: FrameReplay, rng: np.random.Generator, rounds: int) -> list[Row]:
    """How close sampling is to memory bandwidth."""
    source = torch.randint(0, 256, (BATCH * (STACK + 1), FRAME), dtype=torch.uint8)
    into = torch.empty_like(source)
    wide = torch.empty(source.shape, dtype=torch.float32)
    times = interleave(
        {
            OURS: lambda: ours.sample(BATCH, rng),
            COPY: lambda: into.copy_(source),
            INPUT: lambda: ours.sample(BATCH, rng, scale=1 / 255),
            "convert": lambda: wide.copy_(source),
        },
        rounds,
        calls=4,
    )
    say(f"replay: a copy takes {np.median(times[COPY]) / MS:.2f} ms, a batch {np.median(times[OURS]) / MS:.2f} ms")
    slower = estimate(ratio_of, times[OURS], times[COPY])
    return [
        against_limit(f"a batch against {COPY}", slower, COPY_LIMIT, "×"),
        beside("a batch", times, OURS, COPY),
        beside("a batch as input of a network", times, INPUT, "convert", peer_name="torch, only converting"),
    ]


def size(many: int) -> Row:
    """Memory of a transition; untouched pages are not really allocated."""
    replay = FrameReplay(many, 1, (SIDE, SIDE), STACK, action_shape=(3,), action_dtype=np.float32)
    # Each episode takes one slot more than its number of steps.
    taken = replay.nbytes / replay.capacity * (1 + 1 / EPISODE)
    return against_limit("a transition, episodes of 300", exactly(taken), SIZE_LIMIT, "bytes")


def beside_peers(ours: FrameReplay, rng: np.random.Generator, held: int, rounds: int) -> list[Row]:
    """Compare with each installed peer, one after the other because their buffers are large."""
    rows = []
    for name, module, make in (
        (STUDY, "torch", make_listed),
        (SB3, "stable_baselines3", make_sb3),
        (CPPRB, "cpprb", make_cpprb),
        (TORCHRL, "torchrl", make_torchrl),
    ):
        if importlib.util.find_spec(module) is None:
            say(f"replay: {name} is not installed: left out")
            continue
        say(f"replay: {name}")
        stored, converted = make(held)
        variants: dict[str, Sample] = {
            OURS: lambda: ours.sample(BATCH, rng).to_torch(),
            INPUT: lambda: ours.sample(BATCH, rng, scale=1 / 255).to_torch(),
            "peer": stored,
            "peer, converted": converted,
        }
        times = interleave(variants, rounds, calls=2)
        rows.append(beside("a batch", times, OURS, "peer", name, ASKED[name]))
        rows.append(beside("a batch as input of a network", times, INPUT, "peer, converted", name))
    return rows


def beside(what: str, times: dict[str, Times], mine: str, peer: str, peer_name: str = COPY, asked: float = 0.0) -> Row:
    """Create the row for two variants timed in the same rounds."""
    found = estimate(ratio_of, times[peer], times[mine])
    ours, theirs = (float(np.median(times[name])) / MS for name in (mine, peer))
    return Row(what, ours, theirs, peer_name, "ms", found.value, found.low, found.high, asked)


def make_listed(_: int) -> tuple[Sample, Sample]:
    """As in the study: transitions in a deque, with states as scaled float32 stacks."""
    frames = np.random.default_rng(0).random((64, SIDE, SIDE), np.float32)
    kept: deque[tuple[Any, ...]] = deque(maxlen=LISTED)
    state = np.stack([frames[0]] * STACK)
    for t in range(LISTED):
        after = np.stack([*state[1:], frames[(t + 1) % 64]])
        kept.append((state, np.zeros(3, np.float32), 0.0, after, 0.0))
        state = after

    def sample() -> object:
        return [torch.FloatTensor(np.array(column)) for column in zip(*random.sample(kept, BATCH), strict=True)]

    return sample, sample


def make_sb3(held: int) -> tuple[Sample, Sample]:
    """SB3's buffer, and what its policies do to a batch before the network sees it."""
    from gymnasium import spaces
    from stable_baselines3.common.buffers import ReplayBuffer

    seen = spaces.Box(0, 255, (STACK, SIDE, SIDE), np.uint8)
    buffer = ReplayBuffer(held, seen, spaces.Box(-1, 1, (3,)), device="cpu")
    buffer.observations[:], buffer.next_observations[:], buffer.full = 7, 8, True

    def convert() -> object:
        batch = buffer.sample(BATCH)
        return batch.observations.float() / 255, batch.next_observations.float() / 255

    return lambda: buffer.sample(BATCH), convert


def make_cpprb(held: int) -> tuple[Sample, Sample]:
    """With both of its compressions: next observations and stacks are stored once."""
    from cpprb import ReplayBuffer

    columns = {"obs": {"shape": (SIDE, SIDE, STACK), "dtype": np.uint8}, "act": {"shape": 3}, "rew": {}, "done": {}}
    buffer = ReplayBuffer(held, columns, next_of="obs", stack_compress="obs")
    frames = np.random.default_rng(0).integers(0, 256, (64, SIDE, SIDE), dtype=np.uint8)
    for t in range(held):
        window = np.stack([frames[(t + k) % 64] for k in range(STACK + 1)], axis=-1)
        buffer.add(obs=window[..., :-1], next_obs=window[..., 1:], act=np.zeros(3), rew=0.0, done=0.0)
        if t % EPISODE == EPISODE - 1:
            buffer.on_episode_end()

    def convert() -> object:
        batch = buffer.sample(BATCH)
        return [torch.from_numpy(batch[name]).float() / 255 for name in ("obs", "next_obs")]

    return lambda: buffer.sample(BATCH), convert


def make_torchrl(held: int) -> tuple[Sample, Sample]:
    """TorchRL's buffer over one contiguous tensor a column."""
    from tensordict import TensorDict
    from torchrl.data import LazyTensorStorage, ReplayBuffer

    # It logs to stdout, which is for the result.
    logging.getLogger("torchrl").setLevel(logging.ERROR)
    buffer = ReplayBuffer(storage=LazyTensorStorage(held), batch_size=BATCH)
    part = 500
    seen = torch.randint(0, 256, (part, STACK, SIDE, SIDE), dtype=torch.uint8)
    for _ in range(held // part):
        rest = {"action": torch.zeros(part, 3), "reward": torch.zeros(part), "done": torch.zeros(part)}
        buffer.extend(TensorDict({"obs": seen, "next_obs": seen, **rest}, [part]))

    def convert() -> object:
        batch = buffer.sample()
        return [batch[name].float() / 255 for name in ("obs", "next_obs")]

    return buffer.sample, convert


def large(ours: FrameReplay, rng: np.random.Generator, many: int, rounds: int) -> list[Row]:
    """A million transitions against twenty thousand: needs 9.2 GB of memory."""
    need = many * FRAME * 1.3
    if psutil.virtual_memory().available < need:
        say(f"replay: a replay of {many:,} frames needs {need / 1e9:.0f} GB of free memory: left out")
        return []
    say(f"replay: {many:,} transitions")
    big = filled_frames(many)
    variants = {"small": lambda: ours.sample(BATCH, rng), "large": lambda: big.sample(BATCH, rng)}
    times = interleave(variants, rounds, calls=4)
    slower = estimate(ratio_of, times["large"], times["small"])
    return [against_limit(f"a batch from {many:,} against one from {ours.capacity:,}", slower, MANY_LIMIT, "×")]


def prioritised(leaves: int, rounds: int) -> list[Row]:
    """Sample 256 by priority and set their priorities; compared with cpprb with the same columns."""
    if importlib.util.find_spec("cpprb") is None:
        say("replay: cpprb is not installed: left out")
        return []
    from cpprb import PrioritizedReplayBuffer

    say(f"replay: priorities of {leaves:,}")
    rng = np.random.default_rng(1)
    envs = 64
    ours = VectorReplay(leaves, envs, (2,), prioritised=Prioritised())
    row, no = np.zeros((envs, 2), np.float32), np.zeros(envs, bool)
    for _ in range(leaves // envs):
        ours.add(row, np.zeros(envs, np.int64), row[:, 0], no, no, row)
    seen = {"shape": 2, "dtype": np.float32}
    theirs = PrioritizedReplayBuffer(
        leaves, {"obs": seen, "next_obs": seen, "act": {}, "rew": {}, "done": {}}, alpha=0.6
    )
    part = leaves // 10
    block = np.zeros((part, 2), np.float32)
    for _ in range(10):
        theirs.add(obs=block, next_obs=block, act=block[:, 0], rew=block[:, 0], done=block[:, 0])
    errors = rng.random(BATCH, np.float32)

    def sample_ours() -> None:
        ours.update_priorities(ours.sample(BATCH, rng).index, errors)

    def sample_theirs() -> None:
        theirs.update_priorities(theirs.sample(BATCH, 0.4)["indexes"], errors)

    times = interleave({"ours": sample_ours, "cpprb": sample_theirs}, rounds, calls=20)
    found = estimate(ratio_of, times["cpprb"], times["ours"])
    return [in_us(f"256 by priority of {leaves:,}, and update", times, found, "cpprb", PRIORITISED_ASKED)]


def flat(rounds: int) -> list[Row]:
    """Add a vector step of 256 environments and sample 8 batches of 64, like dqn-snake."""
    if importlib.util.find_spec("stable_baselines3") is None:
        return []
    from gymnasium import spaces
    from stable_baselines3.common.buffers import ReplayBuffer

    rng, envs, features = np.random.default_rng(1), 256, 13
    obs, reward, no = rng.random((envs, features), np.float32), np.zeros(envs, np.float32), np.zeros(envs, bool)
    action = np.zeros(envs, np.int64)
    ours = VectorReplay(100_000, envs, (features,))
    theirs = ReplayBuffer(100_000, spaces.Box(0, 1, (features,)), spaces.Discrete(3), device="cpu", n_envs=envs)
    infos: list[dict[str, Any]] = [{}] * envs

    def step_ours() -> None:
        ours.add(obs, action, reward, no, no, obs)
        ours.sample(8 * 64, rng)

    def step_theirs() -> None:
        theirs.add(obs, obs, action, reward, no, infos)
        for _ in range(8):
            theirs.sample(64)

    for _ in range(100_000 // envs):
        ours.add(obs, action, reward, no, no, obs)
        theirs.add(obs, obs, action, reward, no, infos)
    times = interleave({"ours": step_ours, "sb3": step_theirs}, rounds, calls=20)
    found = estimate(ratio_of, times["sb3"], times["ours"])
    return [in_us("256 environments added, 8 batches of 64 sampled", times, found, "sb3", peer_name=SB3)]


def in_us(
    what: str, times: dict[str, Times], found: Estimate, peer: str, asked: float = 0.0, peer_name: str = ""
) -> Row:
    """Create a row in microseconds."""
    ours, theirs = (float(np.median(times[name])) / US for name in ("ours", peer))
    return Row(what, ours, theirs, peer_name or peer, "µs", found.value, found.low, found.high, asked)


if __name__ == "__main__":
    main(run, __doc__)
