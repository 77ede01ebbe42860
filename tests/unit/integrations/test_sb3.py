"""The SB3 callback, and our replay as an SB3 buffer: equal to SB3's own for the same transitions."""

from __future__ import annotations

import copy
import pickle
import shlex
import time
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.traces import make_trace, place

import hotloop
from hotloop.errors import HotloopError
from hotloop.phases import Phase
from hotloop.profiling.recorder.session import record
from hotloop.training.replay import ReplayError

pytest.importorskip("stable_baselines3")

from stable_baselines3 import DQN
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecNormalize, VecTransposeImage

from hotloop.integrations.sb3 import FrameReplayBuffer, HotloopCallback
from hotloop.integrations.sb3.callback import scalars

SIDE = 18  # more than the channels of any stack here: SB3 recognises channels by their number
ACTIONS = spaces.Discrete(3)


@pytest.fixture(autouse=True)
def one_thread():
    """Small networks on a busy machine: with more threads they would wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Frames(gym.Env):
    """Every frame is different; episodes are terminated or truncated at random."""

    action_space = ACTIONS

    def __init__(self, number: int, channels: int = 1, side: int = SIDE) -> None:
        self.observation_space = spaces.Box(0, 255, (side, side, channels), np.uint8)
        self._rng = np.random.default_rng(number)

    def _see(self) -> np.ndarray:
        return self._rng.integers(0, 256, self.observation_space.shape, dtype=np.uint8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        return self._see(), {}

    def step(self, action):
        chance = self._rng.random()
        return self._see(), float(self._rng.normal()), chance < 0.15, chance > 0.85, {}


def stacked(n_envs: int, stack: int, channels: int = 1) -> VecTransposeImage:
    made = [lambda i=i: Frames(i, channels) for i in range(n_envs)]
    return VecTransposeImage(VecFrameStack(DummyVecEnv(made), stack))


class Filled:
    """Both buffers after the same steps, and SB3's row for each of our transitions."""

    def __init__(self, n_envs: int, stack: int, channels: int = 1, steps: int = 60, size: int = 10_000, **ours: Any):
        self.env = stacked(n_envs, stack, channels)
        space = self.env.observation_space
        self.ours = FrameReplayBuffer(size * n_envs, space, ACTIONS, "cpu", n_envs, stack=stack, **ours)
        self.theirs = ReplayBuffer(steps * n_envs, space, ACTIONS, "cpu", n_envs)
        self.row: dict[int, tuple[int, int]] = {}
        slots = np.zeros(n_envs, int)
        obs = self.env.reset()
        for t in range(steps):
            action = np.random.default_rng(t).integers(0, 3, n_envs)
            after, reward, done, infos = self.env.step(action)
            last = after.copy()
            for i in np.flatnonzero(done):
                last[i] = infos[i]["terminal_observation"]
            for buffer in (self.ours, self.theirs):
                buffer.add(obs, last, action, reward, done, infos)
            for i in range(n_envs):
                self.row[int(slots[i]) * n_envs + i] = (t, i)
            slots += 1 + done
            obs = after

    def sampled(self, batch: int, env: VecNormalize | None = None):
        """Return a batch of ours, and SB3's row and environment of each transition."""
        index = self.ours.replay.sample(batch, copy.deepcopy(self.ours._rng)).index
        return self.ours.sample(batch, env), np.array([self.row[int(i)] for i in index])


def theirs_at(buffer: ReplayBuffer, rows: np.ndarray) -> dict[str, np.ndarray]:
    t, i = rows[:, 0], rows[:, 1]
    return {
        "observations": buffer.observations[t, i],
        "actions": buffer.actions[t, i],
        "next_observations": buffer.next_observations[t, i],
        "dones": (buffer.dones[t, i] * (1 - buffer.timeouts[t, i]))[:, None],
        "rewards": buffer.rewards[t, i][:, None],
    }


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 4), st.integers(1, 5), st.sampled_from([1, 3]), st.integers(1, 200))
def test_batches_equal_those_of_sb3s_buffer(n_envs, stack, channels, batch):
    filled = Filled(n_envs, stack, channels)
    ours, rows = filled.sampled(min(batch, len(filled.ours.replay)))
    like = ReplayBuffer.sample(filled.theirs, 1)
    for name, expected in theirs_at(filled.theirs, rows).items():
        found = getattr(ours, name)
        assert found.dtype == getattr(like, name).dtype, name
        assert torch.equal(found, torch.as_tensor(expected)), name


