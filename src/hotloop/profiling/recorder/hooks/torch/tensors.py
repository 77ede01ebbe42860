"""Hooks for PyTorch: module calls, backward, optimisers, host syncs, transfers, checkpoints.

Installed when `torch` has been imported. Every wrapper here is met by torch.compile sooner or later and must
be invisible to it.
"""

from __future__ import annotations

import functools
import sys
import types
import weakref
from collections.abc import Callable
from threading import get_ident
from typing import Any

from hotloop.phases import Phase
from hotloop.profiling.recorder.deep import layers
from hotloop.profiling.recorder.hooks import wrappers
from hotloop.profiling.recorder.hooks.patching import Patches, Subject, Target, targets
from hotloop.profiling.recorder.hooks.torch.dropped_gradients import note_backward, note_stepped, note_zeroed
from hotloop.profiling.recorder.hooks.torch.modules import calling
from hotloop.profiling.recorder.hooks.torch.training_mode import note_loss
from hotloop.profiling.recorder.hooks.torch.unused_graphs import note_optimiser
from hotloop.profiling.recorder.hooks.wrappers import (
    SpansByType,
    Wrapper,
    here,
    hide_frame,
    is_wrapper,
    mark,
    quiet,
    skipped_by_warnings,
    span_of,
    timed_method,
)
from hotloop.spans import count
from hotloop.spans.registry import Span, recording, tally

HOST_SYNCS = {
    "item": "item", "cpu": "cpu", "numpy": "numpy", "tolist": "tolist",
    "__float__": "item", "__int__": "item", "__bool__": "item",
}  # fmt: skip
"""Tensor method to the counter `host_syncs.…` it adds to."""

LEAD_PATIENCE = 50
"""Steps of other optimisers after which a lead that has not stepped is replaced."""


class Lead:
    """Which optimiser's steps are the updates: the first that stepped, as long as it goes on stepping."""

    def __init__(self) -> None:
        self.optimiser: Callable[[], Any] = _nobody
        self.others: dict[int, int] = {}

    def forget(self) -> None:
        """Begin again, as each recording does: an optimiser of the last one may be alive still."""
        self.__init__()

    def stepped(self, optimiser: Any) -> bool:
        """Take note of a step; say whether it is an update."""
        leader = self.optimiser()
        if leader is optimiser:
            if self.others:
                self.others.clear()
            return True
        if leader is not None:
            ident = id(optimiser)
            self.others[ident] = self.others.get(ident, 0) + 1
            if sum(self.others.values()) < LEAD_PATIENCE or self.others[ident] < max(self.others.values()):
                return False
        self.optimiser = weakref.ref(optimiser)
        self.others.clear()
        return True


def _nobody() -> None:
    return None


def on_class(cls: type, patches: Patches) -> None:
    """Time the steps of an optimiser class."""
    if not any(base.__name__ == "Optimizer" and base.__module__ == "torch.optim.optimizer" for base in cls.__mro__):
        return
    if cls.__name__ == "Optimizer" and cls.__module__ == "torch.optim.optimizer":
        patches.time_method(cls, "zero_grad", Phase.OPTIMISE, zeroing)
        return
    step = vars(cls).get("step")
    if not isinstance(step, types.FunctionType) or is_wrapper(step):
        return
    if not getattr(step, "hooked", False):
        # Torch does this itself when the first instance is made. Done before, its own wrapper, which is not
        # cheap, is inside the span, and step hooks go on working when ours is taken away.
        profiled: Any = cls.profile_hook_step(step)  # type: ignore[attr-defined]
        profiled.hooked = True
        cls.step = profiled  # type: ignore[attr-defined]
    patches.time_method(cls, "step", Phase.OPTIMISE, optimising)
    patches.time_method(cls, "zero_grad", Phase.OPTIMISE, zeroing)


lead = Lead()


@skipped_by_warnings
def optimising(fn: Wrapper, spans: SpansByType) -> Wrapper:
    """Time an optimiser's step and count updates."""

    @functools.wraps(fn)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            if wrappers.is_compiling() or (each := spans[type(self)]) is None:
                return fn(self, *args, **kwargs)
            thread = get_ident()
            nested = thread in quiet
            quiet.add(thread)
            try:
                with each:
                    if not nested and lead.stepped(self):
                        count("updates")
                    if not nested and recording():
                        note_optimiser(self)
                    result = fn(self, *args, **kwargs)
                    if not nested and recording():
                        note_stepped(self)
                    return result
            finally:
                if not nested:
                    quiet.discard(thread)
        except BaseException as error:
            hide_frame(error)
            raise

    return mark(step, spans)


