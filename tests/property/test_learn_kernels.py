"""The fused kernels equal their NumPy references for any sizes and options."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

pytest.importorskip("torch")

from torch import from_numpy

from hotloop.training.learn import DQN, PPO, DQNConfig, PPOConfig, PPORule, QRule, QShape, Rollout, Transitions
from hotloop.training.learn.dqn import numba_kernel as dqn_fused
from hotloop.training.learn.dqn import numba_reference as dqn_reference
from hotloop.training.learn.dqn.learner import random_dqn_batch
from hotloop.training.learn.dqn.state import ADAM_EPS
from hotloop.training.learn.kernels.matmul import matmul
from hotloop.training.learn.ppo import numba_kernel as ppo_fused
from hotloop.training.learn.ppo import numba_reference as ppo_reference
from hotloop.training.learn.ppo.state import ADAM_EPS as PPO_ADAM_EPS
from hotloop.training.pipelines.dqn_snake import move_target, q_loss
from hotloop.training.pipelines.ppo_snake import ppo_loss

RULE = QRule(q_loss, move_target, numba=True)
PPO_RULE = PPORule(ppo_loss, numba=True)

SIZES = st.integers(1, 70)
SEEDS = st.integers(0, 2**32 - 1)


@settings(deadline=None, max_examples=150)
@given(rows=SIZES, depth=SIZES, columns=SIZES, seed=SEEDS, transposed=st.booleans(), relu=st.booleans())
def test_matmul(rows: int, depth: int, columns: int, seed: int, transposed: bool, relu: bool) -> None:
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((depth, rows) if transposed else (rows, depth), dtype=np.float32)
    a = a.T if transposed else a
    b, bias = rng.standard_normal((depth, columns), dtype=np.float32), rng.standard_normal(rows, dtype=np.float32)
    # One extra row on either side, to check that nothing else is written.
    padded = np.full((rows + 2, columns), 7, np.float32)
    matmul(padded[1:-1], a, b, bias, np.float32(0 if relu else -np.inf))
    expected = a.astype(np.float64) @ b + bias[:, None]
    expected = np.maximum(expected, 0) if relu else expected
    np.testing.assert_allclose(padded[1:-1], expected, atol=2e-5)
    assert np.all(padded[[0, -1]] == 7)


def test_matmul_preserves_nan() -> None:
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


UNIT = 2.0**-24
"""Rounding error of one float32 operation, relative to its result."""
DRAWS = 8


def nearby(array: np.ndarray, depth: int, rng: np.random.Generator | None) -> np.ndarray:
    """The same numbers, each changed by up to `depth` rounding errors; unchanged without a generator."""
    if rng is None:
        return array.copy()
    return (array * (1 + depth * UNIT * rng.uniform(-1, 1, array.shape))).astype(array.dtype)


def rounding(gradient: Callable[[np.random.Generator | None], np.ndarray]) -> float:
    """Largest difference to expect between two correct implementations of a gradient.

    Matrix products are backward stable: a product with inner dimension `depth` is the exact product of factors that
    are off by at most `depth` rounding errors. So the result of a correct implementation is the exact gradient of a
    nearby problem; random nearby problems show how large the difference is. If a ReLU or an argmax depends on
    rounding, the random problems include both outcomes.
    """
    exact = gradient(None)
    return max(float(np.abs(gradient(np.random.default_rng(draw)) - exact).max()) for draw in range(DRAWS))


def check_adam(found: Moments, expected: Moments, before: np.ndarray, step: Callable[[np.ndarray], np.ndarray]) -> None:
    """Check the first step of Adam from `before`, for a gradient that is known up to rounding.

    `mean` is a tenth of the gradient. The step grows with it, and covers nearly its whole range around zero: if the
    sum over a batch is zero except for rounding, even the sign of the step is random. Clipping divides by the norm
    and multiplies by the limit: a few rounding errors that do not show in nearby problems if all are clipped to the
    same value, as with a single non-zero gradient.
    """
    np.testing.assert_allclose(found.mean, expected.mean, rtol=8 * UNIT, atol=expected.error)
    np.testing.assert_allclose(
        np.sqrt(found.square), np.sqrt(expected.square), rtol=1e-5, atol=expected.error * np.sqrt(0.001) / 0.1
    )
    slack = 4 * UNIT * np.abs(before) + 1e-6 * np.abs(step(expected.mean))
    assert np.all(found.weights <= before - step(expected.mean - expected.error) + slack)
    assert np.all(found.weights >= before - step(expected.mean + expected.error) - slack)


class Moments(NamedTuple):
    """Weights and Adam's moments after the first update, and the tolerance of the mean."""

    weights: np.ndarray
    mean: np.ndarray
    square: np.ndarray
    error: float = 0.0


def adam_step(lr: float, eps: float, step: int) -> Callable[[np.ndarray], np.ndarray]:
    """Adam's change in update number `step` as a function of the mean, if all previous gradients were zero."""

    def change(mean: np.ndarray) -> np.ndarray:
        root = np.abs(mean) / 0.1 * np.sqrt(0.001 / (1 - 0.999**step))
        return lr / (1 - 0.9**step) * mean / (root + eps)

    return change


