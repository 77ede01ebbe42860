"""DQN's update as one numba kernel for small networks: K updates in one call, without framework overhead.

Three forward passes, double-Q target, Huber loss, backward pass, clipping, Adam and the target network's updates, on
the flat vectors of `flat_params`. `numba_reference` computes the same in plain NumPy.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from torch import nn

from hotloop.training.learn.dqn.state import ADAM_EPS, DQNState, Transitions, Updated
from hotloop.training.learn.kernels import mlp
from hotloop.training.learn.kernels.mlp import CHUNK, F32, FAST, Widths, inner
from hotloop.training.learn.learner import TransitionBatch
from hotloop.training.learn.networks import NoisyLinear, QNetwork


class Net(NamedTuple):
    """Layout of the network."""

    widths: Widths
    """Of the input and the hidden layers."""
    layers: NDArray[np.int64]
    """`[L, 3]`: inputs, outputs and whether it is noisy, for each linear layer in the order of the flat vector."""


class Vectors(NamedTuple):
    """The learner's flat vectors, each `[P]`."""

    weights: F32
    target: F32
    mean: F32
    square: F32


class Numbers(NamedTuple):
    """The hyperparameters that the kernel needs."""

    batch: int
    actions: int
    dueling: bool
    noisy: bool
    double: bool
    lr: float
    clip: float
    target_every: int
    tau: float


@inner()
def _compose(out: F32, flat: F32, layers: NDArray[np.int64], noise: F32) -> None:
    """Write the weights of a noisy network for given noise, as a plain network.

    `w = μ + σ · ε_out ε_inᵀ`, `b = μ_b + σ_b · ε_out`.
    """
    to, begin, used = 0, 0, 0
    for layer in range(len(layers)):
        inputs, outputs, noisy = layers[layer, 0], layers[layer, 1], layers[layer, 2]
        size = outputs * (inputs + 1)
        for i in range(size):
            out[to + i] = flat[begin + i]
        if noisy:
            sigma = begin + size
            for o in range(outputs):
                e = noise[used + inputs + o]
                for i in range(inputs):
                    out[to + o * inputs + i] += flat[sigma + o * inputs + i] * e * noise[used + i]
                out[to + outputs * inputs + o] += flat[sigma + outputs * inputs + o] * e
            begin += size
            used += inputs + outputs
        to += size
        begin += size


@inner()
def _spread(gradient: F32, plain: F32, layers: NDArray[np.int64], noise: F32) -> None:
    """Write the gradient of a noisy network from the gradient of the plain one made by `_compose`."""
    at, begin, used = 0, 0, 0
    for layer in range(len(layers)):
        inputs, outputs, noisy = layers[layer, 0], layers[layer, 1], layers[layer, 2]
        size = outputs * (inputs + 1)
        for i in range(size):
            gradient[begin + i] = plain[at + i]
        if noisy:
            sigma = begin + size
            for o in range(outputs):
                e = noise[used + inputs + o]
                for i in range(inputs):
                    gradient[sigma + o * inputs + i] = plain[at + o * inputs + i] * e * noise[used + i]
                gradient[sigma + outputs * inputs + o] = plain[at + outputs * inputs + o] * e
            begin += size
            used += inputs + outputs
        at += size
        begin += size


@inner()
def _plain_size(layers: NDArray[np.int64]) -> int:
    """Number of weights without those that scale the noise."""
    total = 0
    for layer in range(len(layers)):
        total += layers[layer, 1] * (layers[layer, 0] + 1)
    return total


@inner()
def _head(q: F32, weights: F32, begin: int, hidden: F32, dueling: bool) -> None:
    """Write values `[A, B]` computed from the last hidden layer `[width, B]`, or from its two halves if dueling."""
    half = len(hidden) // 2 if dueling else 0
    value = np.empty((1, hidden.shape[1]), np.float32)
    if dueling:
        begin = mlp.evaluate_linear(weights, begin, hidden[:half], value)
    mlp.evaluate_linear(weights, begin, hidden[half:], q)
    if dueling:
        for k in range(q.shape[1]):
            mean = np.float32(0)
            for a in range(len(q)):
                mean += q[a, k]
            shift = value[0, k] - mean / np.float32(len(q))
            for a in range(len(q)):
                q[a, k] += shift


