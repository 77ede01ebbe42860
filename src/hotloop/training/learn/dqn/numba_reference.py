"""Reference implementation of `fused`: the same updates in plain NumPy."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from hotloop.training.learn.dqn.state import ADAM_EPS, Transitions
from hotloop.training.learn.kernels import mlp_reference as mlp
from hotloop.training.learn.kernels.mlp_reference import F32, Widths

if TYPE_CHECKING:
    from hotloop.training.learn.dqn.numba_kernel import Net, Numbers, Vectors


def _hidden_size(widths: Widths) -> int:
    return sum(m * (n + 1) for n, m in itertools.pairwise(widths))


def _evaluate(weights: F32, obs: F32, widths: Widths, n: Numbers) -> tuple[F32, list[F32]]:
    """Values `[B, A]` and the activations they came from."""
    activations = mlp.forward(weights, widths, obs)
    hidden, begin = activations[-1], _hidden_size(widths)
    if not n.dueling:
        weight, bias = mlp.linear_at(weights, begin, widths[-1], n.actions)
        return hidden @ weight.T + bias, activations
    half = widths[-1] // 2
    weight, bias = mlp.linear_at(weights, begin, half, 1)
    value = hidden[:, :half] @ weight.T + bias
    weight, bias = mlp.linear_at(weights, begin + half + 1, half, n.actions)
    advantage = hidden[:, half:] @ weight.T + bias
    return value + advantage - advantage.mean(axis=1, keepdims=True), activations


def _head_backward(nets: tuple[F32, F32, Widths], hidden: F32, delta: F32, n: Numbers) -> F32:
    """Fill in the head's gradient; return the derivative with respect to the last hidden layer."""
    weights, gradient, widths = nets
    begin = _hidden_size(widths)

    def linear_back(begin: int, x: F32, delta: F32) -> F32:
        weight, _ = mlp.linear_at(weights, begin, x.shape[1], delta.shape[1])
        return mlp.linear_backward(weight, mlp.linear_at(gradient, begin, x.shape[1], delta.shape[1]), x, delta)

    if not n.dueling:
        return linear_back(begin, hidden, delta)
    half = widths[-1] // 2
    by_value = delta.sum(axis=1, keepdims=True)
    for_value = linear_back(begin, hidden[:, :half], by_value)
    for_advantage = linear_back(begin + half + 1, hidden[:, half:], delta - by_value / np.float32(n.actions))
    return np.concatenate([for_value, for_advantage], axis=1)


def _cut(flat: F32, net: Net) -> list[tuple[F32, F32 | None]]:
    """Split into layers: weight and bias as one vector, and σ if the layer is noisy."""
    parts, begin = [], 0
    for inputs, outputs, noisy in net.layers:
        size = outputs * (inputs + 1)
        mean, begin = flat[begin : begin + size], begin + size
        sigma, begin = (flat[begin : begin + size], begin + size) if noisy else (None, begin)
        parts.append((mean, sigma))
    return parts


def _factors(net: Net, noise: F32) -> list[F32]:
    """The factor of each noisy layer's σ: `ε_out ε_inᵀ` for the weight, `ε_out` for the bias."""
    factors, begin = [], 0
    for inputs, outputs, noisy in net.layers:
        if noisy:
            for_inputs, for_outputs = np.split(noise[begin : begin + inputs + outputs], [inputs])
            factors.append(np.concatenate([np.outer(for_outputs, for_inputs).ravel(), for_outputs]))
            begin += inputs + outputs
        else:
            factors.append(np.empty(0, np.float32))
    return factors


def _compose(flat: F32, net: Net, noise: F32) -> F32:
    parts = zip(_cut(flat, net), _factors(net, noise), strict=True)
    composed = [mean if sigma is None else mean + sigma * factor for (mean, sigma), factor in parts]
    return np.concatenate(composed, dtype=np.float32)


def _spread(gradient: F32, plain: F32, net: Net, noise: F32) -> None:
    begin = 0
    for (mean, sigma), factor in zip(_cut(gradient, net), _factors(net, noise), strict=True):
        mean[:] = plain[begin : begin + len(mean)]
        if sigma is not None:
            sigma[:] = mean * factor
        begin += len(mean)


def update_many(vectors: Vectors, batch: Transitions, net: Net, n: Numbers, noise: F32, done: int) -> tuple[F32, F32]:
    """Do what `fused.update_many` does."""
    assert batch.weight is not None
    errors, losses = [], []
    every, widths = np.arange(n.batch), net.widths
    for k in range(len(batch.reward) // n.batch):
        rows = slice(k * n.batch, (k + 1) * n.batch)
        weights = _compose(vectors.weights, net, noise[k, 0]) if n.noisy else vectors.weights
        target = _compose(vectors.target, net, noise[k, 1]) if n.noisy else vectors.target
        target_q, _ = _evaluate(target, batch.next_obs[rows], widths, n)
        chooser = _evaluate(weights, batch.next_obs[rows], widths, n)[0] if n.double else target_q
        goal = batch.reward[rows] + batch.discount[rows] * target_q[every, chooser.argmax(axis=1)]

        q, activations = _evaluate(weights, batch.obs[rows], widths, n)
        action, weight = batch.action[rows], batch.weight[rows]
        error = q[every, action] - goal
        size = np.abs(error)
        losses.append((weight * np.where(size < 1, error**2 / 2, size - 0.5)).mean())
        errors.append(size)
        delta = np.zeros_like(q)
        delta[every, action] = weight * np.clip(error, -1, 1) / n.batch

        plain, gradient = np.empty_like(weights), np.empty_like(vectors.weights)
        nets = (weights, plain, widths)
        mlp.backward(nets, activations, _head_backward(nets, activations[-1], delta, n))
        _spread(gradient, plain, net, noise[k, 0] if n.noisy else np.empty(0, np.float32))
        step = done + k + 1
        scale = mlp.clip_scale(gradient, n.clip)
        mlp.adam((vectors.weights, gradient, vectors.mean, vectors.square), scale, n.lr, ADAM_EPS, step)
        if step % n.target_every == 0:
            vectors.target[:] += np.float32(n.tau) * (vectors.weights - vectors.target)
    return np.concatenate(errors), np.array(losses, np.float32)
