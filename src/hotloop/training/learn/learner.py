"""What learners with several kernels have in common: one state, which whatever kernel is chosen advances in place."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Generic, Protocol, TypeVar


class State(Protocol):
    """What every learner's state holds besides its networks."""

    config: Any
    device: str
    updates: int


class TimePhase(Protocol):
    """Times a phase of an update, or a part of it: called with its name, returns a context manager."""

    def __call__(self, name: str, /) -> AbstractContextManager[object]: ...  # noqa: D102


ConfigT = TypeVar("ConfigT")
StateT = TypeVar("StateT", bound=State)
KernelT = TypeVar("KernelT")


class Learner(Generic[ConfigT, StateT, KernelT]):
    """A state and the kernel that advances it.

    Attributes:
        kernel: Name of the kernel in use.
    """

    def __init__(self, state: StateT, make_kernel: Callable[[str, StateT], KernelT], kernel: str) -> None:
        self._state = state
        self._make_kernel = make_kernel
        self.use(kernel)

    @property
    def config(self) -> ConfigT:
        """What it was made with."""
        return self._state.config

    @property
    def device(self) -> str:
        """Where the torch kernels compute."""
        return self._state.device

    @property
    def updates(self) -> int:
        """How many updates it has done."""
        return self._state.updates

    def use(self, kernel: str) -> None:
        """Go on with another kernel; weights, moments and counts stay.

        Raises:
            HotloopError: There is no such kernel, or it cannot run this network.
        """
        self._kernel: KernelT = self._make_kernel(kernel, self._state)
        self.kernel = kernel
