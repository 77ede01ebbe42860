"""PPO for networks with memory: a minibatch is whole sequences of some boards, with the memory they started from.

The memory at the start of a rollout is the one stored by the policy that collected it. It is not recomputed with new
weights; with short rollouts and few epochs it stays close enough ("stored state", Kapturowski et al., 2019). Networks
without memory need no sequences: their minibatches are random steps of random boards.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hotloop.errors import HotloopError
from hotloop.phases import Phase
from hotloop.spans import span
from hotloop.training.learn.flat_params import NetworkState, build_seeded
from hotloop.training.learn.learner import F32, KernelLearner
from hotloop.training.learn.networks import check_numbers
from hotloop.training.learn.ppo.learner import Acted, sample_actions
from hotloop.training.learn.ppo.state import ADAM_EPS
from hotloop.training.learn.ricochet_ppo.image_reader import Reading
from hotloop.training.learn.ricochet_ppo.networks import BoardNetwork
from hotloop.training.learn.ricochet_ppo.shape import BoardShape

PRECISIONS = ("float32", "bfloat16")
GATHER, BACKWARD = span("ppo.gather", Phase.SAMPLE), span("ppo.backward", Phase.BACKWARD)


@dataclass(frozen=True, slots=True)
class BoardPPOConfig:
    """The hyperparameters."""

    shape: BoardShape
    boards: int = 32
    """Boards per minibatch, each with all steps of the rollout."""
    epochs: int = 4
    lr: float = 3e-4
    clip: float = 0.2
    entropy: float = 0.01
    value_weight: float = 0.5
    max_grad_norm: float = 0.5
    """0 for no clipping."""
    precision: str = "float32"
    """Precision of an update's passes, float32 or bfloat16; gradients of weights and Adam are always float32."""
    auxiliary: float = 0.0
    """Weight of `reading_loss`; with 0 there is none, and rollouts need no planes."""

    def __post_init__(self) -> None:
        not_negative = ("clip", "entropy", "value_weight", "max_grad_norm")
        check_numbers(self, positive=("boards", "epochs", "lr"), not_negative=not_negative)
        if self.precision not in PRECISIONS:
            raise HotloopError(f"precision is {self.precision!r}: give one of {', '.join(PRECISIONS)}")
        if self.auxiliary < 0 or (self.auxiliary and not self.shape.read_planes):
            raise HotloopError(f"auxiliary is {self.auxiliary}: give 0, or a weight above it where planes are read")


ArrayT = TypeVar("ArrayT", NDArray, Tensor)
ResultT = TypeVar("ResultT", NDArray, Tensor)


class Sequences(NamedTuple, Generic[ArrayT]):
    """A rollout of T steps of N boards, as arrays or as tensors."""

    obs: ArrayT
    """`[T, N, ...]`."""
    fresh: ArrayT
    """`[T, N]`, bool: whether an episode begins with this observation."""
    memory: ArrayT
    """`[M, N, ...]`, before the first step."""
    action: ArrayT
    log_prob: ArrayT
    advantage: ArrayT
    returns: ArrayT
    """`[T, N]` each."""
    planes: ArrayT | None = None
    """`[T, N, P, S, S]`: the true planes of the pictures, if `auxiliary` is not 0."""


class BoardUpdated(NamedTuple):
    """Metrics of an update: means over its minibatches."""

    policy_loss: float
    value_loss: float
    entropy: float
    kl: float
    clip_fraction: float
    reading_loss: float | None = None


BoardLoss = Callable[[BoardPPOConfig, tuple[Tensor, Tensor, Reading | None], Sequences[Tensor]], tuple[Tensor, Tensor]]
"""Loss of a minibatch and the numbers of `BoardUpdated`, from logits `[B, A]`, values `[B]` and predicted planes."""


def map_arrays(rollout: Sequences[ArrayT], function: Callable[[ArrayT], ResultT]) -> Sequences[ResultT]:
    """Apply a function to all arrays of a rollout."""
    *required, planes = rollout
    arrays = [function(each) for each in required if each is not None]
    return Sequences(*arrays, planes=None if planes is None else function(planes))


