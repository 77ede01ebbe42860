"""PPO's updates as one numba kernel for small networks: all epochs over a rollout in one call.

Forward passes of both networks, the losses and their derivatives, backward passes, clipping, and Adam with two learning
rates, on the flat vectors of `flat_params`. `numba_reference` computes the same in plain NumPy.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from hotloop.training.learn.kernels import mlp
from hotloop.training.learn.kernels.mlp import CHUNK, F32, FAST, Widths, inner
from hotloop.training.learn.ppo.state import ADAM_EPS, PPOState, Rollout


class Vectors(NamedTuple):
    """The learner's flat vectors, each `[P]`: first the policy's part, then the value's."""

    weights: F32
    mean: F32
    square: F32


class Numbers(NamedTuple):
    """The hyperparameters that the kernel needs."""

    actions: int
    policy_size: int
    policy_lr: float
    value_lr: float
    clip: float
    entropy: float
    value_weight: float
    max_grad_norm: float
    normalise: bool


@inner()
def _tower(out: F32, buffer: F32, weights: F32, widths: Widths) -> None:
    """Write the output `[outputs, B]` of one network for the input in the buffer's first layer."""
    columns = out.shape[1]
    head = mlp.forward(buffer, weights, widths, columns)
    mlp.evaluate_linear(weights, head, mlp.layer_of(buffer, widths, len(widths) - 1, columns), out)


@inner()
def _tower_backward(nets: tuple[F32, F32, Widths], buffer: F32, deltas: F32, delta: F32, input_rows: F32) -> None:
    """Write the gradient of one network from the derivative with respect to its output, `[outputs, B]`."""
    weights, gradient, widths = nets
    columns, last = delta.shape[1], len(widths) - 1
    begin = len(weights) - len(delta) * (widths[last] + 1)
    layer = mlp.linear_at(weights, begin, widths[last], len(delta))
    slope = mlp.linear_at(gradient, begin, widths[last], len(delta))
    hidden, hidden_delta = mlp.layer_of(buffer, widths, last, columns), mlp.layer_of(deltas, widths, last, columns)
    mlp.linear_backward(layer, slope, hidden, delta, hidden_delta)
    mlp.backward(nets, buffer, deltas, input_rows)


@inner(fastmath=FAST)
def _normalise(x: F32) -> None:
    """Scale `[B]` to mean 0 and unbiased standard deviation 1, in place."""
    total = 0.0
    for k in range(len(x)):
        total += x[k]
    mean, squares = total / len(x), 0.0
    for k in range(len(x)):
        squares += (x[k] - mean) ** 2
    deviation = math.sqrt(squares / (len(x) - 1)) + 1e-8
    for k in range(len(x)):
        x[k] = np.float32((x[k] - mean) / deviation)


@inner()
def _policy_slope(delta: F32, logits: F32, old: tuple[NDArray[np.int64], F32, F32], n: Numbers, stats: F32) -> None:
    """Write the derivative `[A, B]` of the policy loss; turn logits into log-probabilities; add means to stats."""
    action, old_log_prob, advantage = old
    actions, count = logits.shape
    part = np.float32(1 / count)
    for k in range(count):
        largest, total, entropy = logits[0, k], np.float32(0), np.float32(0)
        for a in range(1, actions):
            largest = max(largest, logits[a, k])
        for a in range(actions):
            total += np.exp(logits[a, k] - largest)
        shift = largest + np.log(total)
        for a in range(actions):
            logits[a, k] -= shift
            entropy -= np.exp(logits[a, k]) * logits[a, k]
        log_ratio = logits[action[k], k] - old_log_prob[k]
        ratio = np.exp(log_ratio)
        plain = ratio * advantage[k]
        clipped = min(max(ratio, np.float32(1 - n.clip)), np.float32(1 + n.clip)) * advantage[k]
        slope = -plain * part if plain <= clipped else np.float32(0)
        for a in range(actions):
            policy = np.exp(logits[a, k])
            chosen = np.float32(1 if a == action[k] else 0)
            by_entropy = np.float32(n.entropy) * part * policy * (logits[a, k] + entropy)
            delta[a, k] = slope * (chosen - policy) + by_entropy
        stats[0] -= min(plain, clipped) * part
        stats[2] += entropy * part
        stats[3] += (ratio - np.float32(1) - log_ratio) * part
        stats[4] += part if abs(ratio - np.float32(1)) > np.float32(n.clip) else np.float32(0)


@inner()
def _value_slope(delta: F32, value: F32, goal: F32, weight: float, stats: F32) -> None:
    """Write the derivative `[1, B]` of the weighted squared error of values `[1, B]`; add its mean to stats."""
    part = np.float32(1 / len(goal))
    for k in range(len(goal)):
        error = value[0, k] - goal[k]
        delta[0, k] = np.float32(2 * weight) * error * part
        stats[1] += error * error * part


