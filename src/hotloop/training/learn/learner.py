"""What all learners have in common.

A learner knows transitions, weights and updates. It knows nothing about environments, replay or schedules. Its state
does not depend on the kernel that advances it (see `flat_params`), so the kernel may be changed at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Generic, Protocol, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hotloop.errors import HotloopError
from hotloop.training.learn import flat_params
from hotloop.training.learn.flat_params import Arrays
from hotloop.training.state_checks import MOST, array_of

if TYPE_CHECKING:
    from hotloop.training.learn.dqn.state import Transitions
    from hotloop.training.replay import Batch

F32 = NDArray[np.float32]


TransitionBatch: TypeAlias = "Batch[np.ndarray] | Transitions"
"""R transitions to learn from. Actions are int64 `[R]`, for SAC float32 `[R, A]`; a weight of None means 1."""
TimePhase: TypeAlias = Callable[[str], AbstractContextManager[object]]
"""Times a phase of an update, or a part of one: called with its name, returns a context manager."""


class State(Protocol):
    """What the state of every learner holds."""

    device: str
    updates: int

    def checkpoint_tensors(self) -> dict[str, Tensor]:
        """Return all tensors of a checkpoint by name, as views: writing to them changes the state."""
        ...


ConfigT = TypeVar("ConfigT")
StateT = TypeVar("StateT", bound=State)
KernelT = TypeVar("KernelT")


class KernelLearner(Generic[ConfigT, StateT, KernelT]):
    """A state and the kernel, called `kernel`, that advances it."""

    def __init__(
        self, config: ConfigT, state: StateT, make_kernel: Callable[[str, StateT], KernelT], kernel: str
    ) -> None:
        self.config = config
        self._state = state
        self._make_kernel = make_kernel
        self.use(kernel)

    @property
    def device(self) -> str:
        """Where the torch kernels compute."""
        return self._state.device

    @property
    def updates(self) -> int:
        """Number of updates done."""
        return self._state.updates

    def use(self, kernel: str) -> None:
        """Switch to another kernel; weights, moments and counts stay."""
        self._kernel: KernelT = self._make_kernel(kernel, self._state)
        self.kernel = kernel

    def tensors(self) -> Arrays:
        """Copy the whole state of the learner. A learner that loads it continues bit by bit as this one would."""
        tensors = self._state.checkpoint_tensors()
        arrays = {name: tensor.cpu().numpy().copy() for name, tensor in tensors.items()}
        return arrays | {"updates": np.array(self._state.updates, dtype=np.int64)}

    def load(self, arrays: Mapping[str, NDArray]) -> None:
        """Restore the state that `tensors` returned, from a learner with the same networks and any kernel.

        An invalid state is rejected before anything is changed.
        """
        tensors = self._state.checkpoint_tensors()
        loaded = {name: flat_params.take(arrays, name, tuple(each.shape)) for name, each in tensors.items()}
        self._state.updates = int(array_of(arrays, "updates", np.zeros((), np.int64), low=0, high=MOST))
        with torch.no_grad():
            for name, tensor in tensors.items():
                tensor.copy_(torch.from_numpy(loaded[name]))
        self.use(self.kernel)


class NoisyLearner(KernelLearner[ConfigT, StateT, KernelT]):
    """A learner that draws noise. The generator of the noise is part of its state."""

    def __init__(
        self, config: ConfigT, state: StateT, make_kernel: Callable[[str, StateT], KernelT], kernel: str, seed: int
    ) -> None:
        super().__init__(config, state, make_kernel, kernel)
        self._noise = np.random.Generator(np.random.PCG64(seed))

    def tensors(self) -> Arrays:
        """Copy the whole state of the learner, including the generator of its noise."""
        return {**super().tensors(), "noise_generator": flat_params.generator_words(self._noise)}

    def load(self, arrays: Mapping[str, NDArray]) -> None:
        """Restore the state that `tensors` returned; see `KernelLearner.load`."""
        noise = flat_params.take_generator(arrays)
        super().load(arrays)
        self._noise.bit_generator.state = noise


def check_kernel(name: str, known: Sequence[str], supported: Sequence[str], fits_loss: bool) -> None:
    """Raise HotloopError unless a kernel is known and can run the learner's network and loss."""
    if name not in known:
        raise HotloopError(f"there is no kernel {name!r}: choose one of {', '.join(known)}")
    if name not in supported:
        what = "network" if fits_loss else "loss"
        raise HotloopError(f"the {name!r} kernel cannot run this {what}: choose one of {', '.join(supported)}")


def random_observations(shape: tuple[int, ...], rows: int, rng: np.random.Generator) -> NDArray:
    """Make random observations `[rows, *shape]`: bytes 0 and 1 for a grid or frames, floats for features."""
    if len(shape) == 3:
        return rng.integers(2, size=(rows, *shape), dtype=np.uint8)
    return rng.standard_normal((rows, *shape), dtype=np.float32)


def check_row_count(rows: int, size: int, what: str = "batch size") -> None:
    """Raise HotloopError unless the rows of an update fill one or more batches of a size."""
    if rows == 0 or rows % size:
        raise HotloopError(f"an update got {rows} rows: give a multiple of the {what}, {size}")
