"""NatureCNN and an LSTM: the usual network for pictures, as the baseline.

The first convolution, 8×8 with stride 4, is computed as 2×2 with stride 1 over squares of 4×4 pixels turned into
channels: the same sums in a shape that a CPU computes faster. torch's LSTM cannot reset its state in the middle of a
sequence, so the recurrence goes step by step; the inputs' part of the gates is computed for all steps at once.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hotloop.training.learn.ricochet_ppo.drc import clear_memory
from hotloop.training.learn.ricochet_ppo.shape import PICTURE

FOLD, FEATURES = 4, 512
SQUARE = 3 * FOLD**2
PLACES = 12
"""Side of the last convolution's output for a picture of 128×128."""


class NatureEncoder(nn.Module):
    """Pictures, cut into squares of 4×4 pixels, to 512 features (Mnih et al., 2015)."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv2d(SQUARE, 32, 2), nn.Conv2d(32, 64, 4, 2), nn.Conv2d(64, 64, 3)])
        self.body = nn.Linear(64 * PLACES**2, FEATURES)
        assert PICTURE // FOLD == 32

    def forward(self, squares: Tensor) -> Tensor:
        """`[B, 32, 32, 48]` → `[B, 512]`."""
        x = squares.permute(0, 3, 1, 2)
        for conv in self.convs:
            x = conv(x).relu_()
        # Flattened in memory order, channels last, without a copy; the weights are learnt in that order.
        return self.body(x.permute(0, 2, 3, 1).flatten(1)).relu_()


class LSTMCore(nn.Module):
    """One LSTM layer over the encoded pictures."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(FEATURES, hidden)

    def forward(self, encoded: Tensor, memory: Tensor, fresh: Tensor) -> tuple[Tensor, Tensor]:
        """`[T, B, 512]`, memory `[2, B, H]` → features `[T · B, H]`, memory after the last step."""
        input_gates = nn.functional.linear(encoded, self.cell.weight_ih, self.cell.bias_ih)
        outputs = []
        for t in range(len(encoded)):
            hidden, state = clear_memory(memory, fresh[t])
            gates = input_gates[t] + nn.functional.linear(hidden, self.cell.weight_hh, self.cell.bias_hh)
            input_gate, forget_gate, candidate, output_gate = gates.chunk(4, dim=1)
            state = forget_gate.sigmoid() * state + input_gate.sigmoid() * candidate.tanh()
            hidden = output_gate.sigmoid() * state.tanh()
            memory = torch.stack([hidden, state])
            outputs.append(hidden)
        return torch.cat(outputs), memory
