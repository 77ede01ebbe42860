"""Sweeps over a board: cells pass signals along their row and column, and gates decide how far they travel.

A sweep is a recurrence from one border to the other, in each of four directions: `a_t = k_tm1 · a_tm1 + p_tm1`. The
signal that arrives in a cell is the previous cell's, times that cell's gate, plus what that cell adds. So one layer
reaches as far as a robot slides and learns what stops it, where 3×3 convolutions would need one layer per cell. On a
CPU a numba kernel computes it; `sweep_reference` does so in torch, for other devices and as the definition.
"""

from __future__ import annotations

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx

WAYS = 4
"""Directions of travel: right, left, down, up."""
OPEN = 1.5
"""Initial bias of the gates: most of a signal is passed on."""
F32 = NDArray[np.float32]
HALF, ONE = np.float32(0.5), np.float32(1)

kernel = njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})


@kernel
def _line(way: int, line: int, side: int, channels: int) -> tuple[int, int]:
    """Offset of a line's first cell in a board `[S · S · 4 · C]`, and the distance to its next cell."""
    width = WAYS * channels
    step = width if way < 2 else width * side
    first = way * channels + line * (width * side if way < 2 else width)
    if way % 2:
        return first + step * (side - 1), -step
    return first, step


@kernel
def sweep_forward(gate: F32, put: F32, arriving: F32, side: int, channels: int) -> None:
    """Fill `arriving`; all arrays are `[B, S · S · 4 · C]`. `k = 1/2 + g / (2 + 2 |g|)` needs no exponential."""
    for b in range(len(gate)):
        g, p, a = gate[b], put[b], arriving[b]
        for way in range(WAYS):
            for line in range(side):
                at, step = _line(way, line, side, channels)
                for c in range(channels):
                    a[at + c] = 0
                for _ in range(side - 1):
                    to = at + step
                    for c in range(channels):
                        z = g[at + c]
                        a[to + c] = (HALF + HALF * z / (ONE + abs(z))) * a[at + c] + p[at + c]
                    at = to


@kernel
def sweep_backward(
    inputs: tuple[F32, F32], out_grad: F32, gate_grad: F32, put_grad: F32, side: int, channels: int
) -> None:
    """Fill the gradients of gate and put; `inputs` is gate and arriving, `out_grad` the gradient of arriving."""
    for b in range(len(out_grad)):
        g, a, w, dg, dp = inputs[0][b], inputs[1][b], out_grad[b], gate_grad[b], put_grad[b]
        for way in range(WAYS):
            for line in range(side):
                first, step = _line(way, line, side, channels)
                at = first + step * (side - 1)
                for c in range(channels):
                    dp[at + c] = 0
                for _ in range(side - 1):
                    to = at - step
                    for c in range(channels):
                        z = g[at + c]
                        dp[to + c] = w[at + c] + (HALF + HALF * z / (ONE + abs(z))) * dp[at + c]
                    at = to
        # A separate loop with fewer arrays, so that LLVM vectorises it.
        for i in range(len(dg)):
            slope = ONE / (ONE + abs(g[i]))
            dg[i] = HALF * slope * slope * dp[i] * a[i]


class _SweepContext(FunctionCtx):
    """What the backward pass needs of the forward pass."""

    side: int
    saved_tensors: tuple[Tensor, Tensor]


class _Sweep(torch.autograd.Function):
    """The kernels as a torch operation."""

    @staticmethod
    def forward(ctx: _SweepContext, gate: Tensor, put: Tensor, side: int) -> Tensor:
        gate, put = gate.float().contiguous(), put.float().contiguous()
        arriving = torch.empty_like(gate)
        sweep_forward(_flat(gate), _flat(put), _flat(arriving), side, gate.shape[-1] // WAYS)
        ctx.save_for_backward(gate, arriving)
        ctx.side = side
        return arriving

    @staticmethod
    def backward(ctx: _SweepContext, *out_grad: Tensor) -> tuple[Tensor, Tensor, None]:
        gate, arriving = ctx.saved_tensors
        gate_grad, put_grad = torch.empty_like(gate), torch.empty_like(gate)
        inputs, given = (_flat(gate), _flat(arriving)), _flat(out_grad[0].contiguous())
        sweep_backward(inputs, given, _flat(gate_grad), _flat(put_grad), ctx.side, gate.shape[-1] // WAYS)
        return gate_grad, put_grad, None


def _flat(tensor: Tensor) -> F32:
    return tensor.detach().numpy().reshape(len(tensor), -1)


def sweep(gate: Tensor, put: Tensor, side: int) -> Tensor:
    """Sweep over boards in four directions.

    Args:
        gate: `[B, S · S, 4 · C]`: the share of an arriving signal that a cell passes on is `1/2 + g/(2 + 2|g|)`.
        put: What each cell adds, of the same shape.
        side: S.

    Returns:
        The signals arriving in each cell from sweeps to the right, left, down and up; same shape, float32.
    """
    if gate.device.type == "cpu":
        return _Sweep.apply(gate, put, side)  # type: ignore[return-value]
    return sweep_reference(gate, put, side)


def sweep_reference(gate: Tensor, put: Tensor, side: int) -> Tensor:
    """Do what `sweep` does with torch operations."""
    boards, channels = len(gate), gate.shape[-1] // WAYS
    shape = (boards, side, side, WAYS, channels)
    keep, put = (0.5 + 0.5 * gate / (1 + gate.abs())).float().view(shape), put.float().view(shape)
    ways = []
    for way in range(WAYS):
        # Indexed by board, line and position on the line.
        k, p = (each[:, :, :, way] if way < 2 else each[:, :, :, way].transpose(1, 2) for each in (keep, put))
        order = range(side) if way % 2 == 0 else range(side - 1, -1, -1)
        arrived: dict[int, Tensor] = {}
        a = torch.zeros_like(p[:, :, 0])
        for t in order:
            arrived[t] = a
            a = k[:, :, t] * a + p[:, :, t]
        whole = torch.stack([arrived[t] for t in range(side)], dim=2)
        ways.append(whole if way < 2 else whole.transpose(1, 2))
    return torch.stack(ways, dim=3).reshape(boards, side * side, -1)


class SweepLayer(nn.Module):
    """Sends signals along rows and columns, and updates each cell from the signals that arrive.

    Attribute names are part of checkpoints: do not rename them.
    """

    def __init__(self, channels: int, side: int) -> None:
        super().__init__()
        signals = WAYS * max(channels // 2, 1)
        self.side = side
        self.gate, self.put = nn.Linear(channels, signals), nn.Linear(channels, signals)
        self.own, self.told = nn.Linear(channels, channels), nn.Linear(signals, channels, bias=False)
        nn.init.constant_(self.gate.bias, OPEN)

    def forward(self, cells: Tensor) -> Tensor:
        """`[B, S · S, C]` → the same shape."""
        arriving = sweep(self.gate(cells), self.put(cells), self.side)
        return cells + (self.own(cells) + self.told(arriving)).relu()


class SweepCore(nn.Module):
    """Layers of sweeps, without memory. No pooling: positions are kept."""

    def __init__(self, channels: int, side: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(SweepLayer(channels, side) for _ in range(layers))

    def forward(self, board: Tensor, memory: Tensor, fresh: Tensor) -> tuple[Tensor, Tensor]:
        """`[T, B, C, S, S]` → cells `[T · B, S · S, C]`; memory is unchanged."""
        cells = board.flatten(0, 1).permute(0, 2, 3, 1).flatten(1, 2)
        for layer in self.layers:
            cells = layer(cells)
        return cells, memory
