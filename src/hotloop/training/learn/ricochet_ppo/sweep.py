"""Sweeps over a board: what cells pass on along their row and column, as far as something lets it.

A sweep is a recurrence from one border to the other, in each of four directions, `a_t = k_tm1 · a_tm1 + p_tm1`: what
arrives in a cell is what arrived in the one before, as far as that keeps it, and what that puts in. So one layer looks
as far as a robot slides and learns what stops it, where 3×3 convolutions would need a layer a cell. On a CPU a kernel
does it; `sweep_twin` is the same in torch, for other devices and as the definition.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor, nn

WAYS = 4
"""Directions of travel: right, left, down, up."""
OPEN = 1.5
"""What gates are biased to at the start: most of what arrives is kept."""
HALF, ONE = np.float32(0.5), np.float32(1)

kernel: Any = njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})


@kernel
def _line(way: int, line: int, side: int, channels: int) -> tuple[int, int]:
    """Where a line begins in the cells of a board, [S · S · 4 · C], and how far its next cell is."""
    width = WAYS * channels
    step = width if way < 2 else width * side
    first = way * channels + line * (width * side if way < 2 else width)
    if way % 2:
        return first + step * (side - 1), -step
    return first, step


@kernel
def sweep_forward(gate: Any, put: Any, arriving: Any, side: int, channels: int) -> None:
    """Fill `arriving`, [B, S · S · 4 · C] as all of them; `k = 1/2 + g / (2 + 2 |g|)`, which needs no exponential."""
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
def sweep_backward(kept: Any, wanted: Any, gate_grad: Any, put_grad: Any, side: int, channels: int) -> None:
    """Fill the gradients of gate and put, from the one of what arrives (`wanted`); `kept` is gate and arriving."""
    for b in range(len(wanted)):
        g, a, w, dg, dp = kept[0][b], kept[1][b], wanted[b], gate_grad[b], put_grad[b]
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
        # In a loop of its own, with fewer arrays, which LLVM turns into vector code.
        for i in range(len(dg)):
            slope = ONE / (ONE + abs(g[i]))
            dg[i] = HALF * slope * slope * dp[i] * a[i]


class _Sweep(torch.autograd.Function):
    """The kernels as an operation of torch."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, put: Tensor, side: int) -> Tensor:
        gate, put = gate.float().contiguous(), put.float().contiguous()
        arriving = torch.empty_like(gate)
        sweep_forward(*(_flat(each) for each in (gate, put, arriving)), side, gate.shape[-1] // WAYS)
        ctx.save_for_backward(gate, arriving)
        ctx.side = side
        return arriving

    @staticmethod
    def backward(ctx: Any, *wanted: Tensor) -> tuple[Tensor, Tensor, None]:
        gate, arriving = ctx.saved_tensors
        grads = torch.empty_like(gate), torch.empty_like(gate)
        kept = _flat(gate), _flat(arriving)
        sweep_backward(kept, _flat(wanted[0].contiguous()), *map(_flat, grads), ctx.side, gate.shape[-1] // WAYS)
        return (*grads, None)


def _flat(tensor: Tensor) -> np.ndarray:
    return tensor.detach().numpy().reshape(len(tensor), -1)


def sweep(gate: Tensor, put: Tensor, side: int) -> Tensor:
    """Sweep over boards in four directions.

    Args:
        gate: `[B, S · S, 4 · C]`: how much of what arrives in a cell goes on, between 0 and 1 by `1/2 + g/(2 + 2|g|)`.
        put: What a cell adds, alike.
        side: S.

    Returns:
        What arrives in each cell from right-going, left-going, down-going and up-going sweeps, alike, float32.
    """
    if gate.device.type == "cpu":
        return _Sweep.apply(gate, put, side)  # type: ignore[return-value]
    return sweep_twin(gate, put, side)


def sweep_twin(gate: Tensor, put: Tensor, side: int) -> Tensor:
    """Do the same by torch's own operations."""
    boards, channels = len(gate), gate.shape[-1] // WAYS
    shape = (boards, side, side, WAYS, channels)
    keep, put = (0.5 + 0.5 * gate / (1 + gate.abs())).float().view(shape), put.float().view(shape)
    ways = []
    for way in range(WAYS):
        # Lines first, then cells in the order of travel.
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
    """Lets cells tell those along their row and column something, and adds what a cell makes of what it is told."""

    def __init__(self, channels: int, side: int) -> None:
        super().__init__()
        told = WAYS * max(channels // 2, 1)
        self.side = side
        self.gate, self.put = nn.Linear(channels, told), nn.Linear(channels, told)
        self.own, self.told = nn.Linear(channels, channels), nn.Linear(told, channels, bias=False)
        nn.init.constant_(self.gate.bias, OPEN)

    def forward(self, cells: Tensor) -> Tensor:
        """`[B, S · S, C]`, the same size out."""
        arriving = sweep(self.gate(cells), self.put(cells), self.side)
        return cells + (self.own(cells) + self.told(arriving)).relu()


class SweepCore(nn.Module):
    """Layers of sweeps: no memory, and nothing that pools position away."""

    def __init__(self, channels: int, side: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(SweepLayer(channels, side) for _ in range(layers))

    def forward(self, board: Tensor, memory: Tensor, fresh: Tensor) -> tuple[Tensor, Tensor]:
        """`[T, B, C, S, S]` → cells `[T · B, S · S, C]`; memory is as it was."""
        cells = board.flatten(0, 1).permute(0, 2, 3, 1).flatten(1, 2)
        for layer in self.layers:
            cells = layer(cells)
        return cells, memory
