"""A DRC (Guez et al., 2019): layers of convolutional LSTM cells that think several times about a step.

Each layer is given the encoded board with a plane that marks the border, the layer below, its own state, and its own
state pooled over the board. A convolution over several inputs is the sum of one over each, so the board's part, the
same in all repeats, is computed once for all steps of a sequence; the pooled state is the same everywhere, so it is
added and not convolved. What remains in the loop is half of the arithmetic.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as f

from hotloop.phases import Phase
from hotloop.spans import span

PADDING, POOLING = span("convlstm_boundary_padding", Phase.FORWARD), span("convlstm_global_pooling", Phase.FORWARD)


class Cell(nn.Module):
    """A convolutional LSTM cell with pool-and-inject: what its state is on average and at most, everywhere."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.sees = nn.Conv2d(channels + 1, 4 * channels, 3, padding=1)
        self.recalls = nn.Conv2d(2 * channels, 4 * channels, 3, padding=1, bias=False)
        self.pooled = nn.Linear(2 * channels, 4 * channels, bias=False)

    def forward(self, seen: Tensor, below: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """One tick: the board's part of the gates `[B, 4C, S, S]`, the layer below → new hidden and cell state."""
        hidden, cell = state
        with POOLING:
            pooled = self.pooled(torch.cat([hidden.mean((2, 3)), hidden.amax((2, 3))], dim=1))
        gates = seen + self.recalls(torch.cat([below, hidden], dim=1)) + pooled[:, :, None, None]
        take, forget, out, new = gates.chunk(4, dim=1)
        cell = forget.sigmoid() * cell + take.sigmoid() * new.tanh()
        return out.sigmoid() * cell.tanh(), cell


class DRCCore(nn.Module):
    """Cells in layers."""

    def __init__(self, channels: int, layers: int, repeats: int) -> None:
        super().__init__()
        self.repeats = repeats
        self.cells = nn.ModuleList(Cell(channels) for _ in range(layers))

    def forward(self, board: Tensor, memory: Tensor, fresh: Tensor) -> tuple[Tensor, Tensor]:
        """`[T, B, C, S, S]`, memory `[M, B, C, S, S]` → cells `[T · B, S · S, C]`, memory after the last step."""
        steps = len(board)
        with PADDING:
            given = torch.cat([board.flatten(0, 1), border(board[0]).expand(steps * board.shape[1], -1, -1, -1)], dim=1)
        seen = [cell.sees(given).unflatten(0, board.shape[:2]) for cell in self.cells]  # type: ignore[operator]
        thought = []
        for t in range(steps):
            memory = forget(memory, fresh[t])
            memory = self._think([each[t] for each in seen], memory)
            thought.append(memory[len(self.cells) - 1])
        # The encoded board is handed past the cells, so that at the begin of training it is not lost in them.
        features = torch.stack(thought) + board
        return features.flatten(0, 1).flatten(2).transpose(1, 2), memory

    def _think(self, seen: list[Tensor], memory: Tensor) -> Tensor:
        layers = len(self.cells)
        hidden, states = list(memory[:layers]), list(memory[layers:])
        for _ in range(self.repeats):
            for k, cell in enumerate(self.cells):
                hidden[k], states[k] = cell(seen[k], hidden[k - 1], (hidden[k], states[k]))
        return torch.stack([*hidden, *states])


def border(board: Tensor) -> Tensor:
    """A plane `[1, 1, S, S]` that is 1 at the border."""
    side = board.shape[-1]
    return f.pad(board.new_zeros(1, 1, side - 2, side - 2), (1, 1, 1, 1), value=1.0)


def forget(memory: Tensor, fresh: Tensor) -> Tensor:
    """Clear what is remembered, `[M, B, ...]`, of the boards on which an episode begins, `[B]`."""
    return memory * (~fresh).view(1, -1, *[1] * (memory.dim() - 2))
