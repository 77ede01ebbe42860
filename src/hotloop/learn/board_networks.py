"""Networks that look at a board and keep where things are: a ConvLSTM that thinks several times, and a plain CNN.

The recurrent core is a DRC (Guez et al., 2019): layers of convolutional LSTM cells, run several times a step, with
the encoded board given to every layer, the pooled state of a layer injected back into it, and a plane that marks the
border. Nothing pools position away before the heads. Spans carry the names of the study that asked for them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as f

from hotloop.errors import HotloopError
from hotloop.spans import Phase, span

PICTURE, GROUPS = 128, 4
ENCODER, LAYERS = span("convlstm_conv_encoder", Phase.FORWARD), span("convlstm_layers", Phase.FORWARD)
PADDING, POOLING = span("convlstm_boundary_padding", Phase.FORWARD), span("convlstm_global_pooling", Phase.FORWARD)
FORWARD, HEADS = span("convlstm_forward_pass", Phase.FORWARD), span("recurrent_policy_action_value", Phase.FORWARD)


@dataclass(frozen=True, slots=True)
class BoardShape:
    """What a network for boards looks like."""

    observation: tuple[int, ...]
    """`(planes, side, side)` of 0 and 1, or `(128, 128, 3)` for pictures."""
    actions: int
    side: int
    """Of the board, in cells."""
    core: Literal["drc", "cnn"] = "cnn"
    channels: int = 32
    layers: int = 2
    """Cells of the recurrent core, or blocks of the plain one."""
    repeats: int = 2
    """How often the recurrent core thinks about a step."""
    hidden: int = 256

    def __post_init__(self) -> None:
        if min(self.actions, self.channels, self.layers, self.repeats, self.hidden) < 1:
            raise HotloopError("actions, channels, layers, repeats and hidden: give at least 1 of each")
        if self.is_picture and PICTURE % self.side:
            raise HotloopError(f"a picture of {PICTURE} pixels cannot be cut into {self.side} cells: use planes")

    @property
    def is_picture(self) -> bool:
        """Does it see pixels?"""
        return self.observation == (PICTURE, PICTURE, 3)

    @property
    def memory(self) -> tuple[int, ...]:
        """What is remembered of one board: hidden and cell state of each layer; nothing without recurrence."""
        return (2 * self.layers if self.core == "drc" else 0, self.channels, self.side, self.side)


class Encoder(nn.Module):
    """From what is seen to a plane of features a cell."""

    def __init__(self, shape: BoardShape) -> None:
        super().__init__()
        self.is_picture = shape.is_picture
        patch = PICTURE // shape.side if self.is_picture else 0
        inputs = shape.channels if patch else shape.observation[0]
        self.cells = nn.Conv2d(3, shape.channels, patch, patch) if patch else None
        self.near = nn.Conv2d(inputs, shape.channels, 3, padding=1)

    def forward(self, obs: Tensor) -> Tensor:
        """`[B, ...]` uint8 → `[B, channels, side, side]`."""
        if self.cells is None:
            return self.near(obs.float()).relu()
        return self.near(self.cells(obs.permute(0, 3, 1, 2).float().mul_(1 / 255)).relu()).relu()


class Cell(nn.Module):
    """A convolutional LSTM cell with pool-and-inject: what its state is on average and at most, everywhere."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.inject = nn.Linear(2 * channels, channels)
        # Inputs: the encoded board, the layer below, its own state, the injected planes, the border.
        self.gates = nn.Conv2d(4 * channels + 1, 4 * channels, 3, padding=1)

    def forward(self, given: tuple[Tensor, Tensor, Tensor], hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """One tick: the encoded board, the layer below and the border, `[B, C, S, S]` → new hidden and cell state."""
        board, below, border = given
        with POOLING:
            pooled = self.inject(torch.cat([hidden.mean((2, 3)), hidden.amax((2, 3))], dim=1))
            pooled = pooled[:, :, None, None].expand_as(hidden)
        gates = self.gates(torch.cat([board, below, hidden, pooled, border], dim=1))
        take, forget, out, new = gates.chunk(4, dim=1)
        cell = forget.sigmoid() * cell + take.sigmoid() * new.tanh()
        return out.sigmoid() * cell.tanh(), cell


class Block(nn.Module):
    """Looks at the neighbours, and along the whole row and column, for that is how robots slide.

    Along rows and columns cells are mixed by matrices, one for each of some groups of channels: a convolution that goes
    as far takes many times as long on a CPU.
    """

    def __init__(self, channels: int, side: int) -> None:
        super().__init__()
        self.groups = math.gcd(channels, GROUPS)
        self.near = nn.Conv2d(channels, channels, 3, padding=1)
        self.row = nn.Parameter(torch.randn(self.groups, side, side) / math.sqrt(side))
        self.column = nn.Parameter(torch.randn(self.groups, side, side) / math.sqrt(side))
        self.mix = nn.Conv2d(3 * channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """`[B, C, S, S]`, the same size out."""
        grouped = x.unflatten(1, (self.groups, -1))
        row = torch.matmul(grouped, self.row[:, None]).flatten(1, 2)
        column = torch.matmul(self.column[:, None], grouped).flatten(1, 2)
        return x + self.mix(torch.cat([self.near(x), row, column], dim=1).relu())


class BoardNetwork(nn.Module):
    """Policy and value of boards, with or without memory."""

    def __init__(self, shape: BoardShape) -> None:
        super().__init__()
        self.shape = shape
        self.encoder = Encoder(shape)
        recurrent = shape.core == "drc"
        self.cells = nn.ModuleList(Cell(shape.channels) for _ in range(shape.layers if recurrent else 0))
        self.blocks = nn.ModuleList(Block(shape.channels, shape.side) for _ in range(0 if recurrent else shape.layers))
        self.body = nn.Linear(shape.channels * shape.side**2, shape.hidden)
        self.policy = nn.Linear(shape.hidden, shape.actions)
        self.value = nn.Linear(shape.hidden, 1)
        nn.init.orthogonal_(self.policy.weight, 0.01)
        nn.init.orthogonal_(self.value.weight, 1.0)
        for layer in (self.policy, self.value):
            nn.init.zeros_(layer.bias)
        nn.init.orthogonal_(self.body.weight, math.sqrt(2))

    def step(self, obs: Tensor, memory: Tensor, fresh: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One step of B boards.

        Args:
            obs: `[B, ...]`.
            memory: `[M, B, C, S, S]`, as it was after the step before.
            fresh: `[B]` bool: where an episode begins nothing is remembered.

        Returns:
            Logits `[B, A]`, values `[B]`, and the memory.
        """
        with FORWARD:
            with ENCODER:
                board = self.encoder(obs)
            features, memory = self._think(board, memory, fresh)
        return (*self._told(features), memory)

    def unroll(self, obs: Tensor, memory: Tensor, fresh: Tensor) -> tuple[Tensor, Tensor]:
        """T steps of B boards, `[T, B, ...]`; logits `[T · B, A]` and values `[T · B]`.

        Boards are encoded, and heads applied, all at once; only the core goes step by step.
        """
        steps, boards = obs.shape[:2]
        with FORWARD:
            with ENCODER:
                encoded = self.encoder(obs.flatten(0, 1))
            if not self.cells:
                features, _ = self._think(encoded, memory, fresh)
                return self._told(features)
            encoded, thought = encoded.unflatten(0, (steps, boards)), []
            for t in range(steps):
                features, memory = self._think(encoded[t], memory, fresh[t])
                thought.append(features)
        return self._told(torch.cat(thought))

    def _think(self, board: Tensor, memory: Tensor, fresh: Tensor) -> tuple[Tensor, Tensor]:
        with LAYERS:
            if not self.cells:
                for block in self.blocks:
                    board = block(board)
                return board.relu(), memory
            memory = memory * (~fresh)[None, :, None, None, None]
            with PADDING:
                border = _border(board)
            hidden, cells = list(memory[: len(self.cells)]), list(memory[len(self.cells) :])
            for _ in range(self.shape.repeats):
                for k, cell in enumerate(self.cells):
                    hidden[k], cells[k] = cell((board, hidden[k - 1], border), hidden[k], cells[k])
            # The encoded board is handed past the core, so that at the begin of training it is not lost in it.
            return hidden[-1] + board, torch.stack([*hidden, *cells])

    def _told(self, features: Tensor) -> tuple[Tensor, Tensor]:
        with HEADS:
            x = self.body(features.flatten(1)).relu()
            return self.policy(x), self.value(x).squeeze(1)


def _border(board: Tensor) -> Tensor:
    """A plane `[B, 1, S, S]` that is 1 at the border."""
    side = board.shape[-1]
    inside = board.new_zeros(1, 1, side - 2, side - 2)
    return f.pad(inside, (1, 1, 1, 1), value=1.0).expand(len(board), -1, -1, -1)
