"""Checks that the pipelines' configurations share, and settings of torch."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import Field
from importlib.util import find_spec
from typing import Any, ClassVar, Protocol

from hotloop.errors import DependencyMissing, HotloopError

NEEDED = ("gymnasium", "numba", "safetensors", "torch")
"""Libraries of the extra `train` that training and playing need."""
MOST = (1 << 31) - 1
MOST_THREADS = 1024
"""If torch cannot start a thread, it aborts the process."""
MOST_REASON = 100
"""Characters of torch's error message that are shown."""


class Settings(Protocol):
    """Any configuration dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


class Config(Settings, Protocol):
    """What the configurations of all pipelines have. They are flat."""

    @property
    def seed(self) -> int: ...  # noqa: D102

    @property
    def kernel(self) -> str: ...  # noqa: D102

    @property
    def device(self) -> str: ...  # noqa: D102

    @property
    def threads(self) -> int: ...  # noqa: D102


def require(holds: bool, config: Settings, name: str, remedy: str) -> None:
    """Reject a configuration unless `holds`. The error shows field `name` and says to give `remedy` instead."""
    if not holds:
        raise HotloopError(f"--{name.replace('_', '-')} is {getattr(config, name)}: give {remedy}")


def require_positive(config: Settings, *names: str) -> None:
    """Reject fields that are not above 0, or so large that products of them would exceed 64 bits."""
    for name in names:
        require(0 < getattr(config, name) <= MOST, config, name, f"a number above 0, at most {MOST:,}")


def require_share(config: Settings, *names: str) -> None:
    """Reject fields that are not from 0 to 1."""
    for name in names:
        require(0 <= getattr(config, name) <= 1, config, name, "a number from 0 to 1")


def require_seed(config: Config) -> None:
    """Reject a seed that the random generators do not accept."""
    require(0 <= config.seed < 1 << 63, config, "seed", "a whole number from 0 to 2**63 - 1")


def require_training() -> None:
    """Raise an error if a library for training or playing is not installed. Imports none of them."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise DependencyMissing(
            f'to train and to play, {", ".join(missing)} must be installed: `pip install "hotloop[train]"`'
        )


def require_device(name: str) -> None:
    """Reject a device that this machine does not have, or that cannot compute."""
    import torch

    try:
        float(torch.ones(1, device=name).sum())
    except Exception as error:  # what torch raises depends on the device: import errors, assertions and more
        raise HotloopError(f"--device {name} cannot be used ({_why_not(error)}): give cpu") from error


def _why_not(error: Exception) -> str:
    """Return the gist of torch's error, which may be a page long."""
    if isinstance(error, ImportError | NotImplementedError):
        return "torch as it is installed does not compute on it"
    first = (str(error).splitlines() or [type(error).__name__])[0]
    return textwrap.shorten(first, MOST_REASON, placeholder=" ...")


@contextmanager
def torch_threads(number: int) -> Iterator[None]:
    """Let torch use this many threads inside the block: for small networks one is fastest.

    Subnormal numbers are flushed to zero. Adam's moments of a unit that is never active decay until they are subnormal,
    which makes its steps several times slower. Torch's other threads inherit this setting from the thread that starts
    them with its first large operation, so networks must be created inside the block.
    """
    import torch

    if not 0 < number <= MOST_THREADS:
        raise HotloopError(f"--threads is {number}: give a number from 1 to {MOST_THREADS}")
    # Torch sets it for this thread and cannot report it; half of the smallest normal number is subnormal.
    flushed = sys.float_info.min / 2 == 0
    before = torch.get_num_threads()
    torch.set_flush_denormal(True)
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_flush_denormal(flushed)
        torch.set_num_threads(before)
