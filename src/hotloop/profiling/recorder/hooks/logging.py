"""Hooks for output: print, logging, TensorBoard, Weights & Biases, progress bars."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

from hotloop.phases import Phase
from hotloop.profiling.recorder.hooks.patching import Patches, Subject, Target, targets

if TYPE_CHECKING:
    from hotloop.profiling.recorder.hooks.state import HookState


def on_class(cls: type, patches: Patches, state: HookState) -> None:
    """Time the `add_…` methods of TensorBoard's writers, torch's and tensorboardX's."""
    if not any(base.__name__ == "SummaryWriter" for base in cls.__mro__):
        return
    for name, value in list(vars(cls).items()):
        if isinstance(value, types.FunctionType) and name.startswith(("add_", "flush", "close")):
            patches.time_method(cls, name, Phase.LOG)


SUBJECT = Subject(
    on_class=on_class,
    on_import={
        "builtins": targets(Target("print", Phase.LOG)),
        "logging": targets(Target("Logger.handle", Phase.LOG)),
        "wandb.sdk.wandb_run": targets(Target("Run.log", Phase.LOG, "wandb.log")),
        "tqdm.std": targets(Target("tqdm.refresh", Phase.LOG)),
    },
)