class BoardPPO(KernelLearner[BoardPPOConfig, NetworkState, torch.optim.Adam]):
    """A policy-gradient agent for boards: acts, learns from sequences, and can be saved.

    The loss is a pure function: `ppo_ricochet` has it. Torch computes on the device.
    """

    def __init__(self, config: BoardPPOConfig, loss: BoardLoss, *, seed: int = 0, device: str = "cpu") -> None:
        self.network = build_seeded(lambda: BoardNetwork(config.shape), seed, device)
        self._loss = loss
        super().__init__(config, NetworkState(self.network, "board", device), self._make_optimiser, "torch")

    def _make_optimiser(self, kernel: str, state: NetworkState) -> torch.optim.Adam:
        return state.flat.adam(self.config.lr, ADAM_EPS, state.updates, fused=True)

    def initial_memory(self, boards: int) -> F32:
        """Memory before the first step, `[M, N, ...]`."""
        first, *others = self.config.shape.memory
        return np.zeros((first, boards, *others), np.float32)

    def nothing(self, boards: int) -> F32:
        """The name of `initial_memory` in version 0.1."""
        warnings.warn("BoardPPO.nothing is deprecated: use initial_memory", DeprecationWarning, stacklevel=2)
        return self.initial_memory(boards)

    def act(self, obs: NDArray, memory: F32, fresh: NDArray[np.bool_], rng: np.random.Generator) -> tuple[Acted, F32]:
        """Sample actions for observations `[N, ...]`; return them with the new memory."""
        logits, value, memory = self.evaluate(obs, memory, fresh)
        return sample_actions(logits, value, rng), memory

    @torch.no_grad()
    def evaluate(self, obs: NDArray, memory: F32, fresh: NDArray[np.bool_]) -> tuple[F32, F32, F32]:
        """Logits `[N, A]`, values `[N]`, and the memory after the step."""
        tensors = [torch.from_numpy(np.ascontiguousarray(each)).to(self.device) for each in (obs, memory, fresh)]
        return tuple(each.cpu().numpy() for each in self.network.step(*tensors))  # type: ignore[return-value]

    def warm(self, obs: NDArray) -> None:
        """Compile the kernels of acting and updating, using observations `[N, ...]`; the learner is not changed."""
        boards = len(obs)
        arrays = (obs, self.initial_memory(boards), np.ones(boards, np.bool_))
        logits, value, _ = self.network.step(*(torch.from_numpy(each).to(self.device) for each in arrays))
        (logits.sum() + value.sum()).backward()
        self._kernel.zero_grad()

    def update(self, rollout: Sequences[NDArray], rng: np.random.Generator) -> BoardUpdated:
        """Do `epochs` passes over a rollout in minibatches of boards, shuffled by `rng` for each pass.

        The rollout must have a multiple of the minibatch's boards, and planes if `auxiliary` is not 0.
        """
        boards, size = rollout.action.shape[1], self.config.boards
        if boards % size:
            raise HotloopError(f"a rollout of {boards} boards: give a multiple of the minibatch, {size}")
        if self.config.auxiliary and rollout.planes is None:
            raise HotloopError(f"auxiliary is {self.config.auxiliary}, and the rollout has no planes: give them, or 0")
        if not self.config.shape.memory[0]:
            steps = len(rollout.action)
            rollout, boards, size = self._split_steps(rollout), boards * steps, size * steps
        tensors = map_arrays(rollout, lambda each: torch.from_numpy(np.ascontiguousarray(each)).to(self.device))
        metrics = []
        for _ in range(self.config.epochs):
            order = torch.from_numpy(rng.permutation(boards)).to(self.device)
            metrics += [self._minibatch(tensors, chosen) for chosen in order.split(size)]
        return BoardUpdated(*torch.stack(metrics).mean(dim=0).cpu().tolist())  # host sync

    def _split_steps(self, rollout: Sequences[NDArray]) -> Sequences[NDArray]:
        """Make each step a separate sequence, `[1, T · N, ...]`."""
        memory = self.initial_memory(rollout.action.size)
        return map_arrays(rollout, lambda each: each.reshape(1, -1, *each.shape[2:]))._replace(memory=memory)

    def _minibatch(self, rollout: Sequences[Tensor], chosen: Tensor) -> Tensor:
        config = self.config
        with GATHER:
            part = map_arrays(rollout, lambda each: each.index_select(1, chosen))
        with torch.autocast(self.device, torch.bfloat16, enabled=config.precision == "bfloat16"):
            logits, value, _, reading = self.network.unroll(part.obs, part.memory, part.fresh)
        loss, metrics = self._loss(config, (logits.float(), value.float(), reading), part)
        self._kernel.zero_grad()
        with BACKWARD:
            loss.backward()
        if config.max_grad_norm:
            nn.utils.clip_grad_norm_(self.network.parameters(), config.max_grad_norm)
        self._kernel.step()
        self._state.updates += 1
        return metrics.detach()
