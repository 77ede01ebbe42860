"""Forward pass, backward pass and Adam of a small multilayer perceptron, used by the fused kernels.

`mlp_reference` computes the same in plain NumPy. Weights are one flat vector in torch's order and layout: weight
`[outputs, inputs]`, bias `[outputs]`, layer after layer. Activations have the batch as the last axis, `[width, B]`:
then every product of both passes reads contiguous rows, except for one small transposition per layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

from hotloop.training.learn.kernels.matmul import matmul

F32 = NDArray[np.float32]
Widths = tuple[int, ...]
Linear = tuple[F32, F32]

FAST = {"reassoc", "contract", "arcp", "nsz", "afn"}
"""Sums may be reordered, but NaN is preserved: a diverged run must be noticed."""
CHUNK = 64
"""Observations evaluated together when acting: their activations fit into the first-level cache."""


Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def inner(
    fastmath: bool | set[str] = False,
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Compile a function that only other kernels call.

    Without a Python entry point and a cache of its own it compiles in half the time.
    """
    jit: Any = njit  # its stub does not know all options
    return jit(nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True, fastmath=fastmath)


NO_FLOOR = np.float32(-np.inf)
RELU = np.float32(0)

TINY_GRADIENT = np.float32(1e-17)
TINY_MOMENT = np.float32(1e-30)
"""Smaller values are set to zero. The moments of a unit that is never active decay by a constant factor until they
are subnormal, where the processor is many times slower; the step they would cause is below 1e-20."""


@inner()
def empty_layers(widths: Widths, columns: int) -> F32:
    """Allocate a buffer for the activations of all layers, `columns` of each."""
    total = 0
    for width in widths:
        total += width
    return np.empty(total * columns, np.float32)


@inner()
def layer_of(buffer: F32, widths: Widths, index: int, columns: int) -> F32:
    """View one layer, `[widths[index], columns]`, of the buffer that holds all layers."""
    begin = 0
    for i in range(index):
        begin += widths[i] * columns
    return buffer[begin : begin + widths[index] * columns].reshape(widths[index], columns)


@inner()
def linear_at(flat: F32, begin: int, inputs: int, outputs: int) -> Linear:
    """View the weight `[outputs, inputs]` and bias `[outputs]` at offset `begin` of a flat vector."""
    middle = begin + inputs * outputs
    return flat[begin:middle].reshape(outputs, inputs), flat[middle : middle + outputs]


@inner()
def transpose_into(out: F32, x: F32) -> None:
    """Write `x` `[n, m]` into `out` `[m, n]`. Both fit into the cache, so only the order of writes matters."""
    for j in range(x.shape[1]):
        for i in range(x.shape[0]):
            out[j, i] = x[i, j]


@inner()
def forward(buffer: F32, weights: F32, widths: Widths, columns: int) -> int:
    """Run the hidden layers, each with a ReLU, on the input in the buffer's first layer.

    Returns:
        Offset of the head in the weights.
    """
    begin = 0
    for i in range(len(widths) - 1):
        weight, bias = linear_at(weights, begin, widths[i], widths[i + 1])
        x, y = layer_of(buffer, widths, i, columns), layer_of(buffer, widths, i + 1, columns)
        matmul(y, weight, x, bias, RELU)
        begin += widths[i + 1] * (widths[i] + 1)
    return begin


@inner(fastmath=FAST)
def linear_gradient(gradient: Linear, x_rows: F32, delta: F32) -> None:
    """Compute the gradient of a linear layer from its input `[B, inputs]` and the loss's derivative `[outputs, B]`."""
    weight, bias = gradient
    matmul(weight, delta, x_rows, np.zeros(len(bias), np.float32), NO_FLOOR)
    for i in range(len(bias)):
        total = np.float32(0)
        for k in range(delta.shape[1]):
            total += delta[i, k]
        bias[i] = total