@inner()
def _head_backward(nets: tuple[F32, F32, int], hidden: F32, delta: F32, hidden_delta: F32, dueling: bool) -> None:
    """Backward pass through the head; `nets` is weights, gradient and the head's offset. Overwrites `delta`."""
    weights, gradient, begin = nets
    actions, half = len(delta), len(hidden) // 2 if dueling else 0
    if dueling:
        by_value = np.empty((1, delta.shape[1]), np.float32)
        for k in range(delta.shape[1]):
            total = np.float32(0)
            for a in range(actions):
                total += delta[a, k]
            by_value[0, k] = total
            for a in range(actions):
                delta[a, k] -= total / np.float32(actions)
        layer, slope = mlp.linear_at(weights, begin, half, 1), mlp.linear_at(gradient, begin, half, 1)
        mlp.linear_backward(layer, slope, hidden[:half], by_value, hidden_delta[:half])
        begin += half + 1
    width = len(hidden) - half
    layer, slope = mlp.linear_at(weights, begin, width, actions), mlp.linear_at(gradient, begin, width, actions)
    mlp.linear_backward(layer, slope, hidden[half:], delta, hidden_delta[half:])


@inner()
def _evaluate(q: F32, buffer: F32, weights: F32, widths: Widths, dueling: bool) -> int:
    """Write values `[A, B]` of the input in the buffer's first layer; return the offset of the head's weights."""
    columns = q.shape[1]
    head = mlp.forward(buffer, weights, widths, columns)
    _head(q, weights, head, mlp.layer_of(buffer, widths, len(widths) - 1, columns), dueling)
    return head


@inner()
def _errors(delta: F32, td_abs: F32, q: F32, goal: F32, rows: tuple[NDArray[np.int64], F32]) -> float:
    """Write the derivative of the weighted Huber loss, `[A, B]`, and |TD error| `[B]`; return the loss."""
    action, weight = rows
    count = len(action)
    delta.fill(0)
    loss = 0.0
    for k in range(count):
        error = q[action[k], k] - goal[k]
        size = abs(error)
        td_abs[k] = size
        slope = error if size < 1 else np.float32(np.sign(error))
        loss += weight[k] * (0.5 * error * error if size < 1 else size - 0.5)
        delta[action[k], k] = weight[k] * slope / np.float32(count)
    return loss / count


@inner()
def _targets(goal: F32, chooser: F32, target_q: F32, reward: F32, discount: F32) -> None:
    """Write the targets `r + d · Q⁻(s', argmax_a Q(s', a))`, `[B]`."""
    for k in range(len(goal)):
        best = 0
        for a in range(1, len(chooser)):
            if chooser[a, k] > chooser[best, k]:
                best = a
        goal[k] = reward[k] + discount[k] * target_q[best, k]


@inner(fastmath=FAST)
def _move_target(target: F32, weights: F32, tau: float) -> None:
    part = np.float32(tau)
    for i in range(len(weights)):
        target[i] = weights[i] if tau == 1 else target[i] + part * (weights[i] - target[i])


@njit(cache=True, nogil=True, error_model="numpy")
def update_many(vectors: Vectors, batch: Transitions, net: Net, n: Numbers, noise: F32, done: int) -> tuple[F32, F32]:
    """Do K updates, one with each batch of B rows.

    Args:
        vectors: Changed in place.
        batch: `K * B` rows, with weights.
        net: The network.
        n: Hyperparameters.
        noise: `[K, 2, noise_size]`, for the online and the target network; only read if the network is noisy.
        done: Number of updates done before.

    Returns:
        |TD error| `[K * B]` and losses `[K]`.
    """
    count, size, widths = len(batch.reward) // n.batch, n.batch, net.widths
    td_abs, losses = np.empty(count * size, np.float32), np.empty(count, np.float32)
    buffer, deltas = mlp.empty_layers(widths, size), mlp.empty_layers(widths, size)
    q, next_q = np.empty((n.actions, size), np.float32), np.empty((n.actions, size), np.float32)
    chooser, goal = np.empty((n.actions, size), np.float32), np.empty(size, np.float32)
    gradient, last = np.empty_like(vectors.weights), len(widths) - 1
    weights, target, slope = vectors.weights, vectors.target, gradient
    if n.noisy:
        plain = _plain_size(net.layers)
        weights, target, slope = np.empty(plain, np.float32), np.empty(plain, np.float32), np.empty(plain, np.float32)
    for k in range(count):
        if n.noisy:
            _compose(weights, vectors.weights, net.layers, noise[k, 0])
            _compose(target, vectors.target, net.layers, noise[k, 1])
        rows = slice(k * size, (k + 1) * size)
        mlp.transpose_into(mlp.layer_of(buffer, widths, 0, size), batch.next_obs[rows])
        _evaluate(next_q, buffer, target, widths, n.dueling)
        if n.double:
            _evaluate(chooser, buffer, weights, widths, n.dueling)
        _targets(goal, chooser if n.double else next_q, next_q, batch.reward[rows], batch.discount[rows])

        mlp.transpose_into(mlp.layer_of(buffer, widths, 0, size), batch.obs[rows])
        head = _evaluate(q, buffer, weights, widths, n.dueling)
        taken = (batch.action[rows], batch.weight[rows])  # pyright: ignore[reportOptionalSubscript]
        losses[k] = _errors(next_q, td_abs[rows], q, goal, taken)
        hidden, hidden_delta = mlp.layer_of(buffer, widths, last, size), mlp.layer_of(deltas, widths, last, size)
        _head_backward((weights, slope, head), hidden, next_q, hidden_delta, n.dueling)
        mlp.backward((weights, slope, widths), buffer, deltas, batch.obs[rows])
        if n.noisy:
            _spread(gradient, slope, net.layers, noise[k, 0])

        scale, step = mlp.clip_scale(gradient, n.clip), done + k + 1
        mlp.adam((vectors.weights, gradient, vectors.mean, vectors.square), scale, n.lr, ADAM_EPS, step)
        if step % n.target_every == 0:
            _move_target(vectors.target, vectors.weights, n.tau)
    return td_abs, losses


