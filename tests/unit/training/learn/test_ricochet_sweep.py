"""Sweeps: the kernel and its gradients equal the reference in torch and values computed by hand."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hotloop.training.learn.ricochet_ppo.sweep import SweepLayer, sweep, sweep_reference

OPEN, SHUT = 1e9, -1e9
"""Gates that pass everything, and nothing."""


@settings(deadline=None, max_examples=40)
@given(boards=st.integers(1, 3), side=st.integers(2, 7), channels=st.integers(1, 9), seed=st.integers(0, 2**31))
def test_kernel_equals_reference(boards: int, side: int, channels: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    shape = (boards, side * side, 4 * channels)
    gate, put, weight = (torch.randn(shape, generator=generator) for _ in range(3))
    results = []
    for function in (sweep, sweep_reference):
        inputs = gate.clone().requires_grad_(), put.clone().requires_grad_()
        arriving = function(*inputs, side)
        results.append([arriving.detach(), *torch.autograd.grad((arriving * weight).sum(), inputs)])
    for ours, theirs in zip(*results, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize(
    ("way", "cells"),
    [(0, [(1, 2), (1, 3)]), (1, [(1, 0)]), (2, [(2, 1), (3, 1)]), (3, [(0, 1)])],
    ids=["right", "left", "down", "up"],
)
def test_signal_reaches_all_following_cells(way: int, cells: list[tuple[int, int]]) -> None:
    gate, put = torch.full((1, 4, 4, 4, 1), OPEN), torch.zeros(1, 4, 4, 4, 1)
    put[0, 1, 1, way] = 2.0
    arriving = sweep(gate.view(1, 16, 4), put.view(1, 16, 4), 4).view(4, 4, 4)
    expected = torch.zeros(4, 4, 4)
    for y, x in cells:
        expected[y, x, way] = 2.0
    assert torch.equal(arriving, expected)


def test_shut_gate_stops_signals() -> None:
    gate, put = torch.full((1, 4, 4, 4, 1), OPEN), torch.zeros(1, 4, 4, 4, 1)
    put[0, 0, 0, 0] = 1.0
    gate[0, 0, 2, 0] = SHUT
    arriving = sweep(gate.view(1, 16, 4), put.view(1, 16, 4), 4).view(4, 4, 4)
    assert arriving[0, :, 0].tolist() == [0, 1, 1, 0]


def test_one_layer_reads_exactly_its_row_and_column() -> None:
    torch.manual_seed(0)
    layer = SweepLayer(8, 5)
    cells = torch.randn(1, 25, 8, requires_grad=True)
    layer(cells)[0, 12].sum().backward()
    assert cells.grad is not None
    reached = cells.grad[0].abs().sum(1).view(5, 5) > 0
    assert reached.nonzero().tolist() == [[y, x] for y in range(5) for x in range(5) if 2 in (y, x)]
