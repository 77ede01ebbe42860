"""A DRC (Guez et al., 2019): layers of convolutional LSTM cells that are applied several times per step.

Each layer reads the encoded board with a plane that marks the border, the layer below, its own state, and its own state
pooled over the board. A convolution over several inputs is the sum of one over each. So the board's part, the same in
all repeats, is computed once for all steps of a sequence, and the pooled state, the same in all cells, is added instead
of convolved. This halves the arithmetic in the loop. Attribute names are part of checkpoints: do not rename them.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as f

from hotloop.phases import Phase
from hotloop.spans import span

PADDING, POOLING = span("convlstm_boundary_padding", Phase.FORWARD), span("convlstm_global_pooling", Phase.FORWARD)


class Cell(nn.Module):
    """A convolutional LSTM cell with pool-and-inject: every position gets the mean and maximum of the state."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.sees = nn.Conv2d(channels + 1, 4 * channels, 3, padding=1)
        self.recalls = nn.Conv2d(2 * channels, 4 * channels, 3, padding=1, bias=False)
        self.pooled = nn.Linear(2 * channels, 4 * channels, bias=False)

    def forward(self, board_gates: Tensor, below: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """The board's part of the gates `[B, 4C, S, S]`, the layer below, old state → new hidden and cell state."""
        hidden, cell = state
        with POOLING:
            pooled = self.pooled(torch.cat([hidden.mean((2, 3)), hidden.amax((2, 3))], dim=1))
        gates = board_gates + self.recalls(torch.cat([below, hidden], dim=1)) + pooled[:, :, None, None]
        input_gate, forget_gate, output_gate, candidate = gates.chunk(4, dim=1)
        cell = forget_gate.sigmoid() * cell + input_gate.sigmoid() * candidate.tanh()
        return output_gate.sigmoid() * cell.tanh(), cell


class DRCCore(nn.Module):
    """Layers of cells, each applied `repeats` times per step."""

    def __init__(self, channels: int, layers: int, repeats: int) -> None:
        super().__init__()
        self.repeats = repeats
        self.cells = nn.ModuleList(Cell(channels) for _ in range(layers))

    def forward(self, board: Tensor, memory: Tensor, fresh: Tensor) -> tuple[Tensor, Tensor]:
        """`[T, B, C, S, S]`, memory `[M, B, C, S, S]` → cells `[T · B, S · S, C]`, memory after the last step."""
        steps = len(board)
        with PADDING:
            inputs = torch.cat(
                [board.flatten(0, 1), border(board[0]).expand(steps * board.shape[1], -1, -1, -1)], dim=1
            )
        gates = [cell.sees(inputs).unflatten(0, board.shape[:2]) for cell in self.cells]  # type: ignore[operator]
        outputs = []
        for t in range(steps):
            memory = clear_memory(memory, fresh[t])
            memory = self._step([each[t] for each in gates], memory)
            outputs.append(memory[len(self.cells) - 1])
        # A skip connection, so that the encoded board is not lost in untrained cells.
        features = torch.stack(outputs) + board
        return features.flatten(0, 1).flatten(2).transpose(1, 2), memory

    def _step(self, board_gates: list[Tensor], memory: Tensor) -> Tensor:
        layers = len(self.cells)
        hidden, states = list(memory[:layers]), list(memory[layers:])
        for _ in range(self.repeats):
            for k, cell in enumerate(self.cells):
                hidden[k], states[k] = cell(board_gates[k], hidden[k - 1], (hidden[k], states[k]))
        return torch.stack([*hidden, *states])


def border(board: Tensor) -> Tensor:
    """A plane `[1, 1, S, S]` that is 1 at the border."""
    side = board.shape[-1]
    return f.pad(board.new_zeros(1, 1, side - 2, side - 2), (1, 1, 1, 1), value=1.0)


def clear_memory(memory: Tensor, fresh: Tensor) -> Tensor:
    """Clear the memory `[M, B, ...]` of the boards on which an episode begins, `[B]`."""
    return memory * (~fresh).view(1, -1, *[1] * (memory.dim() - 2))
