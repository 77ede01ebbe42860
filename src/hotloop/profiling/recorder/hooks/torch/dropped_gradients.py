"""Gradients that a backward computes and that are zeroed before any optimiser takes them.

The usual case: an actor's loss goes through the critics, and so leaves gradients in their weights. Of every seventeenth
step of an optimiser the gradients are looked at when it ends, and again when they are zeroed: what has changed in
between was for nothing. Nothing is kept alive for it, and no gradient is touched.
"""

from __future__ import annotations

import sys
import weakref
from collections import Counter
from typing import Any

from hotloop.profiling.recorder.hooks.wrappers import report_failure
from hotloop.profiling.recorder.stack_sampler import is_own
from hotloop.spans.hot_path import note
from hotloop.spans.registry import counter_code

EVERY = 17
"""One in so many steps is looked at. A prime, for updates of several networks often keep step with each other."""
MOST_PARAMETERS = 2048
MOST_FRAMES = 12
_TAKEN, _DROPPED = map(counter_code, ("gradients_taken_elements", "gradients_dropped_elements"))

Mark = tuple[int, int] | None
"""The gradient of a parameter, and how often it was written; None if it has none."""


class Watched:
    """An optimiser and its parameters' gradients, as they were when its last step ended."""

    __slots__ = ("marks", "optimiser", "parameters", "site", "steps")

    def __init__(self, optimiser: Any) -> None:
        self.optimiser = weakref.ref(optimiser)
        self.steps = 0
        self.parameters = [weakref.ref(each) for each in _own_parameters(optimiser)]
        self.marks: list[Mark] | None = None
        self.site: tuple[str, int] | None = None

    def changed(self) -> int:
        """Return how many elements have a gradient that was written since the step."""
        found = 0
        for reference, mark in zip(self.parameters, self.marks or (), strict=True):
            parameter = reference()
            if mark is not None and parameter is not None and _mark(parameter) not in (mark, None):
                found += parameter.numel()
        return found


dropped_at: Counter[tuple[str, int]] = Counter()
"""Lines whose backward passes wrote gradients that nobody took."""
_watched: dict[int, Watched] = {}
_owners: dict[int, int] = {}
"""Parameter's id to its optimiser's. Who shares one is not judged: the other may take the gradient."""
_pending: list[Watched] = []
"""Those whose gradients are being followed now."""


def _own_parameters(optimiser: Any) -> list[Any]:
    every = [each for group in optimiser.param_groups for each in group["params"] if each.requires_grad]
    shared = [each for each in every if _owners.setdefault(id(each), id(optimiser)) != id(optimiser)]
    return [] if shared or len(every) > MOST_PARAMETERS else every


def _mark(parameter: Any) -> Mark:
    gradient = parameter.grad
    return None if gradient is None else (id(gradient), gradient._version)


def note_stepped(optimiser: Any) -> None:
    """An optimiser has stepped: begin to follow its gradients, now and then."""
    try:
        seen = _watched.get(id(optimiser))
        if seen is None or seen.optimiser() is not optimiser:
            seen = _watched[id(optimiser)] = Watched(optimiser)
        seen.steps += 1
        if seen.steps % EVERY == 0 and seen.parameters:
            seen.marks = [_mark(each) if (each := ref()) is not None else None for ref in seen.parameters]
            seen.site = None
            if seen not in _pending:
                _pending.append(seen)
    except Exception as error:
        if not report_failure("follow gradients", error):
            raise


def note_backward() -> None:
    """A backward has ended: note its line, if it wrote gradients that are being followed."""
    try:
        for seen in _pending:
            if seen.site is None and seen.changed():
                seen.site = _own_line()
    except Exception as error:
        if not report_failure("follow gradients", error):
            raise


def note_zeroed(optimiser: Any) -> None:
    """An optimiser's gradients are about to be zeroed: count what was written since its step, which nobody took."""
    try:
        seen = _watched.get(id(optimiser))
        if seen is None or seen not in _pending:
            return
        _pending.remove(seen)
        taken = sum(each.numel() for ref in seen.parameters if (each := ref()) is not None)
        dropped, seen.marks = seen.changed(), None
        note(_TAKEN, EVERY * taken)
        if dropped:
            note(_DROPPED, EVERY * dropped)
            if seen.site is not None:
                dropped_at[seen.site] += 1
    except Exception as error:
        if not report_failure("follow gradients", error):
            raise


def _own_line() -> tuple[str, int] | None:
    frame: Any = sys._getframe(1).f_back
    for _ in range(MOST_FRAMES):
        if frame is None or is_own(frame.f_code.co_filename):
            break
        frame = frame.f_back
    return None if frame is None else (frame.f_code.co_filename, frame.f_lineno)
