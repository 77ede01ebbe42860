"""The fused kernels equal their plain NumPy twins for any sizes and options."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hotloop.learn import (
    DQN,
    PPO,
    DQNConfig,
    PPOConfig,
    QShape,
    Rollout,
    Transitions,
    dqn_fused,
    dqn_twin,
    ppo_fused,
    ppo_twin,
)
from hotloop.learn.choose import made_up_batch
from hotloop.learn.matmul import matmul

SIZES = st.integers(1, 70)
SEEDS = st.integers(0, 2**32 - 1)


@settings(deadline=None, max_examples=150)
@given(rows=SIZES, depth=SIZES, columns=SIZES, seed=SEEDS, transposed=st.booleans(), relu=st.booleans())
def test_matmul(rows: int, depth: int, columns: int, seed: int, transposed: bool, relu: bool) -> None:
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((depth, rows) if transposed else (rows, depth), dtype=np.float32)
    a = a.T if transposed else a
    b, bias = rng.standard_normal((depth, columns), dtype=np.float32), rng.standard_normal(rows, dtype=np.float32)
    # One row more on either side, to see that nothing else is written.
    room = np.full((rows + 2, columns), 7, np.float32)
    matmul(room[1:-1], a, b, bias, np.float32(0 if relu else -np.inf))
    expected = a.astype(np.float64) @ b + bias[:, None]
    expected = np.maximum(expected, 0) if relu else expected
    np.testing.assert_allclose(room[1:-1], expected, atol=2e-5)
    assert np.all(room[[0, -1]] == 7)


def test_matmul_keeps_what_is_not_a_number() -> None:
    out = np.zeros((1, 3), np.float32)
    a, b = np.ones((1, 2), np.float32), np.array([[1, np.nan, -4], [1, 1, 1]], np.float32)
    matmul(out, a, b, np.zeros(1, np.float32), np.float32(0))
    assert out[0, 0] == 2 and np.isnan(out[0, 1]) and out[0, 2] == 0


DQN_CONFIGS = st.builds(
    lambda inputs, actions, hidden, dueling, noisy, **rest: DQNConfig(
        QShape((inputs,), actions, hidden=hidden, dueling=dueling, noisy=noisy), **rest
    ),
    inputs=st.integers(1, 40),
    actions=st.integers(2, 6),
    hidden=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    dueling=st.booleans(),
    noisy=st.booleans(),
    batch=st.integers(1, 40),
    lr=st.floats(1e-4, 1e-2),
    double=st.booleans(),
    clip=st.sampled_from([0.0, 0.1, 1.0]),
    target_every=st.integers(1, 4),
    tau=st.sampled_from([0.01, 0.5, 1.0]),
)


@settings(deadline=None, max_examples=60)
@given(config=DQN_CONFIGS, updates=st.integers(1, 4), done=st.integers(0, 1000), seed=SEEDS)
def test_dqn_equals_its_twin(config: DQNConfig, updates: int, done: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    batch = made_up_batch(config, updates, rng)._replace(weight=rng.random(updates * config.batch, dtype=np.float32))
    kernel = DQN(config, seed=seed, kernel="numba")._kernel
    assert isinstance(kernel, dqn_fused.FusedMLP)
    ours = kernel.vectors
    theirs = dqn_fused.Vectors(*(vector.copy() for vector in ours))
    noise = rng.standard_normal((updates, 2, len(kernel.silence)), dtype=np.float32)
    arguments = (batch, kernel.net, kernel.numbers, noise, done)
    found = dqn_fused.update_many(ours, *arguments)
    expected = dqn_twin.update_many(theirs, *arguments)
    np.testing.assert_allclose(found[0], expected[0], atol=1e-4, rtol=1e-4)
    np.testing.assert_allclose(found[1], expected[1], atol=1e-4, rtol=1e-4)
    close(ours.mean, theirs.mean, 1e-5)
    close(ours.square, theirs.square, 1e-5)
    moved(ours.weights, theirs.weights, theirs.mean, config.lr)


@settings(deadline=None, max_examples=30)
@given(config=DQN_CONFIGS, seed=SEEDS)
def test_dqn_equals_torch(config: DQNConfig, seed: int) -> None:
    batch = made_up_batch(config, 2, np.random.default_rng(seed))
    fused, torch = DQN(config, seed=seed, kernel="numba"), DQN(config, seed=seed, kernel="torch")
    np.testing.assert_allclose(fused.q_values(batch.obs), torch.q_values(batch.obs), atol=1e-5)
    found, expected = fused.update(batch), torch.update(batch)
    np.testing.assert_allclose(found.td_abs, expected.td_abs, atol=1e-4, rtol=1e-4)
    np.testing.assert_allclose(found.loss, expected.loss, atol=1e-4, rtol=1e-4)
    ours, theirs = fused._state.online, torch._state.online
    close(ours.mean.numpy(), theirs.mean.numpy(), 1e-5)
    moved(ours.weights.numpy(), theirs.weights.numpy(), theirs.mean.numpy(), config.lr)


def close(found: np.ndarray, expected: np.ndarray, part: float) -> None:
    """Equal up to a part of the largest number, as sums in another order are."""
    np.testing.assert_allclose(found, expected, rtol=0, atol=part * (1e-3 + np.abs(expected).max()))


def moved(found: np.ndarray, expected: np.ndarray, mean: np.ndarray, lr: float) -> None:
    """Equal weights, where the gradient is more than rounding.

    Adam makes a whole step out of a gradient of any size: where the sum of a batch is zero but for rounding, the
    sign of the step is chance.
    """
    sure = np.abs(mean) > 1e-4 * np.abs(mean).max()
    np.testing.assert_allclose(found[sure], expected[sure], rtol=0, atol=1e-5 + 0.02 * lr)


PPO_CONFIGS = st.builds(
    lambda inputs, **rest: PPOConfig((inputs,), **rest),
    inputs=st.integers(1, 40),
    actions=st.integers(2, 6),
    hidden=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    minibatch=st.integers(2, 40),
    clip=st.sampled_from([0.05, 0.2]),
    entropy=st.sampled_from([0.0, 0.01, 0.5]),
    value_weight=st.sampled_from([0.5, 1.0]),
    max_grad_norm=st.sampled_from([0.0, 0.5]),
    normalise_advantage=st.booleans(),
)


@settings(deadline=None, max_examples=60)
@given(config=PPO_CONFIGS, updates=st.integers(1, 3), done=st.integers(0, 1000), seed=SEEDS)
def test_ppo_equals_its_twin(config: PPOConfig, updates: int, done: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = 2 * config.minibatch
    numbers = rng.standard_normal((2, rows), dtype=np.float32)
    obs = rng.standard_normal((rows, config.observation[0]), dtype=np.float32)
    log_prob = np.log(rng.uniform(0.1, 0.9, rows)).astype(np.float32)
    rollout = Rollout(obs, rng.integers(config.actions, size=rows), log_prob, numbers[0], numbers[1])
    order = rng.integers(rows, size=(updates, config.minibatch))
    kernel = PPO(config, seed=seed, kernel="numba")._kernel
    assert isinstance(kernel, ppo_fused.FusedMLP)
    ours = kernel.vectors
    theirs = ppo_fused.Vectors(*(vector.copy() for vector in ours))
    found = ppo_fused.update_many(ours, rollout, order, kernel.widths, kernel.numbers, done)
    expected = ppo_twin.update_many(theirs, rollout, order, kernel.widths, kernel.numbers, done)
    # One row may stand on either side of the clipping's edge.
    np.testing.assert_allclose(found[:, :4], expected[:, :4], atol=1e-4, rtol=1e-4)
    np.testing.assert_allclose(found[:, 4], expected[:, 4], atol=1.01 / config.minibatch)
    close(ours.mean, theirs.mean, 1e-4)
    moved(ours.weights, theirs.weights, theirs.mean, config.value_lr)


def test_a_batch_may_come_without_weights() -> None:
    config = DQNConfig(QShape((3,), 2, hidden=(4, 4)), batch=4)
    batch = made_up_batch(config, 1, np.random.default_rng(0))
    assert isinstance(batch, Transitions) and batch.weight is None
    weighted = batch._replace(weight=np.ones(4, np.float32))
    plain, given_ones = DQN(config, kernel="numba"), DQN(config, kernel="numba")
    plain.update(batch)
    given_ones.update(weighted)
    assert all(np.array_equal(a, given_ones.tensors()[name]) for name, a in plain.tensors().items())
