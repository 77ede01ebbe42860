"""The PPO learner: both kernels agree, checkpoints restore it, invalid arguments are reported."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hotloop.errors import HotloopError
from hotloop.training.learn import PPO, PPOConfig, PPORule, Rollout, choose_kernel
from hotloop.training.pipelines.ppo_snake import ppo_loss

RULE = PPORule(ppo_loss, numba=True)
SMALL = PPOConfig((5,), 3, hidden=(16, 8), minibatch=8, epochs=2)


def rollout(rows: int = 32, seed: int = 0, agent: PPO | None = None) -> Rollout:
    rng = np.random.default_rng(seed)
    obs = rng.standard_normal((rows, 5), dtype=np.float32)
    numbers = rng.standard_normal((2, rows), dtype=np.float32)
    if agent is None:
        action, log_prob = rng.integers(3, size=rows), np.log(rng.uniform(0.2, 0.5, rows)).astype(np.float32)
    else:
        action, log_prob, _ = agent.act(obs, rng)
    return Rollout(obs, action, log_prob, 3 * numbers[0], numbers[1])


def assert_close(a: dict[str, np.ndarray], b: dict[str, np.ndarray], atol: float = 0.0) -> None:
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_allclose(a[name], b[name], atol=atol, rtol=0, err_msg=name)


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("max_grad_norm", [0.0, 0.5])
def test_both_kernels_give_the_same_weights(normalise: bool, max_grad_norm: float) -> None:
    config = replace(SMALL, normalise_advantage=normalise, max_grad_norm=max_grad_norm)
    plain, fused = PPO(config, RULE, seed=3), PPO(config, RULE, seed=3, kernel="numba")
    for seed in range(3):
        wanted = plain.update(rollout(seed=seed), np.random.default_rng(seed))
        found = fused.update(rollout(seed=seed), np.random.default_rng(seed))
        np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert plain.updates == fused.updates == 3 * 2 * 4
    assert_close(fused.tensors(), plain.tensors(), atol=2e-6)


@pytest.mark.parametrize("kernel", ["torch", "numba"])
def test_actions_are_sampled_from_the_policy(kernel: str) -> None:
    agent = PPO(SMALL, RULE, kernel=kernel)
    obs = np.repeat(np.ones((1, 5), np.float32), 30_000, axis=0)
    acted = agent.act(obs, np.random.default_rng(0))
    logits = agent.logits(obs[:1])[0].astype(np.float64)
    policy = np.exp(logits) / np.exp(logits).sum()
    np.testing.assert_allclose(np.bincount(acted.action, minlength=3) / 30_000, policy, atol=0.02)
    np.testing.assert_allclose(acted.log_prob, np.log(policy)[acted.action], atol=1e-6)
    np.testing.assert_allclose(acted.value, agent.value(obs), atol=0)
    assert acted.action.dtype == np.int64 and acted.log_prob.dtype == acted.value.dtype == np.float32
    assert agent.greedy(obs[:1]).tolist() == [policy.argmax()]


def test_ratio_is_one_right_after_acting() -> None:
    agent = PPO(replace(SMALL, epochs=1, minibatch=32), RULE, kernel="numba")
    done = agent.update(rollout(agent=agent), np.random.default_rng(0))
    assert done.kl == pytest.approx(0, abs=1e-6) and done.clip_fraction == 0


@pytest.mark.parametrize("kernel", ["torch", "numba"])
def test_loaded_learner_continues_bit_by_bit(kernel: str) -> None:
    original, resumed = PPO(SMALL, RULE, seed=1, kernel=kernel), PPO(SMALL, RULE, seed=2, kernel=kernel)
    original.update(rollout(), np.random.default_rng(0))
    resumed.load(original.tensors())
    for agent in (original, resumed):
        agent.update(rollout(seed=1), np.random.default_rng(1))
    assert_close(resumed.tensors(), original.tensors())


@pytest.mark.parametrize("kernel", ["torch", "numba"])
def test_it_learns_a_bandit(kernel: str) -> None:
    agent = PPO(replace(SMALL, policy_lr=1e-2, value_lr=1e-2), RULE, kernel=kernel)
    rng = np.random.default_rng(0)
    for _ in range(15):
        obs = rng.standard_normal((64, 5), dtype=np.float32)
        acted = agent.act(obs, rng)
        reward = np.where(acted.action == (obs[:, 0] > 0), 1.0, 0.0).astype(np.float32)
        agent.update(Rollout(obs, acted.action, acted.log_prob, reward - acted.value, reward), rng)
    tests = np.zeros((2, 5), np.float32)
    tests[:, 0] = [1.5, -1.5]
    assert agent.greedy(tests).tolist() == [1, 0]
    assert agent.value(tests).min() > 0.5


def test_choosing_a_kernel_does_not_change_the_learner() -> None:
    agent = PPO(SMALL, RULE)
    before = agent.tensors()
    choice = choose_kernel(agent, updates_per_call=4)
    assert choice.update_s.keys() == {"torch", "numba"}
    assert_close(agent.tensors(), before)


def test_invalid_arguments_are_reported() -> None:
    grid = replace(SMALL, observation=(6, 6, 3))
    assert PPO(grid, RULE).supported_kernels() == ["torch"]
    with pytest.raises(HotloopError, match="the 'numba' kernel cannot run this network"):
        PPO(grid, RULE, kernel="numba")
    with pytest.raises(HotloopError, match="got 12 rows"):
        PPO(SMALL, RULE).update(rollout(rows=12), np.random.default_rng(0))
    with pytest.raises(HotloopError, match="minibatch is 1"):
        replace(SMALL, minibatch=1)
    with pytest.raises(HotloopError, match="has no"):
        PPO(SMALL, RULE).load({})


@pytest.mark.parametrize("kernel", ["torch", "numba"])
@pytest.mark.parametrize("shape", [(32, 4), (32, 6), (5,), (32, 5, 1)])
def test_observations_of_another_shape_are_rejected(kernel: str, shape: tuple[int, ...]) -> None:
    agent, obs, rng = PPO(SMALL, RULE, kernel=kernel), np.zeros(shape, np.float32), np.random.default_rng(0)
    before = agent.tensors()
    message = r"obs has shape .*: the network was made for observations of \(5,\); give \(N, 5\)"
    calls = [lambda x: agent.act(x, rng), lambda x: agent.update(rollout()._replace(obs=x), rng)]
    for call in (agent.logits, agent.value, agent.greedy, *calls):
        with pytest.raises(HotloopError, match=message):
            call(obs)
    assert_close(agent.tensors(), before)


def test_grid_observations() -> None:
    agent = PPO(replace(SMALL, observation=(4, 4, 2)), RULE)
    obs = np.random.default_rng(0).integers(2, size=(8, 4, 4, 2), dtype=np.uint8)
    acted = agent.act(obs, np.random.default_rng(1))
    before = agent.tensors()
    ones = np.arange(8, dtype=np.float32)
    agent.update(Rollout(obs, acted.action, acted.log_prob, ones, ones), np.random.default_rng(2))
    name = "actor_critic.weights.policy.encoder.near.weight"
    assert not np.array_equal(agent.tensors()[name], before[name])