@njit(cache=True, nogil=True, error_model="numpy")
def update_many(
    vectors: Vectors, rollout: Rollout, order: NDArray[np.int64], widths: Widths, n: Numbers, done: int
) -> F32:
    """Do one update with each row of `order`.

    Args:
        vectors: Changed in place.
        rollout: `[S]` rows.
        order: `[U, B]`: the rows of each update.
        widths: Widths of the input and the hidden layers.
        n: Hyperparameters.
        done: Number of updates done before.

    Returns:
        `[U, 5]`: policy loss, value loss, entropy, KL divergence, fraction of clipped rows.
    """
    updates, size = order.shape
    policy_buffer, value_buffer = mlp.empty_layers(widths, size), mlp.empty_layers(widths, size)
    deltas, rows = mlp.empty_layers(widths, size), np.empty((size, widths[0]), np.float32)
    logits, slope = np.empty((n.actions, size), np.float32), np.empty((n.actions, size), np.float32)
    value, value_slope = np.empty((1, size), np.float32), np.empty((1, size), np.float32)
    action, log_prob = np.empty(size, np.int64), np.empty(size, np.float32)
    advantage, goal = np.empty(size, np.float32), np.empty(size, np.float32)
    gradient = np.empty_like(vectors.weights)
    stats = np.zeros((updates, 5), np.float32)
    cut = n.policy_size
    for u in range(updates):
        for k in range(size):
            row = order[u, k]
            for f in range(widths[0]):
                rows[k, f] = rollout.obs[row, f]
            action[k], log_prob[k] = rollout.action[row], rollout.log_prob[row]
            advantage[k], goal[k] = rollout.advantage[row], rollout.returns[row]
        if n.normalise:
            _normalise(advantage)
        mlp.transpose_into(mlp.layer_of(policy_buffer, widths, 0, size), rows)
        mlp.transpose_into(mlp.layer_of(value_buffer, widths, 0, size), rows)
        _tower(logits, policy_buffer, vectors.weights[:cut], widths)
        _tower(value, value_buffer, vectors.weights[cut:], widths)
        _policy_slope(slope, logits, (action, log_prob, advantage), n, stats[u])
        _value_slope(value_slope, value, goal, n.value_weight, stats[u])
        _tower_backward((vectors.weights[:cut], gradient[:cut], widths), policy_buffer, deltas, slope, rows)
        _tower_backward((vectors.weights[cut:], gradient[cut:], widths), value_buffer, deltas, value_slope, rows)
        scale = mlp.clip_scale(gradient, n.max_grad_norm)
        for begin, end, lr in ((0, cut, n.policy_lr), (cut, len(gradient), n.value_lr)):
            parts = (
                vectors.weights[begin:end],
                gradient[begin:end],
                vectors.mean[begin:end],
                vectors.square[begin:end],
            )
            mlp.adam(parts, scale, lr, ADAM_EPS, done + u + 1)
    return stats


@njit(cache=True, nogil=True, error_model="numpy")
def evaluate_rows(weights: F32, obs: F32, widths: Widths, actions: int, cut: int) -> tuple[F32, F32]:
    """Logits `[N, A]` and values `[N]` of observations `[N, F]`."""
    buffer = mlp.empty_layers(widths, CHUNK)
    logits, values = np.empty((len(obs), actions), np.float32), np.empty(len(obs), np.float32)
    for begin in range(0, len(obs), CHUNK):
        part = obs[begin : begin + CHUNK]
        out, value = np.empty((actions, len(part)), np.float32), np.empty((1, len(part)), np.float32)
        mlp.transpose_into(mlp.layer_of(buffer, widths, 0, len(part)), part)
        _tower(out, buffer, weights[:cut], widths)
        _tower(value, buffer, weights[cut:], widths)
        mlp.transpose_into(logits[begin : begin + CHUNK], out)
        for k in range(len(part)):
            values[begin + k] = value[0, k]
    return logits, values


class FusedMLP:
    """The numba kernel as a `Kernel` of the learner."""

    def __init__(self, state: PPOState) -> None:
        config, flat = state.config, state.flat
        self.state = state
        self.widths: Widths = (*config.observation, *config.hidden)
        self.vectors = Vectors(*(tensor.numpy() for tensor in (flat.weights, flat.mean, flat.square)))
        self.numbers = Numbers(
            actions=config.actions,
            policy_size=state.policy_size,
            policy_lr=config.policy_lr,
            value_lr=config.value_lr,
            clip=config.clip,
            entropy=float(config.entropy),
            value_weight=float(config.value_weight),
            max_grad_norm=float(config.max_grad_norm),
            normalise=config.normalise_advantage,
        )

    def update(self, rollout: Rollout, order: NDArray[np.int64]) -> F32:
        """Do all updates in one call."""
        floats = [np.ascontiguousarray(a, np.float32) for a in (rollout.log_prob, rollout.advantage, rollout.returns)]
        obs = np.ascontiguousarray(rollout.obs, np.float32)
        rows = Rollout(obs, np.ascontiguousarray(rollout.action, np.int64), *floats)
        stats = update_many(self.vectors, rows, order, self.widths, self.numbers, self.state.updates)
        self.state.updates += len(order)
        return stats

    def evaluate(self, obs: NDArray) -> tuple[F32, F32]:
        """Logits and values."""
        config = self.state.config
        rows = np.ascontiguousarray(obs, np.float32)
        return evaluate_rows(self.vectors.weights, rows, self.widths, config.actions, self.state.policy_size)