def test_every_transition_but_the_newest_is_sampled_also_after_wrapping():
    filled = Filled(2, 4, steps=200, size=50)
    seen = {tuple(row) for _ in range(60) for row in filled.sampled(64)[1].tolist()}
    for i in range(2):
        times = sorted(t for t, env in seen if env == i)
        assert times == list(range(times[0], times[-1] + 1)), "no gap"
        assert times[-1] >= 198 and 25 <= len(times) <= 50
    for _ in range(10):
        ours, rows = filled.sampled(64)
        expected = theirs_at(filled.theirs, rows)
        assert torch.equal(ours.observations, torch.as_tensor(expected["observations"]))
        assert torch.equal(ours.next_observations, torch.as_tensor(expected["next_observations"]))


def test_timeouts_are_excluded_from_dones_only_if_handled():
    handled, plain = Filled(2, 2), Filled(2, 2, handle_timeout_termination=False)
    ours, rows = handled.sampled(100)
    ended = handled.theirs.dones[rows[:, 0], rows[:, 1]]
    late = handled.theirs.timeouts[rows[:, 0], rows[:, 1]]
    assert 0 < late.sum() < ended.sum()
    assert ours.dones[:, 0].tolist() == (ended * (1 - late)).tolist()
    ours, rows = plain.sampled(100)
    assert ours.dones[:, 0].tolist() == plain.theirs.dones[rows[:, 0], rows[:, 1]].tolist()


def test_rewards_are_normalised_as_in_sb3():
    filled = Filled(1, 2)
    normal = VecNormalize(filled.env, norm_obs=False)
    normal.ret_rms.var = np.array(4.0)
    index = copy.deepcopy(filled.ours._rng)
    plain = filled.ours.sample(20)
    filled.ours._rng = index
    assert torch.allclose(filled.ours.sample(20, normal).rewards, plain.rewards / 2, atol=1e-4)


def test_n_steps_add_up_rewards_and_discounts():
    filled = Filled(1, 2, n_steps=3, gamma=0.5)
    ours, rows = filled.sampled(50)
    rewards, dones, late = (getattr(filled.theirs, name)[:, 0] for name in ("rewards", "dones", "timeouts"))
    for k, t in enumerate(rows[:, 0]):
        total, discount = 0.0, 1.0
        for step in range(t, t + 3):
            total += discount * rewards[step]
            discount *= 0.5
            if dones[step]:
                break
        ends = dones[step] and not late[step]
        assert float(ours.rewards[k]) == pytest.approx(total, abs=1e-5)
        assert float(ours.dones[k]) == float(ends)
        assert float((1 - ours.dones[k]) * ours.discounts[k]) == pytest.approx(0.0 if ends else discount)
        assert torch.equal(ours.next_observations[k], torch.as_tensor(filled.theirs.next_observations[step, 0]))


def test_a_batch_may_be_larger_than_the_buffer():
    filled = Filled(1, 2, steps=6)
    assert filled.ours.sample(40).observations.shape == (40, 2, SIDE, SIDE)
    empty = FrameReplayBuffer(100, filled.env.observation_space, ACTIONS, "cpu", stack=2)
    with pytest.raises(ReplayError, match="holds 0 complete"):
        empty.sample(4)


def space_of(channels: int) -> spaces.Box:
    return spaces.Box(0, 255, (channels, 1, 1), np.uint8)


def add(buffer: FrameReplayBuffer, obs: list[int], after: list[int], done: bool = False) -> None:
    stacks = (np.array(each, np.uint8).reshape(1, -1, 1, 1) for each in (obs, after))
    buffer.add(*stacks, np.array([obs[-1] % 3]), np.array([1.0]), np.array([done]), [{}])


def stacks_in(buffer: FrameReplayBuffer) -> set[tuple[int, ...]]:
    batch = buffer.sample(200)
    pairs = torch.cat([batch.observations, batch.next_observations], 1)
    return {tuple(row) for row in pairs.flatten(1).tolist()}


