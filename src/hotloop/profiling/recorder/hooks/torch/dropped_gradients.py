"""Detects gradients that a backward pass computes but that are zeroed before any optimiser uses them.

The usual case: an actor's loss goes through the critics, and so leaves gradients in their weights. After every
seventeenth step of an optimiser, the versions of its gradients are stored, and compared when they are zeroed: what was
written in between was wasted. This keeps no tensor alive and changes no gradient.
"""

from __future__ import annotations

import sys
import weakref
from collections import Counter
from types import FrameType
from typing import TYPE_CHECKING

from hotloop.profiling.recorder.hooks.wrappers import Failures
from hotloop.profiling.recorder.own_files import is_own
from hotloop.spans.hot_path import note
from hotloop.spans.registry import counter_code

if TYPE_CHECKING:
    import torch

EVERY = 17
"""One in so many steps is checked. A prime, because updates of several networks often alternate regularly."""
MOST_PARAMETERS = 2048
MOST_FRAMES = 12
_TAKEN, _DROPPED = map(counter_code, ("gradients_taken_elements", "gradients_dropped_elements"))

Mark = tuple[int, int] | None
"""The id of a parameter's gradient, and how often it was written; None if there is no gradient."""


class Watched:
    """An optimiser and its parameters' gradients, as they were when its last step ended."""

    __slots__ = ("marks", "optimiser", "parameters", "site", "steps")

    def __init__(self, optimiser: torch.optim.Optimizer, parameters: list[torch.Tensor]) -> None:
        self.optimiser = weakref.ref(optimiser)
        self.steps = 0
        self.parameters = [weakref.ref(each) for each in parameters]
        self.marks: list[Mark] | None = None
        self.site: tuple[str, int] | None = None

    def changed(self) -> int:
        """Return the number of elements whose gradient was written since the step."""
        found = 0
        for reference, mark in zip(self.parameters, self.marks or (), strict=True):
            parameter = reference()
            if mark is not None and parameter is not None and _mark(parameter) not in (mark, None):
                found += parameter.numel()
        return found


class DroppedGradients:
    """Counts gradients that no optimiser used, and notes the lines that computed them."""

    def __init__(self, failures: Failures) -> None:
        self._failures = failures
        self.dropped_at: Counter[tuple[str, int]] = Counter()
        """Lines whose backward passes wrote gradients that no optimiser used."""
        self._watched: dict[int, Watched] = {}
        self._owners: dict[int, int] = {}
        """Parameter's id to its optimiser's. Optimisers that share one are not checked: the other may use it."""
        self._pending: list[Watched] = []
        """Optimisers whose gradients are being followed now."""

    def _own_parameters(self, optimiser: torch.optim.Optimizer) -> list[torch.Tensor]:
        every = [each for group in optimiser.param_groups for each in group["params"] if each.requires_grad]
        shared = [each for each in every if self._owners.setdefault(id(each), id(optimiser)) != id(optimiser)]
        return [] if shared or len(every) > MOST_PARAMETERS else every

    def note_stepped(self, optimiser: torch.optim.Optimizer) -> None:
        """Begin to follow an optimiser's gradients after every `EVERY`th of its steps."""
        try:
            seen = self._watched.get(id(optimiser))
            if seen is None or seen.optimiser() is not optimiser:
                seen = self._watched[id(optimiser)] = Watched(optimiser, self._own_parameters(optimiser))
            seen.steps += 1
            if seen.steps % EVERY == 0 and seen.parameters:
                seen.marks = [_mark(each) if (each := ref()) is not None else None for ref in seen.parameters]
                seen.site = None
                if seen not in self._pending:
                    self._pending.append(seen)
        except Exception as error:
            if not self._failures.report("follow gradients", error):
                raise

    def note_backward(self) -> None:
        """Note the line of a backward pass that has ended, if it wrote gradients that are followed."""
        try:
            for seen in self._pending:
                if seen.site is None and seen.changed():
                    seen.site = _own_line()
        except Exception as error:
            if not self._failures.report("follow gradients", error):
                raise

    def note_zeroed(self, optimiser: torch.optim.Optimizer) -> None:
        """Count the gradients that were written since an optimiser's step, before they are zeroed."""
        try:
            seen = self._watched.get(id(optimiser))
            if seen is None or seen not in self._pending:
                return
            self._pending.remove(seen)
            taken = sum(each.numel() for ref in seen.parameters if (each := ref()) is not None)
            dropped, seen.marks = seen.changed(), None
            note(_TAKEN, EVERY * taken)
            if dropped:
                note(_DROPPED, EVERY * dropped)
                if seen.site is not None:
                    self.dropped_at[seen.site] += 1
        except Exception as error:
            if not self._failures.report("follow gradients", error):
                raise


def _mark(parameter: torch.Tensor) -> Mark:
    gradient = parameter.grad
    return None if gradient is None else (id(gradient), gradient._version)


def _own_line() -> tuple[str, int] | None:
    frame: FrameType | None = sys._getframe(2)
    for _ in range(MOST_FRAMES):
        if frame is None or is_own(frame.f_code.co_filename):
            break
        frame = frame.f_back
    return None if frame is None else (frame.f_code.co_filename, frame.f_lineno)