@settings(deadline=None, max_examples=60)
@given(config=DQN_CONFIGS, done=st.integers(0, 1000), seed=SEEDS)
def test_dqn_equals_reference(config: DQNConfig, done: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    batch = random_dqn_batch(config, 1, rng)._replace(weight=rng.random(config.batch, dtype=np.float32))
    kernel = DQN(config, RULE, seed=seed, kernel="numba")._kernel
    assert isinstance(kernel, dqn_fused.FusedMLP)
    ours = kernel.vectors
    begin = dqn_fused.Vectors(*(vector.copy() for vector in ours))
    noise = rng.standard_normal((1, 2, len(kernel.no_noise)), dtype=np.float32)
    depth = longest_sum(config)

    def reference(rng: np.random.Generator | None) -> tuple[dqn_fused.Vectors, tuple]:
        vectors = dqn_fused.Vectors(*(nearby(vector, depth, rng) for vector in begin))
        found = dqn_reference.update_many(
            vectors, near_batch(batch, depth, rng), kernel.net, kernel.numbers, noise, done
        )
        return vectors, found

    found = dqn_fused.update_many(ours, batch, kernel.net, kernel.numbers, noise, done)
    theirs, expected = reference(None)
    for output, expected_output, part in zip(found, expected, (0, 1), strict=True):
        error = rounding(lambda rng, part=part: reference(rng)[1][part])
        np.testing.assert_allclose(output, expected_output, rtol=1e-5, atol=error)
    error = rounding(lambda rng: reference(rng)[0].mean)
    step = adam_step(config.lr, ADAM_EPS, done + 1)
    check_adam(
        Moments(ours.weights, ours.mean, ours.square),
        Moments(theirs.weights, theirs.mean, theirs.square, error),
        begin.weights,
        step,
    )


@settings(deadline=None, max_examples=30)
@given(config=DQN_CONFIGS, updates=st.integers(2, 4), done=st.integers(0, 1000), seed=SEEDS)
def test_several_dqn_updates_in_one_call_equal_several_calls(
    config: DQNConfig, updates: int, done: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    batch = random_dqn_batch(config, updates, rng)._replace(weight=rng.random(updates * config.batch, dtype=np.float32))
    kernel = DQN(config, RULE, seed=seed, kernel="numba")._kernel
    assert isinstance(kernel, dqn_fused.FusedMLP)
    together = kernel.vectors
    one_by_one = dqn_fused.Vectors(*(vector.copy() for vector in together))
    noise = rng.standard_normal((updates, 2, len(kernel.no_noise)), dtype=np.float32)
    found = dqn_fused.update_many(together, batch, kernel.net, kernel.numbers, noise, done)
    for k in range(updates):
        rows = slice(k * config.batch, (k + 1) * config.batch)
        part = Transitions(*(np.ascontiguousarray(column[rows]) for column in batch))
        td_abs, loss = dqn_fused.update_many(one_by_one, part, kernel.net, kernel.numbers, noise[k : k + 1], done + k)
        np.testing.assert_array_equal(td_abs, found[0][rows])
        np.testing.assert_array_equal(loss, found[1][k : k + 1])
    for a, b in zip(together, one_by_one, strict=True):
        np.testing.assert_array_equal(a, b)


@settings(deadline=None, max_examples=30)
@given(config=DQN_CONFIGS, seed=SEEDS)
def test_dqn_equals_torch(config: DQNConfig, seed: int) -> None:
    batch = random_dqn_batch(config, 1, np.random.default_rng(seed))
    fused, torch = DQN(config, RULE, seed=seed, kernel="numba"), DQN(config, RULE, seed=seed, kernel="torch")
    np.testing.assert_allclose(fused.q_values(batch.obs), torch.q_values(batch.obs), atol=1e-5)
    begin = fused._state.online.weights.numpy().copy()

    def mean_of_torch(rng: np.random.Generator | None) -> np.ndarray:
        learner = DQN(config, RULE, seed=seed, kernel="torch")
        depth = longest_sum(config)
        for vector in (learner._state.online.weights, learner._state.target_weights):
            vector.copy_(from_numpy(nearby(vector.numpy(), depth, rng)))
        learner.update(near_batch(batch, depth, rng))
        return learner._state.online.mean.numpy()

    found, expected = fused.update(batch), torch.update(batch)
    np.testing.assert_allclose(found.td_abs, expected.td_abs, atol=1e-4, rtol=1e-4)
    np.testing.assert_allclose(found.loss, expected.loss, atol=1e-4, rtol=1e-4)
    check_adam(
        Moments(*vectors_of(fused)),
        Moments(*vectors_of(torch), rounding(mean_of_torch)),
        begin,
        adam_step(config.lr, ADAM_EPS, 1),
    )


def vectors_of(learner: DQN) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    online = learner._state.online
    return online.weights.numpy(), online.mean.numpy(), online.square.numpy()


def longest_sum(config: DQNConfig) -> int:
    return max(*config.shape.observation, *config.shape.hidden, config.batch)


def near_batch(batch: Transitions, depth: int, rng: np.random.Generator | None) -> Transitions:
    moved = {
        name: nearby(getattr(batch, name), depth, rng)
        for name in ("obs", "reward", "next_obs", "weight")
        if getattr(batch, name) is not None
    }
    return batch._replace(**moved)


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


def random_minibatches(config: PPOConfig, updates: int, rng: np.random.Generator) -> tuple[Rollout, np.ndarray]:
    rows = 2 * config.minibatch
    numbers = rng.standard_normal((2, rows), dtype=np.float32)
    obs = rng.standard_normal((rows, config.observation[0]), dtype=np.float32)
    log_prob = np.log(rng.uniform(0.1, 0.9, rows)).astype(np.float32)
    rollout = Rollout(obs, rng.integers(config.actions, size=rows), log_prob, numbers[0], numbers[1])
    return rollout, rng.integers(rows, size=(updates, config.minibatch))


@settings(deadline=None, max_examples=60)
@given(config=PPO_CONFIGS, done=st.integers(0, 1000), seed=SEEDS)
@example(
    config=PPOConfig((2,), 2, hidden=(1, 1), minibatch=2, clip=0.05, entropy=0.01, value_weight=0.5),
    done=0,
    seed=650927345,
)
def test_ppo_equals_reference(config: PPOConfig, done: int, seed: int) -> None:
    rollout, order = random_minibatches(config, 1, np.random.default_rng(seed))
    kernel = PPO(config, PPO_RULE, seed=seed, kernel="numba")._kernel
    assert isinstance(kernel, ppo_fused.FusedMLP)
    ours, numbers = kernel.vectors, kernel.numbers
    begin = ppo_fused.Vectors(*(vector.copy() for vector in ours))
    # The softmax, the ratio of probabilities and the normalised advantage add rounding errors to those of the products.
    depth = 16 + max(*config.observation, *config.hidden, config.minibatch)

    def reference(rng: np.random.Generator | None) -> tuple[ppo_fused.Vectors, np.ndarray]:
        vectors = ppo_fused.Vectors(*(nearby(vector, depth, rng) for vector in begin))
        moved = {
            name: nearby(getattr(rollout, name), depth, rng) for name in ("obs", "log_prob", "advantage", "returns")
        }
        return vectors, ppo_reference.update_many(
            vectors, rollout._replace(**moved), order, kernel.widths, numbers, done
        )

    found = ppo_fused.update_many(ours, rollout, order, kernel.widths, numbers, done)
    theirs, expected = reference(None)
    # Rounding may put one row on the other side of the clipping threshold.
    np.testing.assert_allclose(found[:, :4], expected[:, :4], atol=1e-4, rtol=1e-4)
    np.testing.assert_allclose(found[:, 4], expected[:, 4], atol=1.01 / config.minibatch)
    error = rounding(lambda rng: reference(rng)[0].mean)
    for part, lr in (
        (slice(None, numbers.policy_size), numbers.policy_lr),
        (slice(numbers.policy_size, None), numbers.value_lr),
    ):
        check_adam(
            Moments(ours.weights[part], ours.mean[part], ours.square[part]),
            Moments(theirs.weights[part], theirs.mean[part], theirs.square[part], error),
            begin.weights[part],
            adam_step(lr, PPO_ADAM_EPS, done + 1),
        )


@settings(deadline=None, max_examples=30)
@given(config=PPO_CONFIGS, updates=st.integers(2, 3), done=st.integers(0, 1000), seed=SEEDS)
def test_several_ppo_updates_in_one_call_equal_several_calls(
    config: PPOConfig, updates: int, done: int, seed: int
) -> None:
    rollout, order = random_minibatches(config, updates, np.random.default_rng(seed))
    kernel = PPO(config, PPO_RULE, seed=seed, kernel="numba")._kernel
    assert isinstance(kernel, ppo_fused.FusedMLP)
    together, rest = kernel.vectors, (kernel.widths, kernel.numbers)
    one_by_one = ppo_fused.Vectors(*(vector.copy() for vector in together))
    found = ppo_fused.update_many(together, rollout, order, *rest, done)
    for k in range(updates):
        alone = ppo_fused.update_many(one_by_one, rollout, order[k : k + 1], *rest, done + k)
        np.testing.assert_array_equal(alone, found[k : k + 1])
    for a, b in zip(together, one_by_one, strict=True):
        np.testing.assert_array_equal(a, b)


def test_batch_without_weights_equals_weights_of_one() -> None:
    config = DQNConfig(QShape((3,), 2, hidden=(4, 4)), batch=4)
    batch = random_dqn_batch(config, 1, np.random.default_rng(0))
    assert isinstance(batch, Transitions) and batch.weight is None
    weighted = batch._replace(weight=np.ones(4, np.float32))
    plain, given_ones = DQN(config, RULE, kernel="numba"), DQN(config, RULE, kernel="numba")
    plain.update(batch)
    given_ones.update(weighted)
    assert all(np.array_equal(a, given_ones.tensors()[name]) for name, a in plain.tensors().items())