@njit(cache=True, nogil=True, error_model="numpy")
def evaluate_rows(weights: F32, obs: F32, net: Net, n: Numbers, noise: F32) -> F32:
    """Values `[N, A]` of observations `[N, F]`, with noise `[noise_size]`."""
    widths = net.widths
    if n.noisy:
        plain = np.empty(_plain_size(net.layers), np.float32)
        _compose(plain, weights, net.layers, noise)
        weights = plain
    buffer = mlp.empty_layers(widths, CHUNK)
    values = np.empty((len(obs), n.actions), np.float32)
    for begin in range(0, len(obs), CHUNK):
        part = obs[begin : begin + CHUNK]
        q = np.empty((n.actions, len(part)), np.float32)
        mlp.transpose_into(mlp.layer_of(buffer, widths, 0, len(part)), part)
        _evaluate(q, buffer, weights, widths, n.dueling)
        mlp.transpose_into(values[begin : begin + CHUNK], q)
    return values


def net_of(network: QNetwork) -> Net:
    """Describe a network for the kernel."""
    linear = [module for module in network.modules() if isinstance(module, nn.Linear | NoisyLinear)]
    rows = [(*reversed(layer.weight.shape), isinstance(layer, NoisyLinear)) for layer in linear]
    top = network.top.weight.shape[0]
    return Net((*network.shape.observation, *network.shape.hidden[:-1], top), np.array(rows, np.int64))


class FusedMLP:
    """The numba kernel as a `Kernel` of the learner."""

    def __init__(self, state: DQNState) -> None:
        config, shape, online = state.config, state.config.shape, state.online
        self.state = state
        self.net = net_of(state.network)
        tensors = (online.weights, state.target_weights, online.mean, online.square)
        self.vectors = Vectors(*(tensor.numpy() for tensor in tensors))
        self.numbers = Numbers(
            batch=config.batch,
            actions=shape.actions,
            dueling=shape.dueling,
            noisy=shape.noisy,
            double=config.double,
            lr=float(config.lr),
            clip=float(config.clip),
            target_every=config.target_every,
            tau=float(config.tau),
        )
        self.no_noise = np.zeros(state.network.noise_size, np.float32)

    def update(self, batch: TransitionBatch, noise: F32 | None) -> Updated:
        """Do K updates in one call."""
        weight = np.ones(len(batch.reward), np.float32) if batch.weight is None else batch.weight
        rows = Transitions(
            obs=np.ascontiguousarray(batch.obs, np.float32),
            action=np.ascontiguousarray(batch.action, np.int64),
            reward=np.ascontiguousarray(batch.reward, np.float32),
            next_obs=np.ascontiguousarray(batch.next_obs, np.float32),
            discount=np.ascontiguousarray(batch.discount, np.float32),
            weight=np.ascontiguousarray(weight, np.float32),
        )
        noise = np.empty((0, 2, 0), np.float32) if noise is None else noise
        td_abs, losses = update_many(self.vectors, rows, self.net, self.numbers, noise, self.state.updates)
        self.state.updates += len(losses)
        return Updated(td_abs, losses)

    def q_values(self, obs: NDArray, noise: F32 | None) -> F32:
        """Values of all actions."""
        rows = np.ascontiguousarray(obs, np.float32)
        noise = self.no_noise if noise is None else noise
        return evaluate_rows(self.vectors.weights, rows, self.net, self.numbers, noise)
