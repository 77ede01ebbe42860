"""Checks that the configurations of the pipelines share, and the machine's part of them."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from hotloop.errors import DependencyMissing, HotloopError

NEEDED = ("gymnasium", "numba", "safetensors", "torch")
"""Libraries of the extra `train` without which nothing is trained or played."""
MOST = (1 << 31) - 1
MOST_THREADS = 1024
"""Of torch: where the system has no more threads to give, the process is aborted."""

MOST_REASON = 100
"""Characters of what torch says of a device."""


def require(holds: bool, config: Any, name: str, remedy: str) -> None:
    """Refuse a configuration whose field cannot be.

    Args:
        holds: Whether it can be.
        config: The configuration.
        name: The field to name in the error.
        remedy: What to give instead.
    """
    if not holds:
        raise HotloopError(f"--{name.replace('_', '-')} is {getattr(config, name)}: give {remedy}")


def require_positive(config: Any, *names: str) -> None:
    """Refuse fields that are not above 0, or absurdly large: sizes are multiplied, and must stay 64-bit numbers."""
    for name in names:
        require(0 < getattr(config, name) <= MOST, config, name, f"a number above 0, at most {MOST:,}")


def require_share(config: Any, *names: str) -> None:
    """Refuse fields that are not from 0 to 1."""
    for name in names:
        require(0 <= getattr(config, name) <= 1, config, name, "a number from 0 to 1")


def require_seed(config: Any) -> None:
    """Refuse a seed that the random generators do not take."""
    require(0 <= config.seed < 1 << 63, config, "seed", "a whole number from 0 to 2**63 - 1")


def require_training() -> None:
    """Refuse to train or to play where the libraries for it are not installed. None of them is imported."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise DependencyMissing(
            f'to train and to play, {", ".join(missing)} must be installed: `pip install "hotloop[train]"`'
        )


def require_device(name: str) -> None:
    """Refuse a device that this machine does not have, or that cannot compute."""
    import torch

    try:
        float(torch.ones(1, device=name).sum())
    except Exception as error:  # what torch raises depends on the device: import errors, assertions and more
        raise HotloopError(f"--device {name} cannot be used ({_why_not(error)}): give cpu") from error


def _why_not(error: Exception) -> str:
    """Say in a few words what torch says of a device, which may be a page."""
    if isinstance(error, ImportError | NotImplementedError):
        return "torch as it is installed does not compute on it"
    first = (str(error).splitlines() or [type(error).__name__])[0]
    return textwrap.shorten(first, MOST_REASON, placeholder=" ...")


@contextmanager
def torch_threads(number: int) -> Iterator[None]:
    """Let torch use this many threads inside the block: for small networks one is fastest.

    Subnormal numbers are zero meanwhile. Adam's moments of a unit that is never active decay until they are subnormal,
    and a step of it is then several times slower. Torch's helping threads do as the thread that starts them, by its
    first large operation: so networks are made inside of this.
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
