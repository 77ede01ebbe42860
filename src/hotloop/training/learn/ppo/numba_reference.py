"""Reference implementation of `fused`: the same updates in plain NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hotloop.training.learn.kernels import mlp_reference as mlp
from hotloop.training.learn.kernels.mlp_reference import F32, Linear, Widths
from hotloop.training.learn.ppo.state import ADAM_EPS, Rollout

if TYPE_CHECKING:
    from hotloop.training.learn.ppo.numba_kernel import Numbers, Vectors


def _head(flat: F32, widths: Widths, outputs: int) -> Linear:
    return mlp.linear_at(flat, len(flat) - outputs * (widths[-1] + 1), widths[-1], outputs)


def _tower(weights: F32, widths: Widths, outputs: int, obs: F32) -> tuple[F32, list[F32]]:
    """Output `[B, outputs]` of one network and the activations it came from."""
    activations = mlp.forward(weights, widths, obs)
    weight, bias = _head(weights, widths, outputs)
    return activations[-1] @ weight.T + bias, activations


def _tower_backward(nets: tuple[F32, F32, Widths], activations: list[F32], delta: F32) -> None:
    """Fill in the gradient of one network from the derivative with respect to its output, `[B, outputs]`."""
    weights, gradient, widths = nets
    weight, _ = _head(weights, widths, delta.shape[1])
    slope = _head(gradient, widths, delta.shape[1])
    mlp.backward(nets, activations, mlp.linear_backward(weight, slope, activations[-1], delta))


def _policy_slope(logits: F32, old: tuple[NDArray[np.int64], F32, F32], n: Numbers) -> tuple[F32, list[float]]:
    """Derivative with respect to the logits; policy loss, entropy, KL divergence and fraction of clipped rows."""
    action, old_log_prob, advantage = old
    every = np.arange(len(action))
    log_policy = logits - logits.max(axis=1, keepdims=True)
    log_policy -= np.log(np.exp(log_policy).sum(axis=1, keepdims=True))
    policy = np.exp(log_policy)
    entropy = -(policy * log_policy).sum(axis=1)
    log_ratio = log_policy[every, action] - old_log_prob
    ratio = np.exp(log_ratio)
    plain, clipped = ratio * advantage, np.clip(ratio, 1 - n.clip, 1 + n.clip) * advantage
    slope = np.where(plain <= clipped, -plain, 0)[:, None] * (np.eye(n.actions, dtype=np.float32)[action] - policy)
    slope += np.float32(n.entropy) * policy * (log_policy + entropy[:, None])
    numbers = [-np.minimum(plain, clipped), entropy, ratio - 1 - log_ratio, np.abs(ratio - 1) > n.clip]
    return (slope / len(action)).astype(np.float32), [float(number.mean()) for number in numbers]


def update_many(
    vectors: Vectors, rollout: Rollout, order: NDArray[np.int64], widths: Widths, n: Numbers, done: int
) -> F32:
    """Do what `fused.update_many` does."""
    stats = []
    cut = slice(None, n.policy_size), slice(n.policy_size, None)
    for u, rows in enumerate(order):
        obs, advantage = rollout.obs[rows], rollout.advantage[rows]
        if n.normalise:
            advantage = ((advantage - advantage.mean()) / (advantage.std(ddof=1) + 1e-8)).astype(np.float32)
        logits, for_policy = _tower(vectors.weights[cut[0]], widths, n.actions, obs)
        value, for_value = _tower(vectors.weights[cut[1]], widths, 1, obs)
        old = (rollout.action[rows], rollout.log_prob[rows], advantage)
        slope, (loss, entropy, kl, clipped) = _policy_slope(logits, old, n)
        error = value - rollout.returns[rows, None]
        stats.append([loss, float((error**2).mean()), entropy, kl, clipped])

        gradient = np.empty_like(vectors.weights)
        _tower_backward((vectors.weights[cut[0]], gradient[cut[0]], widths), for_policy, slope)
        by_value = np.float32(2 * n.value_weight / len(rows)) * error
        _tower_backward((vectors.weights[cut[1]], gradient[cut[1]], widths), for_value, by_value)
        scale = mlp.clip_scale(gradient, n.max_grad_norm)
        for part, lr in zip(cut, (n.policy_lr, n.value_lr), strict=True):
            moments = (vectors.mean[part], vectors.square[part])
            mlp.adam((vectors.weights[part], gradient[part], *moments), scale, lr, ADAM_EPS, done + u + 1)
    return np.array(stats, np.float32)
