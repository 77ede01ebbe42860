"""NatureCNN and an LSTM: what pictures are usually given, here as the thing to compare with.

The first convolution, 8×8 with stride 4, is one of 2×2 with stride 1 over squares of 4×4 pixels put behind each other:
the same sums in a shape that a CPU does faster. An LSTM cannot begin anew in the middle of a sequence, so it goes step
by step; what the inputs contribute is computed for all steps at once.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hotloop.training.learn.ricochet_ppo.drc import forget
from hotloop.training.learn.ricochet_ppo.shape import PICTURE

FOLD, FEATURES = 4, 512
SQUARE = 3 * FOLD**2
PLACES = 12
"""Side of what the convolutions leave of a picture of 128×128."""


class NatureEncoder(nn.Module):
    """Pictures in squares of 4×4 pixels, `[B, 32, 32, 48]`, to 512 numbers (Mnih et al., 2015)."""

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
        # Channels are last in memory: so they are flattened, which is another order of the same weights.
        return self.body(x.permute(0, 2, 3, 1).flatten(1)).relu_()


class LSTMCore(nn.Module):
    """One layer of LSTM over what was encoded."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(FEATURES, hidden)

    def forward(self, seen: Tensor, memory: Tensor, fresh: Tensor) -> tuple[Tensor, Tensor]:
        """`[T, B, 512]`, memory `[2, B, H]` → features `[T · B, H]`, memory after the last step."""
        given = nn.functional.linear(seen, self.cell.weight_ih, self.cell.bias_ih)
        thought = []
        for t in range(len(seen)):
            hidden, state = forget(memory, fresh[t])
            gates = given[t] + nn.functional.linear(hidden, self.cell.weight_hh, self.cell.bias_hh)
            take, keep, new, out = gates.chunk(4, dim=1)
            state = keep.sigmoid() * state + take.sigmoid() * new.tanh()
            hidden = out.sigmoid() * state.tanh()
            memory = torch.stack([hidden, state])
            thought.append(hidden)
        return torch.cat(thought), memory
