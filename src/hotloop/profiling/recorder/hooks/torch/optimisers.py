"""Hooks for torch's optimisers: their steps are timed and counted, and which gradients they use."""

from __future__ import annotations

import functools
import weakref
from threading import get_ident
from types import FunctionType
from typing import TYPE_CHECKING

from hotloop.phases import Phase
from hotloop.profiling.recorder.hooks.patching import Patches, Subject, module_of
from hotloop.profiling.recorder.hooks.wrappers import (
    Failures,
    Method,
    P,
    R,
    SpansByType,
    hide_frame,
    is_wrapper,
    skipped_by_warnings,
    wrapped_method,
)
from hotloop.spans import count
from hotloop.spans.hot_path import note
from hotloop.spans.registry import counter_code

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from hotloop.profiling.recorder.hooks.state import HookState

LEAD_PATIENCE = 50
"""Steps of other optimisers after which a lead that has not stepped is replaced."""
_TENSORS, _ELEMENTS = map(counter_code, ("optimiser_tensors", "optimiser_elements"))


class Lead:
    """Which optimiser's steps count as updates: the first that stepped, as long as it keeps stepping."""

    def __init__(self) -> None:
        self._optimiser: weakref.ref[Optimizer] | None = None
        self._others: dict[int, int] = {}

    def stepped(self, optimiser: Optimizer) -> bool:
        """Note a step; return whether it is an update."""
        leader = None if self._optimiser is None else self._optimiser()
        if leader is optimiser:
            if self._others:
                self._others.clear()
            return True
        if leader is not None:
            ident = id(optimiser)
            self._others[ident] = self._others.get(ident, 0) + 1
            if sum(self._others.values()) < LEAD_PATIENCE or self._others[ident] < max(self._others.values()):
                return False
        self._optimiser = weakref.ref(optimiser)
        self._others.clear()
        return True


class PlainOptimisers:
    """Counts the tensors that optimisers visit one after the other in Python."""

    def __init__(self, failures: Failures) -> None:
        self._failures = failures
        self._known: dict[int, tuple[weakref.ref[Optimizer], int, int]] = {}
        """Optimiser's id to the optimiser, its tensors, their elements; no tensors if it is fused or foreach."""

    def note_step(self, optimiser: Optimizer) -> None:
        """Count the tensors of one step."""
        try:
            entry = self._known.get(id(optimiser))
            if entry is None or entry[0]() is not optimiser:
                entry = self._known[id(optimiser)] = (weakref.ref(optimiser), *_one_by_one(optimiser))
            if entry[1]:
                note(_TENSORS, entry[1])
                note(_ELEMENTS, entry[2])
        except Exception as error:
            if not self._failures.report("inspect an optimiser", error):
                raise


def _one_by_one(optimiser: Optimizer) -> tuple[int, int]:
    """Return how many tensors, of how many elements, an optimiser updates one by one.

    Torch uses its foreach form by default where all tensors are on a device, and never on the CPU.
    """
    tensors = elements = 0
    for group in optimiser.param_groups:
        alone = not group.get("fused") and not group.get("foreach")
        by_default = "foreach" in group and group["foreach"] is None
        for parameter in group["params"]:
            if alone and parameter.requires_grad and not (by_default and not parameter.is_cpu):
                tensors += 1
                elements += parameter.numel()
    return tensors, elements


def on_class(cls: type, patches: Patches, state: HookState) -> None:
    """Time the steps of an optimiser class."""
    bases = [
        each for each in cls.__mro__ if each.__name__ == "Optimizer" and module_of(each) == "torch.optim.optimizer"
    ]
    step = vars(cls).get("step")
    if not bases or (cls not in bases and (not isinstance(step, FunctionType) or is_wrapper(step))):
        return
    patches.time_method(cls, "zero_grad", Phase.OPTIMISE, functools.partial(zeroing, state=state))
    if cls in bases:
        return
    if not getattr(step, "hooked", False):
        # Torch does this itself when the first instance is made. Done earlier, its own wrapper, which is not
        # cheap, is inside the span, and step hooks still work when ours is removed.
        profiled = cls.profile_hook_step(step)  # type: ignore[attr-defined]
        profiled.hooked = True
        cls.step = profiled  # type: ignore[attr-defined]
    patches.time_method(cls, "step", Phase.OPTIMISE, functools.partial(optimising, state=state))


@skipped_by_warnings
def optimising(fn: Method[Optimizer, P, R], spans: SpansByType, state: HookState) -> Method[Optimizer, P, R]:
    """Time an optimiser's step and count updates."""
    quiet = state.quiet

    def step(self: Optimizer, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            thread = get_ident()
            if thread in quiet:  # a step within a step
                return fn(self, *args, **kwargs)
            quiet.add(thread)
            try:
                if state.lead.stepped(self):
                    count("updates")
                state.plain_optimisers.note_step(self)
                result = fn(self, *args, **kwargs)
                state.gradients.note_stepped(self)
                return result
            finally:
                quiet.discard(thread)
        except BaseException as error:
            hide_frame(error)
            raise

    def quick_step(self: Optimizer, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            thread = get_ident()
            if thread in quiet:
                return fn(self, *args, **kwargs)
            quiet.add(thread)
            try:
                if state.lead.stepped(self):
                    count("updates")
                return fn(self, *args, **kwargs)
            finally:
                quiet.discard(thread)
        except BaseException as error:
            hide_frame(error)
            raise

    return wrapped_method(fn, spans, closer=step, quick=quick_step)


@skipped_by_warnings
def zeroing(fn: Method[Optimizer, P, R], spans: SpansByType, state: HookState) -> Method[Optimizer, P, R]:
    """Time the zeroing of an optimiser's gradients, and check whether they were used."""
    quiet = state.quiet

    def zero_grad(self: Optimizer, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            if get_ident() not in quiet:  # Not within a step, whose closure zeroes what was used.
                state.gradients.note_zeroed(self)
            return fn(self, *args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    return wrapped_method(fn, spans, closer=zero_grad)


SUBJECT = Subject(on_class=on_class)
