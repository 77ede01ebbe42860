"""Hooks for what makes a run worthless rather than slow: training mode while acting, losses that are not finite.

Also counts recompilations of torch.compile. A module is searched once for layers that behave differently in training.
A loss is read only if it is on the CPU: on a device, reading it would make the host wait.
"""

from __future__ import annotations

import functools
import weakref
from math import isfinite
from types import ModuleType
from typing import TYPE_CHECKING

from hotloop.profiling.recorder.hooks.patching import Patches, Subject
from hotloop.profiling.recorder.hooks.torch.library import Library
from hotloop.profiling.recorder.hooks.wrappers import (
    Failures,
    Method,
    P,
    R,
    S,
    hide_frame,
    is_wrapper,
    mark,
    skipped_by_warnings,
)
from hotloop.spans.hot_path import note
from hotloop.spans.registry import counter_code, recording

if TYPE_CHECKING:
    from torch import nn

    from hotloop.profiling.recorder.hooks.state import HookState

_DROPOUT, _BATCHNORM, _NON_FINITE, _COMPILED, _RECOMPILED = map(
    counter_code,
    ("training_mode.dropout", "training_mode.batchnorm", "non_finite_losses", "compilations", "recompilations"),
)
ModeLayers = tuple[tuple["weakref.ref[nn.Module]", int], ...]
"""Layers that behave differently in training, each with its counter; those of one kind together."""


def note_mode(layers: ModeLayers, failures: Failures) -> None:
    """Count a forward pass of a module whose dropout or BatchNorm is in training mode."""
    try:
        done = 0
        for layer, code in layers:
            if code != done and getattr(layer(), "training", False):
                done = code
                note(code, 1)
    except Exception as error:
        if not failures.report("see the mode of a module", error):
            raise


def layers_that_differ(module: nn.Module, torch: Library) -> ModeLayers:
    """Return the layers of a module that behave differently in training."""
    if torch.dropout is None or torch.batchnorm is None:
        return ()
    dropout, norms = [], []
    for each in module.modules():
        if isinstance(each, torch.dropout) and each.p > 0:
            dropout.append((weakref.ref(each), _DROPOUT))
        if isinstance(each, torch.batchnorm) and each.track_running_stats:
            norms.append((weakref.ref(each), _BATCHNORM))
    return (*dropout, *norms)


def note_loss(roots: object, state: HookState) -> None:
    """Count a loss that is NaN or infinite, if it can be read without waiting for a device."""
    try:
        tensor, item = state.torch.tensor, state.torch.item
        if tensor is None or item is None:
            return
        for loss in roots if isinstance(roots, (tuple, list)) else (roots,):
            if type(loss) is tensor and loss.is_cpu and loss.numel() == 1 and not isfinite(item(loss)):
                note(_NON_FINITE, 1)
                return
    except Exception as error:
        if not state.failures.report("read a loss", error):
            raise


@skipped_by_warnings
def compiling(fn: Method[S, P, R], patches: Patches) -> Method[S, P, R]:
    """Count what torch.compile compiles, and what it recompiles. Before the first time, prepare the hooks for it."""

    @functools.wraps(fn)
    def run_start_callbacks(self: S, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            patches.use_python()
            if recording():
                note(_COMPILED, 1)
                if args and is_again(str(getattr(args[0], "compile_id", ""))):
                    note(_RECOMPILED, 1)
            return fn(self, *args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    return mark(run_start_callbacks)


def is_again(compile_id: str) -> bool:
    """Check whether a function was compiled before: "3/0" is its first compilation, "3/1" the second."""
    number = compile_id.strip("[]").rpartition("/")[2].partition("_")[0]
    return number.isdigit() and int(number) > 0


def on_callbacks(module: ModuleType, patches: Patches, state: HookState) -> None:
    """Listen to torch.compile."""
    handler = module.CompilationCallbackHandler
    if not is_wrapper(handler.run_start_callbacks):
        patches.put(handler, "run_start_callbacks", compiling(handler.run_start_callbacks, patches))


SUBJECT = Subject(on_import={"torch._dynamo.callback": on_callbacks})
