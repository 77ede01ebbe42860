"""Networks for boards: an encoder, a core with or without memory, and heads.

The input is planes or pictures. Pictures are cut into cells by the first layer: a core on pixels would do many times
the arithmetic for the same board. If planes are predicted from pictures, the rest is the network for planes. Spans have
the names of the study's timers (see docs/ricochet.md).
"""

from __future__ import annotations

from torch import Tensor, channels_last, nn

from hotloop.phases import Phase
from hotloop.spans import span
from hotloop.training.learn.ricochet_ppo.drc import DRCCore
from hotloop.training.learn.ricochet_ppo.heads import FoundHeads, PlaceHeads, PlainHeads
from hotloop.training.learn.ricochet_ppo.image_reader import Reader, Reading, planes_of
from hotloop.training.learn.ricochet_ppo.lstm import FOLD, LSTMCore, NatureEncoder
from hotloop.training.learn.ricochet_ppo.shape import COLOURS, PICTURE, BoardShape, pieces
from hotloop.training.learn.ricochet_ppo.sweep import SweepCore

HEADS = span("recurrent_policy_action_value", Phase.FORWARD)
PREFIX = {"drc": "convlstm", "lstm": "cnnlstm", "sweep": "sweep"}


class Encoder(nn.Module):
    """Planes or pieces of pictures to a feature vector for each cell."""

    def __init__(self, shape: BoardShape) -> None:
        super().__init__()
        colours = COLOURS * (PICTURE // shape.side) ** 2
        self.piece = nn.Linear(colours, shape.channels) if shape.is_picture else None
        self.near = nn.Conv2d(
            shape.channels if shape.is_picture else shape.observation[0], shape.channels, 3, padding=1
        )

    def forward(self, x: Tensor) -> Tensor:
        """Planes `[B, P, S, S]` or pieces `[B, S, S, D]` → `[B, channels, S, S]`, channels last in memory."""
        if self.piece is not None:
            x = self.piece(x).relu_().permute(0, 3, 1, 2)
        return self.near(x).relu_()


class BoardNetwork(nn.Module):
    """Policy and value for boards."""

    def __init__(self, shape: BoardShape) -> None:
        super().__init__()
        self.shape = shape
        self.reader = Reader(shape) if shape.read_planes else None
        input_shape = shape.planes if shape.read_planes else shape
        self.encoder = NatureEncoder() if shape.core == "lstm" else Encoder(input_shape)
        self.core = _make_core(shape)
        heads = PlainHeads if shape.core == "lstm" else FoundHeads if input_shape.is_picture else PlaceHeads
        self.heads = heads(input_shape)
        names = ("forward_pass", "conv_encoder", "layers")
        self._spans = [span(f"{PREFIX[shape.core]}_{name}", Phase.FORWARD) for name in names]

    def step(self, obs: Tensor, memory: Tensor, fresh: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One step of B boards, `[B, ...]`; logits `[B, A]`, values `[B]`, and the new memory."""
        return self.unroll(obs[None], memory, fresh[None])[:3]

    def unroll(self, obs: Tensor, memory: Tensor, fresh: Tensor) -> tuple[Tensor, Tensor, Tensor, Reading | None]:
        """T steps of B boards. Encoder and heads process all steps at once; only a core with memory goes step by step.

        Args:
            obs: uint8 `[T, B, ...]`.
            memory: `[M, B, ...]`, before the first step.
            fresh: `[T, B]` bool: where an episode begins, and the memory is cleared.

        Returns:
            Logits `[T · B, A]`, values `[T · B]`, the memory after the last step, and the predicted planes, if any.
        """
        forward_pass, encoder, layers = self._spans
        with forward_pass:
            with encoder:
                x, reading = self._prepare_input(obs.flatten(0, 1))
                board = self.encoder(x).unflatten(0, obs.shape[:2])
            with layers:
                features, memory = self.core(board, memory, fresh)
        with HEADS:
            logits, value = self.heads(features, x)
        return logits, value, memory, reading

    def _prepare_input(self, obs: Tensor) -> tuple[Tensor, Reading | None]:
        """Convert observations to the encoder's input, predicting planes if configured."""
        side = self.shape.side
        if self.reader is not None:
            reading = self.reader(pieces(obs, side))
            return planes_of(reading, side).contiguous(memory_format=channels_last), reading
        if self.shape.is_picture:
            return pieces(obs, PICTURE // FOLD if self.shape.core == "lstm" else side), None
        return obs.float().contiguous(memory_format=channels_last), None


def _make_core(shape: BoardShape) -> nn.Module:
    if shape.core == "sweep":
        return SweepCore(shape.channels, shape.side, shape.layers)
    if shape.core == "drc":
        return DRCCore(shape.channels, shape.layers, shape.repeats)
    return LSTMCore(shape.hidden)