def test_a_reset_in_between_starts_a_new_episode():
    """`learn` does this when it is called a second time."""
    buffer = FrameReplayBuffer(50, space_of(3), ACTIONS, "cpu", stack=3)
    add(buffer, [0, 0, 1], [0, 1, 2])
    add(buffer, [0, 1, 2], [1, 2, 3])
    add(buffer, [0, 0, 7], [0, 7, 8])
    add(buffer, [0, 7, 8], [7, 8, 9])
    assert stacks_in(buffer) == {(0, 0, 1, 0, 1, 2), (0, 0, 7, 0, 7, 8)}, "nothing across the cut"


def test_frame_stacks_may_continue_across_episodes():
    """This happens if each life is an episode and frames are stacked inside that wrapper."""
    buffer = FrameReplayBuffer(50, space_of(3), ACTIONS, "cpu", stack=3)
    add(buffer, [0, 0, 1], [0, 1, 2], done=True)
    add(buffer, [1, 2, 3], [2, 3, 4])
    add(buffer, [2, 3, 4], [3, 4, 5])
    assert stacks_in(buffer) == {(0, 0, 1, 0, 1, 2), (1, 2, 3, 2, 3, 4)}


def test_repeated_first_frames():
    buffer = FrameReplayBuffer(50, space_of(3), ACTIONS, "cpu", stack=3, padding="repeat")
    add(buffer, [5, 5, 5], [5, 5, 6])
    add(buffer, [5, 5, 6], [5, 6, 7], done=True)
    add(buffer, [9, 9, 9], [9, 9, 8])
    assert stacks_in(buffer) == {(5, 5, 5, 5, 5, 6), (5, 5, 6, 5, 6, 7)}


@pytest.mark.parametrize(
    ("kwargs", "obs", "after", "message"),
    [
        ({}, [5, 5, 5], [5, 5, 6], 'give replay_buffer_kwargs={"padding": "repeat"}'),
        ({"padding": "repeat"}, [0, 0, 5], [0, 5, 6], 'give replay_buffer_kwargs={"padding": "zero"}'),
        ({}, [1, 2, 3], [2, 3, 4], "begins with 3 different frames"),
        ({}, [0, 0, 5], [5, 0, 6], "not stacks of 3 consecutive frames"),
    ],
)
def test_observations_that_are_not_frame_stacks_are_rejected(kwargs, obs, after, message):
    buffer = FrameReplayBuffer(50, space_of(3), ACTIONS, "cpu", stack=3, **kwargs)
    with pytest.raises(ReplayError) as refused:
        add(buffer, obs, after)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Box(0, 1, (4,)), "keeps images"),
        (spaces.Box(0, 1, (4, 8, 8), np.float32), "keeps images"),
        (space_of(3), "3 channels are not made of 4 stacked frames"),
    ],
)
def test_unsupported_observation_spaces_are_rejected_on_construction(space, message):
    with pytest.raises(ReplayError, match=message):
        FrameReplayBuffer(100, space, ACTIONS, "cpu")


def test_a_saved_and_loaded_buffer_gives_the_same_batches():
    filled = Filled(2, 3)
    loaded = pickle.loads(pickle.dumps(filled.ours))
    assert (loaded.pos, loaded.full, loaded.size()) == (60, False, 60)
    for mine, other in zip(filled.ours.sample(30), loaded.sample(30), strict=True):
        assert mine is other is None or torch.equal(mine, other)
    loaded.reset()
    assert loaded.size() == 0


def test_it_uses_an_eighth_of_the_memory():
    space = spaces.Box(0, 255, (4, 84, 84), np.uint8)
    ours = FrameReplayBuffer(5_000, space, ACTIONS, "cpu")
    theirs = ReplayBuffer(5_000, space, ACTIONS, "cpu")
    assert theirs.observations.nbytes + theirs.next_observations.nbytes > 7 * ours.nbytes


def train(buffer_class: type[ReplayBuffer], callback: BaseCallback | None = None, seed: int = 3) -> DQN:
    env = VecFrameStack(DummyVecEnv([lambda i=i: Frames(i, side=36) for i in range(2)]), 4)
    model = DQN(
        "CnnPolicy", env, buffer_size=500, learning_starts=20, batch_size=8, seed=seed, device="cpu",
        replay_buffer_class=buffer_class, train_freq=8,
    )  # fmt: skip
    return model.learn(160, callback=callback)


def test_dqn_learns_with_it_reproducibly():
    first, second = (train(FrameReplayBuffer) for _ in range(2))
    assert first.replay_buffer.size() == 80
    for a, b in zip(first.policy.parameters(), second.policy.parameters(), strict=True):
        assert torch.equal(a, b)


