"""Hooks for PyTorch: module calls, backward, host syncs, transfers, checkpoints.

Installed when `torch` has been imported. torch.compile meets every wrapper here sooner or later and must see through
it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from threading import get_ident
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

from hotloop.phases import Phase
from hotloop.profiling.recorder.deep.layers import timing
from hotloop.profiling.recorder.hooks import wrappers
from hotloop.profiling.recorder.hooks.patching import Patches, Subject, Target, targets
from hotloop.profiling.recorder.hooks.torch.modules import calling
from hotloop.profiling.recorder.hooks.torch.training_mode import note_loss
from hotloop.profiling.recorder.hooks.wrappers import (
    Method,
    P,
    R,
    Tallied,
    hide_frame,
    is_wrapper,
    mark,
    skipped_by_warnings,
    timed_function,
)
from hotloop.spans import count
from hotloop.spans.registry import Span, hook_span, tally

if TYPE_CHECKING:
    from torch import Tensor

    from hotloop.profiling.recorder.hooks.state import HookState
    from hotloop.spans.hot_path import Tally

HOST_SYNCS = {
    "item": "item",
    "cpu": "cpu",
    "numpy": "numpy",
    "tolist": "tolist",
    "__float__": "item",
    "__int__": "item",
    "__bool__": "item",
}
"""Tensor method to the counter `host_syncs.…` it adds to."""

T = TypeVar("T")


@skipped_by_warnings
def going_back(fn: Callable[P, R], each: Span, state: HookState) -> Callable[P, R]:
    """Time a backward pass, which costs twice the FLOPs of the forward passes it goes through."""

    def backward(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            at = state.here.at
            flops, at.graph_flops = at.graph_flops, 0
            if flops:
                count("flops", 2 * flops)
            if args:
                note_loss(args[0], state)
            result = fn(*args, **kwargs)
            state.gradients.note_backward()
            return result
        except BaseException as error:
            hide_frame(error)
            raise

    return timed_function(fn, each, closer=backward)


def syncing(fn: Callable[P, R], counter: Tally, state: HookState) -> Callable[P, R]:
    """Count a host sync with a tally, where all tensors are on the CPU.

    Nothing else is done here: such calls are many and short. There is no check for torch.compile, to which these
    methods are names rather than functions.

    Args:
        fn: A method of a tensor.
        counter: Counts it.
        state: Of the hooks.
    """
    if Tallied is None or state.calls_are_seen:
        return syncing_in_python(fn, counter.bump, state.quiet)
    return mark(functools.update_wrapper(Tallied(fn, counter, state.quiet), fn))


@skipped_by_warnings
def syncing_in_python(fn: Callable[P, R], bump: Callable[[], object], quiet: set[int]) -> Callable[P, R]:
    """Do in Python what `syncing` does."""

    @functools.wraps(fn)
    def sync(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            if not quiet or get_ident() not in quiet:
                bump()
            return fn(*args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    return mark(sync)


@skipped_by_warnings
def syncing_device(fn: Method[Tensor, P, R], counter: str, each: Span, quiet: set[int]) -> Method[Tensor, P, R]:
    """Count a host sync, and time it if the tensor is on a device."""
    bump = tally(counter).bump

    @functools.wraps(fn)
    def sync(self: Tensor, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            if wrappers.is_compiling() or get_ident() in quiet:
                return fn(self, *args, **kwargs)
            if self.is_cpu:
                bump()
                return fn(self, *args, **kwargs)
            with each:
                bump()
                count("transfer_bytes", self.nbytes)
                return fn(self, *args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    return mark(sync)


@skipped_by_warnings
def moving(fn: Method[Tensor, P, Tensor], each: Span) -> Method[Tensor, P, Tensor]:
    """Time `.to()` and count its bytes if it moves a tensor between devices."""

    @functools.wraps(fn)
    def move(self: Tensor, *args: P.args, **kwargs: P.kwargs) -> Tensor:
        try:
            if wrappers.is_compiling():
                return fn(self, *args, **kwargs)
            with each:
                out = fn(self, *args, **kwargs)
                if out is not self and out.device != self.device:
                    count("transfer_bytes", out.nbytes)
                return out
        except BaseException as error:
            hide_frame(error)
            raise

    return mark(move)


def has_devices(torch: ModuleType) -> bool:
    """Check whether this build of torch supports a device other than the CPU, without initialising any."""
    version = torch.version
    mps = getattr(torch.backends, "mps", None)
    return bool(version.cuda or getattr(version, "hip", None) or (mps is not None and mps.is_built()))


@skipped_by_warnings
def placing(fn: Callable[P, R], state: HookState) -> Callable[P, R]:
    """Note where `torch.set_num_threads` is called from."""

    @functools.wraps(fn)
    def set_num_threads(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            if (caller := sys._getframe().f_back) is not None:
                state.threads_set_at = caller.f_code.co_filename, caller.f_lineno
            return fn(*args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    return mark(set_num_threads)


def patch_tensor(torch: ModuleType, patches: Patches, state: HookState) -> None:
    """Count host syncs and transfers of tensors."""
    if not is_wrapper(torch.set_num_threads):
        patches.put(torch, "set_num_threads", placing(torch.set_num_threads, state))
    devices = has_devices(torch)
    tensor = torch.Tensor
    for name, counter in HOST_SYNCS.items():
        fn = getattr(tensor, name)
        if is_wrapper(fn):
            continue
        counter = "host_syncs." + counter
        if devices:
            each = hook_span(f"Tensor.{name}", Phase.TRANSFER)
            patches.put(tensor, name, syncing_device(fn, counter, each, state.quiet))
        else:
            patches.put(tensor, name, syncing(fn, tally(counter), state))
    for name in ("to", "cuda") if devices else ():
        if not is_wrapper(getattr(tensor, name)):
            fn = getattr(tensor, name)
            patches.put(tensor, name, moving(fn, hook_span(f"Tensor.{name}", Phase.TRANSFER)))


def patch_modules(torch: ModuleType, patches: Patches, state: HookState) -> None:
    """Time module calls, and weights being copied into a module."""
    module = torch.nn.Module
    if not is_wrapper(module.__call__):
        patches.put(module, "__call__", calling(timing(module.__call__, state.layers), state))
    for name, phase in (("load_state_dict", Phase.SYNC_WEIGHTS), ("zero_grad", Phase.OPTIMISE)):
        patches.time_method(module, name, phase)


def patch_autograd(torch: ModuleType, patches: Patches, state: HookState) -> None:
    """Time backward passes. `Tensor.backward` calls `torch.autograd.backward`."""
    for name in ("backward", "grad"):
        fn = getattr(torch.autograd, name)
        if not is_wrapper(fn):
            patches.put(torch.autograd, name, going_back(fn, hook_span("backward", Phase.BACKWARD), state))


def patch_clipping(torch: ModuleType, patches: Patches) -> None:
    """Time gradient clipping, which two modules offer."""
    for name in ("clip_grad_norm_", "clip_grad_value_"):
        patches.time_target(torch.nn.utils, Target(name, Phase.OPTIMISE))
        patches.put(torch.nn.utils.clip_grad, name, getattr(torch.nn.utils, name))


def on_torch(torch: ModuleType, patches: Patches, state: HookState) -> None:
    """Hook torch once it is fully imported."""
    state.torch.use(torch)
    wrappers.is_compiling = torch.compiler.is_dynamo_compiling
    patches.attempt("torch tensors", patch_tensor, torch, patches, state)
    patches.attempt("torch modules", patch_modules, torch, patches, state)
    patches.attempt("torch.autograd", patch_autograd, torch, patches, state)
    patches.attempt("torch.nn.utils", patch_clipping, torch, patches)
    targets(
        Target("save", Phase.CHECKPOINT, "torch.save"),
        Target("load", Phase.CHECKPOINT, "torch.load"),
        Target("cuda.synchronize", Phase.WAIT, "cuda.synchronize"),
        Target("optim.lr_scheduler.LRScheduler.step", Phase.OPTIMISE),
    )(torch, patches, state)


SUBJECT = Subject(
    on_import={
        "torch": on_torch,
        "torch.utils.data.dataloader": targets(Target("_BaseDataLoaderIter.__next__", Phase.SAMPLE)),
        "safetensors.torch": targets(
            *(Target(name, Phase.CHECKPOINT) for name in ("save_file", "load_file", "save_model", "load_model"))
        ),
    },
)
