"""Options of a training run apart from its algorithm: how long, what to write, and where."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro.conf

from hotloop.errors import HotloopError


@dataclass(frozen=True, slots=True)
class Options:
    """How long to train, what to write, and where. None of them changes what the same seed learns."""

    steps: int | None = None
    """Stop after this many environment steps in total, including those before a --resume."""
    episodes: int | None = None
    """Stop after this many episodes in total."""
    seconds: float | None = None
    """Stop after this many seconds of training in this call, not counting the warm-up. 600 if no limit is given."""
    out: Path | None = None
    """Run directory, new or empty. Default: runs/<time>-<pipeline>."""
    resume: Path | None = None
    """Continue from this run directory (its last checkpoint) or checkpoint, in a new run directory."""
    eval_every: int = 1_000_000
    """Environment steps between greedy evaluations; 0: only at the end."""
    eval_episodes: int = 100
    """Episodes per evaluation, on seeds that training never uses; 0: no evaluation."""
    checkpoint_every: int = 5_000_000
    """Environment steps between checkpoints; 0: only at the end."""
    keep: int = 3
    """Checkpoints to keep, besides the best."""
    tensorboard: bool = True
    """Write TensorBoard scalars into the run directory."""
    wandb: bool = False
    """Send the scalars to Weights & Biases, if it is installed."""
    quiet: bool = False
    """Print no progress."""
    ends_process: Annotated[bool, tyro.conf.Fixed, tyro.conf.Suppress] = False
    """Whether the process exits after the training; see `Stop`. Not a flag."""

    def __post_init__(self) -> None:
        """Check the values."""
        for name in ("steps", "episodes", "seconds"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise HotloopError(f"--{name} is {value}: give a number above 0")
        for name in ("eval_every", "eval_episodes", "checkpoint_every"):
            if (getattr(self, name) or 0) < 0:
                raise HotloopError(f"--{name.replace('_', '-')} is {getattr(self, name)}: give 0 or more")
        if self.keep < 1:
            raise HotloopError(f"--keep is {self.keep}: keep at least 1 checkpoint")
