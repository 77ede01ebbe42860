"""Reference implementation of `mlp`: the same passes in plain NumPy, with the batch as the first axis."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
Widths = tuple[int, ...]
Linear = tuple[F32, F32]


def linear_at(flat: F32, begin: int, inputs: int, outputs: int) -> Linear:
    """View the weight `[outputs, inputs]` and bias `[outputs]` at offset `begin` of a flat vector."""
    middle = begin + inputs * outputs
    return flat[begin:middle].reshape(outputs, inputs), flat[middle : middle + outputs]


def layers(flat: F32, widths: Widths) -> list[Linear]:
    """View the layers between consecutive widths."""
    begins = np.cumsum([0] + [m * (n + 1) for n, m in itertools.pairwise(widths)])
    pairs = zip(begins[:-1], widths[:-1], widths[1:], strict=True)
    return [linear_at(flat, int(begin), inputs, outputs) for begin, inputs, outputs in pairs]


def forward(weights: F32, widths: Widths, obs: F32) -> list[F32]:
    """Activations `[B, width]` of the input and of each hidden layer."""
    activations = [obs]
    for weight, bias in layers(weights, widths):
        activations.append(np.maximum(activations[-1] @ weight.T + bias, 0))
    return activations


def linear_backward(weight: F32, gradient: Linear, x: F32, delta: F32) -> F32:
    """Fill in a layer's gradient; return the derivative of the loss with respect to its input, `[B, inputs]`."""
    gradient[0][:] = delta.T @ x
    gradient[1][:] = delta.sum(axis=0)
    return delta @ weight


def backward(nets: tuple[F32, F32, Widths], activations: list[F32], delta: F32) -> None:
    """Fill in the gradients of the hidden layers from the derivative with respect to the last one's output."""
    weights, gradient, widths = nets
    parts = list(zip(layers(weights, widths), layers(gradient, widths), activations[:-1], activations[1:], strict=True))
    for (weight, _), slope, x, y in reversed(parts):
        delta = linear_backward(weight, slope, x, delta * (y > 0))


def clip_scale(gradient: F32, max_norm: float) -> float:
    """Factor that reduces the gradient's norm to `max_norm`; 1 if the norm is below it, or if `max_norm` is 0."""
    return min(1.0, max_norm / (float(np.sqrt((gradient * gradient).sum())) + 1e-6)) if max_norm else 1.0


def adam(vectors: tuple[F32, F32, F32, F32], scale: float, lr: float, eps: float, step: int) -> None:
    """One step of Adam with β = 0.9, 0.999: weights, gradient, mean, mean square."""
    weights, gradient, mean, square = vectors
    g = gradient * np.float32(scale)
    mean[:] = np.float32(0.9) * mean + np.float32(1 - 0.9) * g
    square[:] = np.float32(0.999) * square + np.float32(1 - 0.999) * g * g
    root = np.sqrt(square) * np.float32(1 / np.sqrt(1 - 0.999**step))
    weights -= np.float32(lr / (1 - 0.9**step)) * mean / (root + np.float32(eps))