class Slow(gym.Wrapper):
    """Slow, so that the run's first seconds are on disk before it ends."""

    def step(self, action):
        time.sleep(0.004)
        return super().step(action)


class Broken(BaseCallback):
    """Ends a training like Ctrl-C."""

    def _on_step(self) -> bool:
        raise KeyboardInterrupt


def test_the_callback_records_and_logs_without_changing_the_training(tmp_path, monkeypatch, capsys):
    logged: dict[str, float] = {}
    plain = Logger.record

    def keep(self, key, value, exclude=None):
        logged[key] = value
        plain(self, key, value, exclude)

    monkeypatch.setattr(Logger, "record", keep)

    def learn(callback: BaseCallback | None) -> DQN:
        env = Slow(gym.make("CartPole-v1")) if callback else gym.make("CartPole-v1")
        made = DQN("MlpPolicy", env, learning_starts=50, seed=1, device="cpu", train_freq=1)
        return made.learn(700, callback=callback)

    run = tmp_path / "a rün"
    callback = HotloopCallback(run, summary_every=100, log_every=100, verbose=1)
    with_it, without = learn(callback), learn(None)
    for a, b in zip(with_it.policy.parameters(), without.policy.parameters(), strict=True):
        assert torch.equal(a, b)
    trace = hotloop.load(run)
    assert trace.state == "finished"
    assert trace.main.counts["env_steps"] == 700
    assert trace.main.counts["updates"] == 650
    assert trace.manifest["config"] == {"algorithm": "DQN", "n_envs": 1, "total_timesteps": 700}
    assert {"hotloop/env_steps_per_s", "hotloop/updates_per_s", "hotloop/overhead_share"} <= set(logged)
    shares = {key: value for key, value in logged.items() if key.startswith("time/phase_")}
    assert {"time/phase_env_share", "time/phase_backward_share"} <= set(shares)
    stderr = capsys.readouterr().err
    assert "of the loop recorded" in stderr and shlex.join(["hotloop", "explain", str(run)]) in stderr


def test_each_learn_call_gets_a_new_run_unless_a_recording_is_active(tmp_path):
    env = gym.make("CartPole-v1")
    model = DQN("MlpPolicy", env, learning_starts=10_000, device="cpu")
    callback = HotloopCallback(tmp_path / "run")
    model.learn(20, callback=callback)
    assert callback.path == tmp_path / "run"
    model.learn(20, callback=callback)
    assert callback.path == tmp_path / "run-2"
    with record(tmp_path / "outer"):
        model.learn(20, callback=callback)
        assert callback.path == tmp_path / "outer"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outer", "run", "run-2"]


def test_a_learn_call_after_an_interrupted_one_gets_a_new_run(tmp_path):
    model = DQN("MlpPolicy", gym.make("CartPole-v1"), learning_starts=10_000, device="cpu")
    with pytest.raises(KeyboardInterrupt):
        model.learn(20, callback=[HotloopCallback(tmp_path / "first"), Broken()])
    callback = HotloopCallback(tmp_path / "second")
    model.learn(20, callback=callback)
    assert callback.path == tmp_path / "second"
    assert hotloop.load(tmp_path / "first").state == "finished"


def test_invalid_numbers_are_rejected():
    with pytest.raises(HotloopError, match="log_every is -1"):
        HotloopCallback(log_every=-1)


def test_scalars_cover_the_windows_since_the_last_call():
    trace = make_trace(
        [place("env.step", Phase.ENV, 1.0, 40), place("replay.sample", Phase.SAMPLE, 3.0, 40)],
        windows={"env_steps": [10, 10, 30, 50]},
        process={"memory_bytes": [1 << 20, 2 << 20, 3 << 20, 4 << 20]},
    )
    ends = trace.main.windows.end_ns
    found = dict(scalars(trace, int(ends[1])))
    assert found["hotloop/env_steps_per_s"] == pytest.approx(40.0)
    assert found["time/phase_env_share"] == pytest.approx(0.25)
    assert found["time/phase_sample_share"] == pytest.approx(0.75)
    assert found["hotloop/overhead_share"] == 0.004
    assert found["hotloop/memory_mb"] == pytest.approx(4.194304)
    assert dict(scalars(trace, int(ends[-1]))) == {}, "no new windows"
