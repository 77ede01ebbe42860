"""VectorReplay: returns computed by hand, errors, state, priorities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hotloop.training.replay import Prioritised, ReplayError, VectorReplay


def step(replay: VectorReplay, obs: list[float], reward: float = 0.0, end: str = "") -> None:
    """Add a step in which environment i sees obs[i], then obs[i] + 0.5, and does obs[i]."""
    seen = np.array(obs, np.float32)[:, None]
    n = len(obs)
    replay.add(
        seen,
        seen[:, 0].astype(np.int64),
        np.full(n, reward, np.float32),
        np.full(n, end == "terminated"),
        np.full(n, end == "truncated"),
        seen + np.float32(0.5),
    )


def sampled(replay: VectorReplay) -> dict[float, tuple[float, float, float]]:
    """Sample everything; return reward, discount and next observation by observation."""
    rng = np.random.default_rng(0)
    found = {}
    for _ in range(40):
        batch = replay.sample(len(replay), rng)
        for i in range(len(replay)):
            assert batch.action[i] == batch.obs[i, 0]
            found[float(batch.obs[i, 0])] = (
                float(batch.reward[i]),
                float(batch.discount[i]),
                float(batch.next_obs[i, 0]),
            )
    return found


def test_three_step_returns_by_hand() -> None:
    replay = VectorReplay(10, 1, (1,), n_step=3, gamma=0.5)
    for k, (reward, end) in enumerate([(1, ""), (2, ""), (4, "truncated"), (8, ""), (16, "terminated"), (32, "")]):
        step(replay, [k], reward, end)
    assert sampled(replay) == {
        0: (1 + 0.5 * 2 + 0.25 * 4, 0.125, 2.5),
        1: (2 + 0.5 * 4, 0.25, 2.5),  # cut short by the truncation, bootstrapped from its last observation
        2: (4, 0.5, 2.5),
        3: (8 + 0.5 * 16, 0, 4.5),  # nothing is bootstrapped after a termination
    }


def test_terminated_and_truncated_at_once_is_terminated() -> None:
    replay = VectorReplay(4, 1, (1,))
    replay.add(np.zeros((1, 1), np.float32), np.zeros(1, np.int64), [3.0], [True], [True], np.ones((1, 1), np.float32))
    assert sampled(replay) == {0: (3, 0, 1)}


def test_the_newest_transitions_are_kept() -> None:
    replay = VectorReplay(7, 2, (1,))
    assert replay.capacity == 6
    for k in range(5):
        step(replay, [k, 10 + k])
        assert len(replay) == min(6, 2 * (k + 1))
    assert sampled(replay).keys() == {2, 3, 4, 12, 13, 14}


def test_all_transitions_are_equally_likely() -> None:
    replay = VectorReplay(40, 4, (1,))
    for k in range(13):
        step(replay, [100 * e + k for e in range(4)])
    rng = np.random.default_rng(5)
    counts: dict[float, int] = {}
    for _ in range(1000):
        for obs in replay.sample(40, rng).obs[:, 0].tolist():
            counts[obs] = counts.get(obs, 0) + 1
    assert len(counts) == 40
    # 1,000 each, with a standard deviation of 31: five of them.
    assert all(abs(each - 1000) < 160 for each in counts.values())


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64, np.int16])
@pytest.mark.parametrize("shape", [(), (1,), (5, 5, 3), (7,)])
def test_observations_of_any_shape_and_type(dtype: Any, shape: tuple[int, ...]) -> None:
    replay = VectorReplay(8, 2, shape, dtype, action_shape=(3,), action_dtype=np.float32)
    chance = np.random.default_rng(2)
    obs, next_obs = (chance.integers(0, 200, (2, 2, *shape))).astype(dtype)
    action = chance.random((2, 3), np.float32)
    replay.add(obs, action, [1, 2], np.zeros(2, bool), np.zeros(2, bool), next_obs)
    batch = replay.sample(2, chance)
    env = batch.index % 2
    np.testing.assert_array_equal(batch.obs, obs[env])
    np.testing.assert_array_equal(batch.next_obs, next_obs[env])
    np.testing.assert_array_equal(batch.action, action[env])
    assert batch.obs.dtype == dtype and batch.obs.flags.c_contiguous


def test_sampling_is_reproducible_and_draws_one_random_number() -> None:
    replay = VectorReplay(40, 4, (1,))
    for k in range(10):
        step(replay, [100 * e + k for e in range(4)])
    one, other = np.random.default_rng(3), np.random.default_rng(3)
    np.testing.assert_array_equal(replay.sample(40, one).index, replay.sample(40, other).index)
    other.bit_generator.random_raw()
    assert one.bit_generator.random_raw() != other.bit_generator.random_raw()


def test_to_torch_shares_memory() -> None:
    replay = VectorReplay(4, 1, (1,))
    step(replay, [1])
    batch = replay.sample(1, np.random.default_rng(0))
    batch.to_torch().obs[0, 0] = 9
    assert batch.obs[0, 0] == 9


def prioritised(size: int, alpha: float = 1.0, beta: float = 1.0) -> VectorReplay:
    replay = VectorReplay(size, 1, (1,), prioritised=Prioritised(alpha, beta, 1e-6))
    for k in range(size):
        step(replay, [k])
    replay.sample(size, np.random.default_rng(0))  # priorities are of what was sampled once
    return replay


def test_priorities_decide_how_often_and_weights_make_up_for_it() -> None:
    replay = prioritised(4)
    rng = np.random.default_rng(0)
    replay.update_priorities(np.arange(4), np.array([1, 1, 2, 4], np.float32))
    counts = np.zeros(4)
    for _ in range(1000):
        batch = replay.sample(4, rng)
        np.add.at(counts, batch.index, 1)
        # (p_least / p)^beta
        np.testing.assert_allclose(batch.weight, np.array([1, 1, 0.5, 0.25])[batch.index], rtol=1e-5)
    np.testing.assert_allclose(counts / 4000, [1 / 8, 1 / 8, 2 / 8, 4 / 8], atol=0.01)


def test_alpha_and_beta_are_powers() -> None:
    replay = prioritised(2, alpha=0.5, beta=0.5)
    replay.update_priorities(np.arange(2), np.array([1, 16], np.float32))
    rng = np.random.default_rng(0)
    weights = {}
    for _ in range(50):
        batch = replay.sample(2, rng)
        weights |= dict(zip(batch.index.tolist(), batch.weight.tolist(), strict=True))
    assert weights == pytest.approx({0: 1.0, 1: 0.5})
    assert replay.sample(2, rng, beta=0.0).weight.tolist() == [1, 1]


def test_new_steps_get_the_largest_priority_so_far() -> None:
    replay = prioritised(3)
    rng = np.random.default_rng(0)
    replay.sample(3, rng)
    replay.update_priorities(np.arange(3), np.array([0, 0, 99], np.float32))
    step(replay, [3])
    drawn = np.concatenate([replay.sample(3, rng).index for _ in range(300)])
    assert set(drawn.tolist()) <= {1, 2, 3}
    assert (drawn == 2).mean() == pytest.approx(0.5, abs=0.06)
    assert (drawn == 3).mean() == pytest.approx(0.5, abs=0.06)


def test_priorities_of_overwritten_steps_are_ignored() -> None:
    replay = prioritised(3)
    rng = np.random.default_rng(0)
    old = replay.sample(3, rng).index
    for k in range(3, 6):
        step(replay, [k])
    replay.sample(3, rng)
    replay.update_priorities(old, np.full(3, 1e6, np.float32))
    drawn = np.concatenate([replay.sample(3, rng).index for _ in range(400)])
    np.testing.assert_allclose(np.bincount(drawn)[3:] / len(drawn), [1 / 3] * 3, atol=0.05)


def test_any_part_of_a_large_prioritised_batch_is_a_fair_batch() -> None:
    replay = prioritised(1000)
    index = replay.sample(1000, np.random.default_rng(0)).index
    # Drawn from equal parts of the sum in order, the first tenth would be below 100.
    assert 350 < index[:100].mean() < 650


@pytest.mark.parametrize(
    ("errors", "says"),
    [
        ([1.0, np.nan], "not a number"),
        ([-1.0, 1.0], "negative"),
        ([np.inf, 1.0], "infinite"),
        ([1.0], "one error for each"),
    ],
)
def test_invalid_td_errors_are_rejected_without_side_effects(errors: list[float], says: str) -> None:
    replay = prioritised(2)
    before = replay.state()
    with pytest.raises(ReplayError, match=says):
        replay.update_priorities(np.arange(2), np.array(errors, np.float32))
    assert all(np.array_equal(before[name], array) for name, array in replay.state().items())


def call(**changed: Any) -> dict[str, Any]:
    good = {
        "obs": np.zeros((2, 3), np.float32),
        "action": np.zeros(2, np.int64),
        "reward": np.zeros(2, np.float32),
        "terminated": np.zeros(2, bool),
        "truncated": np.zeros(2, bool),
        "next_obs": np.zeros((2, 3), np.float32),
    }
    return good | changed


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"obs": np.zeros((2, 4), np.float32)}, r"obs is float32 \[2, 4\] where this replay keeps float32 \[2, 3\]"),
        ({"obs": np.zeros((2, 3))}, r"obs is float64 \[2, 3\] where this replay keeps float32"),
        ({"next_obs": np.zeros(3, np.float32)}, r"next_obs is float32 \[3\]"),
        ({"action": np.zeros(2, np.int32)}, r"action is int32 \[2\] where this replay keeps int64"),
        ({"action": np.zeros((2, 1), np.int64)}, r"action is int64 \[2, 1\]"),
        ({"reward": np.zeros(1)}, r"reward is float64 \[1\]"),
        ({"reward": np.zeros(2, bool)}, r"reward is bool"),
        ({"terminated": np.zeros(2)}, r"terminated is float64 \[2\] where this replay keeps bool \[2\]"),
        ({"truncated": True}, r"truncated is bool \[\]"),
    ],
)
def test_a_step_of_another_shape_or_dtype_is_rejected_without_side_effects(changed: dict[str, Any], says: str) -> None:
    replay = VectorReplay(8, 2, (3,))
    replay.add(**call(obs=np.ones((2, 3), np.float32)))
    with pytest.raises(ReplayError, match=says):
        replay.add(**call(**changed))
    assert len(replay) == 2
    replay.add(**call(obs=np.full((2, 3), 2, np.float32)))
    assert {float(each) for each in replay.sample(4, np.random.default_rng(0)).obs.ravel()} <= {1.0, 2.0}


def test_sampling_too_early_raises() -> None:
    replay = VectorReplay(8, 2, (1,), n_step=2)
    rng = np.random.default_rng(0)
    step(replay, [0, 0])
    with pytest.raises(ReplayError, match="cannot sample 1 transitions from a replay that holds 0 complete ones"):
        replay.sample(1, rng)
    step(replay, [0, 0])
    assert len(replay) == 2
    with pytest.raises(ReplayError, match="cannot sample 3 transitions from a replay that holds 2"):
        replay.sample(3, rng)
    with pytest.raises(ReplayError, match="sample one or more"):
        replay.sample(0, rng)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"capacity": 5, "num_envs": 3, "n_step": 2}, "gives 1 steps to each of 3 environments.*make it at least 6"),
        ({"num_envs": 0}, "num_envs is 0"),
        ({"n_step": 0}, "n_step is 0"),
        ({"gamma": 1.5}, "gamma is 1.5"),
        ({"storage": "disk"}, "storage 'disk' is unknown"),
        ({"capacity": 10**15}, "does not fit into memory.*lower the capacity"),
    ],
)
def test_invalid_options_are_rejected(options: dict[str, Any], says: str) -> None:
    from hotloop.errors import HotloopError

    with pytest.raises(HotloopError, match=says):
        VectorReplay(**({"capacity": 8, "num_envs": 2, "obs_shape": (1,)} | options))


@pytest.mark.parametrize("options", [{"alpha": -0.1}, {"beta": 1.1}, {"epsilon": 0.0}])
def test_invalid_priority_options_are_rejected(options: dict[str, float]) -> None:
    with pytest.raises(ReplayError, match=f"{next(iter(options))} is"):
        Prioritised(**options)


def test_a_state_is_a_copy_of_the_written_slots() -> None:
    replay = VectorReplay(1000, 2, (1,))
    for k in range(3):
        step(replay, [k, k])
    state = replay.state()
    assert state["words"].shape[:2] == (2, 3)
    kept = {name: array.copy() for name, array in state.items()}
    step(replay, [9, 9])
    assert all(np.array_equal(kept[name], array) for name, array in state.items())


def test_a_state_of_another_shape_is_rejected_without_side_effects() -> None:
    replay = VectorReplay(8, 2, (1,))
    step(replay, [1, 2])
    wider = VectorReplay(8, 2, (2,))
    wider.add(*call(obs=np.zeros((2, 2), np.float32), next_obs=np.zeros((2, 2), np.float32)).values())
    with pytest.raises(ReplayError, match="'words' of the state"):
        replay.restore(wider.state())
    with pytest.raises(ReplayError, match="no 'heads'"):
        replay.restore({})
    with pytest.raises(ReplayError, match="no priorities for 8 steps"):
        VectorReplay(8, 2, (1,), prioritised=Prioritised()).restore(replay.state())
    assert sampled(replay).keys() == {1, 2}


def test_no_return_spans_a_cut() -> None:
    replay = VectorReplay(8, 1, (1,), n_step=2, gamma=0.5)
    for k in range(3):
        step(replay, [k], 1.0)
    replay.cut()
    for k in range(3, 6):
        step(replay, [k], 1.0)
    assert sampled_without(replay) == {0, 1, 3, 4}


def sampled_without(replay: VectorReplay) -> set[float]:
    rng = np.random.default_rng(0)
    return {float(obs) for _ in range(40) for obs in replay.sample(4, rng).obs[:, 0]}
