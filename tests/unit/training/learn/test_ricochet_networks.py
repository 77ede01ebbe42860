"""Networks for boards with reordered computations, each against the plain computation."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as f

from hotloop.training.learn.ricochet_ppo.drc import Cell, DRCCore, border
from hotloop.training.learn.ricochet_ppo.lstm import LSTMCore, NatureEncoder
from hotloop.training.learn.ricochet_ppo.shape import CONTRAST, PAPER, pieces


def test_cell_equals_one_convolution_over_all_inputs() -> None:
    torch.manual_seed(0)
    cell = Cell(3)
    board, below, hidden, state = (torch.randn(2, 3, 5, 5) for _ in range(4))
    inputs = torch.cat([board, border(board).expand(2, -1, -1, -1)], dim=1)
    ours = cell(cell.sees(inputs), below, (hidden, state))

    weight = torch.cat([cell.sees.weight, cell.recalls.weight], dim=1)
    gates = f.conv2d(torch.cat([inputs, below, hidden], dim=1), weight, cell.sees.bias, padding=1)
    pooled = torch.cat([hidden.flatten(2).mean(2), hidden.flatten(2).max(2).values], dim=1)
    gates = gates + (pooled @ cell.pooled.weight.T)[:, :, None, None]
    input_gate, forget_gate, output_gate, candidate = gates.chunk(4, dim=1)
    expected = torch.sigmoid(forget_gate) * state + torch.sigmoid(input_gate) * torch.tanh(candidate)
    assert torch.allclose(ours[1], expected, atol=1e-5)
    assert torch.allclose(ours[0], torch.sigmoid(output_gate) * torch.tanh(expected), atol=1e-5)


def test_cells_are_repeated_and_the_first_reads_the_last() -> None:
    torch.manual_seed(0)
    core = DRCCore(3, 2, 2)
    board, memory, fresh = torch.randn(1, 2, 3, 4, 4), torch.randn(4, 2, 3, 4, 4), torch.zeros(1, 2, dtype=torch.bool)
    features, after = core(board, memory, fresh)
    inputs = torch.cat([board[0], border(board[0]).expand(2, -1, -1, -1)], dim=1)
    first, second = core.cells
    lower, upper = (memory[0], memory[2]), (memory[1], memory[3])
    for _ in range(2):
        lower = first(first.sees(inputs), upper[0], lower)  # type: ignore[operator]
        upper = second(second.sees(inputs), lower[0], upper)  # type: ignore[operator]
    assert torch.allclose(after, torch.stack([lower[0], upper[0], lower[1], upper[1]]), atol=1e-5)
    assert torch.allclose(features, (upper[0] + board[0]).flatten(2).transpose(1, 2), atol=1e-5)


def test_lstm_core_equals_torchs_lstm() -> None:
    torch.manual_seed(0)
    core, plain = LSTMCore(6), nn.LSTM(512, 6)
    for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
        getattr(plain, f"{name}_l0").data = getattr(core.cell, name).data
    encoded, memory = torch.randn(7, 3, 512), torch.randn(2, 3, 6)
    features, after = core(encoded, memory, torch.zeros(7, 3, dtype=torch.bool))
    expected, (hidden, state) = plain(encoded, (memory[:1].contiguous(), memory[1:].contiguous()))
    assert torch.allclose(features.view(7, 3, 6), expected, atol=1e-5)
    assert torch.allclose(after, torch.cat([hidden, state]), atol=1e-5)


def test_folded_encoder_equals_nature_cnn() -> None:
    torch.manual_seed(0)
    encoder = NatureEncoder()
    pictures = torch.randint(0, 256, (2, 128, 128, 3), dtype=torch.uint8)
    first = nn.Conv2d(3, 32, 8, 4)
    # Rearrange weights for 2×2 squares of 4×4 pixels of 3 colours to weights for 8×8 pixels.
    folded = encoder.convs[0].weight.view(32, 4, 4, 3, 2, 2)  # type: ignore[union-attr, operator]
    first.weight.data = folded.permute(0, 3, 4, 1, 5, 2).reshape(32, 3, 8, 8)
    first.bias = encoder.convs[0].bias  # type: ignore[assignment]
    x = first((torch.tensor(PAPER) - pictures.float()).permute(0, 3, 1, 2) / CONTRAST).relu()
    for conv in encoder.convs[1:]:
        x = conv(x).relu()
    x = encoder.body(x.permute(0, 2, 3, 1).reshape(2, -1)).relu()
    assert torch.allclose(encoder(pieces(pictures, 32)), x, atol=1e-5)