@skipped_by_warnings
def zeroing(fn: Wrapper, spans: SpansByType) -> Wrapper:
    """Time the zeroing of an optimiser's gradients, and see whether anybody took them."""

    @functools.wraps(fn)
    def zero_grad(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            if wrappers.is_compiling() or (each := spans[type(self)]) is None:
                return fn(self, *args, **kwargs)
            with each:
                if recording() and get_ident() not in quiet:  # not within a step, whose closure zeroes what it took
                    note_zeroed(self)
                return fn(self, *args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    return mark(zero_grad, spans)


@skipped_by_warnings
def going_back(fn: Wrapper, each: Span) -> Wrapper:
    """Time a backward pass, which costs twice the FLOPs of the forward passes it goes through."""

    @functools.wraps(fn)
    def backward(*args: Any, **kwargs: Any) -> Any:
        try:
            if wrappers.is_compiling():
                return fn(*args, **kwargs)
            with each:
                at = here.at
                flops, at.graph_flops = at.graph_flops, 0
                if flops:
                    count("flops", 2 * flops)
                if args and recording():
                    note_loss(args[0])
                result = fn(*args, **kwargs)
                if recording():
                    note_backward()
                return result
        except BaseException as error:
            hide_frame(error)
            raise

    return mark(backward)


@skipped_by_warnings
def syncing(fn: Wrapper, bump: Callable[[], object]) -> Wrapper:
    """Count a host sync with a tally's `bump`, where all tensors are on the CPU.

    Nothing else in here: such calls are many and short. There is no need to step aside for torch.compile, to
    which these methods are names rather than functions.
    """

    @functools.wraps(fn)
    def sync(self: Any) -> Any:
        try:
            if not quiet or get_ident() not in quiet:
                bump()
            return fn(self)
        except BaseException as error:
            hide_frame(error)
            raise

    @functools.wraps(fn)
    def sync_with(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            if not quiet or get_ident() not in quiet:
                bump()
            return fn(self, *args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    return mark(sync_with if fn.__name__ in ("cpu", "numpy") else sync)


@skipped_by_warnings
def syncing_device(fn: Wrapper, counter: str, each: Span) -> Wrapper:
    """Count a host sync, and time it if the tensor is on a device."""
    bump = tally(counter).bump

    @functools.wraps(fn)
    def sync(self: Any, *args: Any, **kwargs: Any) -> Any:
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
def moving(fn: Wrapper, each: Span) -> Wrapper:
    """Time `.to()` and count its bytes if it moves a tensor between devices."""

    @functools.wraps(fn)
    def move(self: Any, *args: Any, **kwargs: Any) -> Any:
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


def has_devices(torch: types.ModuleType) -> bool:
    """Say whether this build of torch knows a device beside the CPU, without waking any of them."""
    version = torch.version
    mps = getattr(torch.backends, "mps", None)
    return bool(version.cuda or getattr(version, "hip", None) or (mps is not None and mps.is_built()))


threads_set_at: list[str | int] = []
"""File and line that last set torch's threads: what to blame when there are too many of them."""


@skipped_by_warnings
def placing(fn: Wrapper) -> Wrapper:
    """Note from where `torch.set_num_threads` is called."""

    @functools.wraps(fn)
    def set_num_threads(*args: Any, **kwargs: Any) -> Any:
        try:
            if (caller := sys._getframe().f_back) is not None:
                threads_set_at[:] = [caller.f_code.co_filename, caller.f_lineno]
            return fn(*args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    return mark(set_num_threads)


def patch_tensor(torch: types.ModuleType, patches: Patches, devices: bool) -> None:
    """Count host syncs and transfers of tensors."""
    if not is_wrapper(torch.set_num_threads):
        patches.put(torch, "set_num_threads", placing(torch.set_num_threads))
    tensor = torch.Tensor
    for name, counter in HOST_SYNCS.items():
        fn = getattr(tensor, name)
        if is_wrapper(fn):
            continue
        counter = "host_syncs." + counter
        if devices:
            patches.put(tensor, name, syncing_device(fn, counter, span_of(f"Tensor.{name}", Phase.TRANSFER)))
        else:
            patches.put(tensor, name, syncing(fn, tally(counter).bump))
    for name in ("to", "cuda") if devices else ():
        if not is_wrapper(getattr(tensor, name)):
            fn = getattr(tensor, name)
            patches.put(tensor, name, moving(fn, span_of(f"Tensor.{name}", Phase.TRANSFER)))


def patch_modules(torch: types.ModuleType, patches: Patches) -> None:
    """Time module calls, and weights being copied into a module."""
    module = torch.nn.Module
    if not is_wrapper(module.__call__):
        patches.put(module, "__call__", calling(layers.timing(module.__call__)))
    for name, phase in (("load_state_dict", Phase.SYNC_WEIGHTS), ("zero_grad", Phase.OPTIMISE)):
        patches.time_method(module, name, phase, timed_method)


def patch_autograd(torch: types.ModuleType, patches: Patches) -> None:
    """Time backward passes. `Tensor.backward` calls `torch.autograd.backward`."""
    for name in ("backward", "grad"):
        fn = getattr(torch.autograd, name)
        if not is_wrapper(fn):
            patches.put(torch.autograd, name, going_back(fn, span_of("backward", Phase.BACKWARD)))


def patch_clipping(torch: types.ModuleType, patches: Patches) -> None:
    """Time gradient clipping, which has two homes."""
    for name in ("clip_grad_norm_", "clip_grad_value_"):
        patches.time_target(torch.nn.utils, Target(name, Phase.OPTIMISE))
        patches.put(torch.nn.utils.clip_grad, name, getattr(torch.nn.utils, name))


def on_torch(torch: types.ModuleType, patches: Patches) -> None:
    """Hook torch once it is imported whole."""
    wrappers.is_compiling = torch.compiler.is_dynamo_compiling
    patches.attempt("torch tensors", patch_tensor, torch, patches, has_devices(torch))
    patches.attempt("torch modules", patch_modules, torch, patches)
    patches.attempt("torch.autograd", patch_autograd, torch, patches)
    patches.attempt("torch.nn.utils", patch_clipping, torch, patches)
    targets(
        Target("save", Phase.CHECKPOINT, "torch.save"),
        Target("load", Phase.CHECKPOINT, "torch.load"),
        Target("cuda.synchronize", Phase.WAIT, "cuda.synchronize"),
        Target("optim.lr_scheduler.LRScheduler.step", Phase.OPTIMISE),
    )(torch, patches)


SUBJECT = Subject(
    on_class=on_class,
    on_import={
        "torch": on_torch,
        "torch.utils.data.dataloader": targets(Target("_BaseDataLoaderIter.__next__", Phase.SAMPLE)),
        "safetensors.torch": targets(
            *(Target(name, Phase.CHECKPOINT) for name in ("save_file", "load_file", "save_model", "load_model"))
        ),
    },
)
