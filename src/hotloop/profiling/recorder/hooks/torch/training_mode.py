"""Hooks for what makes a run worthless rather than slow: training mode while acting, losses that are not finite.

Counts recompilations of torch.compile as well. A module is searched once for layers that behave differently in
training. A loss is looked at only where it is on the CPU: on a device, reading it would make the host wait.
"""

from __future__ import annotations

import functools
import types
import weakref
from math import isfinite
from typing import Any

from hotloop.profiling.recorder.hooks.patching import Patches, Subject
from hotloop.profiling.recorder.hooks.wrappers import (
    Wrapper,
    hide_frame,
    is_wrapper,
    mark,
    report_failure,
    skipped_by_warnings,
)
from hotloop.spans.hot_path import note
from hotloop.spans.registry import counter_code, recording

_DROPOUT, _BATCHNORM, _NON_FINITE, _COMPILED, _RECOMPILED = map(
    counter_code,
    ("training_mode.dropout", "training_mode.batchnorm", "non_finite_losses", "compilations", "recompilations"),
)


class _Torch:
    dropout: type = type(None)
    batchnorm: type = type(None)
    tensor: type = type(None)
    item: Any = None


def note_mode(layers: tuple[tuple[Any, int], ...]) -> None:
    """Count a forward pass of a module whose dropout or BatchNorm is in training mode.

    Args:
        layers: Weak references to its layers that differ in training, each with its counter.
    """
    try:
        done = 0
        for layer, code in layers:
            if code != done and getattr(layer(), "training", False):
                done = code
                note(code, 1)
    except Exception as error:
        if not report_failure("see the mode of a module", error):
            raise


def layers_that_differ(module: Any) -> tuple[tuple[Any, int], ...]:
    """Return the layers that compute something else in training, those of one kind together, for `note_mode`."""
    layers = list(module.modules())
    dropping = [each for each in layers if isinstance(each, _Torch.dropout) and each.p > 0]  # type: ignore[attr-defined]
    norms = [
        each
        for each in layers
        if isinstance(each, _Torch.batchnorm) and each.track_running_stats  # type: ignore[attr-defined]
    ]
    ref = weakref.ref
    return (*((ref(each), _DROPOUT) for each in dropping), *((ref(each), _BATCHNORM) for each in norms))


def note_loss(roots: Any) -> None:
    """Count a loss that is NaN or infinite, if it can be read without waiting for a device."""
    try:
        for loss in roots if isinstance(roots, (tuple, list)) else (roots,):
            if type(loss) is _Torch.tensor and loss.is_cpu and loss.numel() == 1 and not isfinite(_Torch.item(loss)):
                note(_NON_FINITE, 1)
                return
    except Exception as error:
        if not report_failure("look at a loss", error):
            raise


@skipped_by_warnings
def compiling(fn: Wrapper) -> Wrapper:
    """Count what torch.compile compiles, and what it compiles again."""

    @functools.wraps(fn)
    def run_start_callbacks(self: Any, *args: Any) -> Any:
        try:
            if recording():
                note(_COMPILED, 1)
                if args and is_again(str(getattr(args[0], "compile_id", ""))):
                    note(_RECOMPILED, 1)
            return fn(self, *args)
        except BaseException as error:
            hide_frame(error)
            raise

    return mark(run_start_callbacks)


def is_again(compile_id: str) -> bool:
    """Say whether a compilation is not the first of its function: "3/0" is the first, "3/1" the second."""
    number = compile_id.strip("[]").rpartition("/")[2].partition("_")[0]
    return number.isdigit() and int(number) > 0


def on_torch(torch: types.ModuleType, patches: Patches) -> None:
    """Learn which layers differ in training, and how to read a number without being counted."""
    _Torch.dropout = torch.nn.modules.dropout._DropoutNd
    _Torch.batchnorm = torch.nn.modules.batchnorm._BatchNorm
    _Torch.tensor = torch.Tensor
    _Torch.item = torch._C.TensorBase.item


def on_callbacks(module: types.ModuleType, patches: Patches) -> None:
    """Listen to torch.compile."""
    handler: Any = module.CompilationCallbackHandler
    if not is_wrapper(handler.run_start_callbacks):
        patches.put(handler, "run_start_callbacks", compiling(handler.run_start_callbacks))


SUBJECT = Subject(on_import={"torch": on_torch, "torch._dynamo.callback": on_callbacks})