@inner()
def linear_backward(layer: Linear, gradient: Linear, x: F32, delta: F32, x_delta: F32) -> None:
    """Backward pass through a linear layer whose input is the output of a ReLU.

    Args:
        layer: Weight and bias.
        gradient: Gradients of both; overwritten.
        x: The layer's input `[inputs, B]`.
        delta: Derivative of the loss with respect to the output, `[outputs, B]`.
        x_delta: Derivative with respect to the input before the ReLU, `[inputs, B]`; overwritten.
    """
    x_rows = np.empty((x.shape[1], x.shape[0]), np.float32)
    transpose_into(x_rows, x)
    linear_gradient(gradient, x_rows, delta)
    matmul(x_delta, layer[0].T, delta, np.zeros(len(x), np.float32), NO_FLOOR)
    for i in range(x.shape[0]):
        for k in range(x.shape[1]):
            x_delta[i, k] = x_delta[i, k] if x[i, k] > 0 else np.float32(0)


@inner()
def backward(nets: tuple[F32, F32, Widths], buffer: F32, deltas: F32, input_rows: F32) -> None:
    """Backward pass through the hidden layers, from the derivative in the last layer of `deltas`.

    Args:
        nets: Weights, their gradient (overwritten, except for the head's), widths.
        buffer: Activations computed by `forward`.
        deltas: A buffer of the same shape, for derivatives.
        input_rows: The input again, as `[B, inputs]`.
    """
    weights, gradient, widths = nets
    columns = len(input_rows)
    begin = 0
    for i in range(len(widths) - 1):
        begin += widths[i + 1] * (widths[i] + 1)
    for i in range(len(widths) - 2, -1, -1):
        begin -= widths[i + 1] * (widths[i] + 1)
        layer = linear_at(weights, begin, widths[i], widths[i + 1])
        layer_gradient = linear_at(gradient, begin, widths[i], widths[i + 1])
        delta = layer_of(deltas, widths, i + 1, columns)
        if i == 0:
            linear_gradient(layer_gradient, input_rows, delta)
        else:
            x, x_delta = layer_of(buffer, widths, i, columns), layer_of(deltas, widths, i, columns)
            linear_backward(layer, layer_gradient, x, delta, x_delta)


@inner(fastmath=FAST)
def clip_scale(gradient: F32, max_norm: float) -> np.float32:
    """Factor that reduces the gradient's norm to `max_norm`; 1 if the norm is below it, or if `max_norm` is 0."""
    total = np.float32(0)
    for i in range(len(gradient)):
        total += gradient[i] * gradient[i]
    scale = max_norm / (math.sqrt(total) + 1e-6)
    return np.float32(1) if max_norm == 0 or scale > 1 else np.float32(scale)


@inner(fastmath=FAST)
def adam(vectors: tuple[F32, F32, F32, F32], scale: np.float32, lr: float, eps: float, step: int) -> None:
    """One step of Adam (Kingma & Ba, 2015) with β = 0.9, 0.999.

    Args:
        vectors: Weights, gradient, mean and mean square, each `[P]`; all but the gradient are updated.
        scale: Factor for the gradient.
        lr: Learning rate.
        eps: Added to the root of the mean square.
        step: Number of this step, from 1.
    """
    weights, gradient, mean, square = vectors
    rate = np.float32(lr / (1 - 0.9**step))
    root = np.float32(1 / math.sqrt(1 - 0.999**step))
    epsilon, keep, keep_square = np.float32(eps), np.float32(0.9), np.float32(0.999)
    add, add_square = np.float32(1 - 0.9), np.float32(1 - 0.999)
    for i in range(len(weights)):
        g = gradient[i] * scale
        g = np.float32(0) if abs(g) < TINY_GRADIENT else g
        m = keep * mean[i] + add * g
        v = keep_square * square[i] + add_square * g * g
        m = np.float32(0) if abs(m) < TINY_MOMENT else m
        v = np.float32(0) if v < TINY_MOMENT else v
        mean[i] = m
        square[i] = v
        weights[i] -= rate * m / (np.sqrt(v) * root + epsilon)


@inner()
def evaluate_linear(flat: F32, begin: int, x: F32, out: F32) -> int:
    """Apply a linear head to `x` `[inputs, B]`, into `out` `[outputs, B]`; return the offset after its weights."""
    weight, bias = linear_at(flat, begin, len(x), len(out))
    matmul(out, weight, x, bias, NO_FLOOR)
    return begin + len(out) * (len(x) + 1)
