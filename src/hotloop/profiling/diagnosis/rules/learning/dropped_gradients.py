"""A backward pass computes gradients of weights that are zeroed before any optimiser uses them.

A loss goes through networks that it does not train and leaves gradients in their weights. An example is an actor that
learns through its critics: it needs the gradients of the actions, but not those of the critics' weights, which are half
of the arithmetic of that backward pass. In visual SAC, where the critics' encoders need no backward pass for the actor
at all, removing it reduced an update from 905 to 727 ms.

**Seen by.** One in seventeen optimiser steps is followed: were its gradients written again between the step and the
next `zero_grad`? Parameters shared by two optimisers, and gradients that a closure zeroes within a step, are ignored.
The reported line is that of the backward pass that wrote them.

**Residual.** Backward passes without half of the share that dropped gradients have of all gradients, by number of
weights (0.4 to 1.6 times that): convolutions have more arithmetic per weight than linear layers, and small layers are
bound by call overhead.
"""

from __future__ import annotations

from hotloop.phases import Phase
from hotloop.profiling.diagnosis.claims import indices
from hotloop.profiling.diagnosis.evidence import hottest, meeting_line, percent
from hotloop.profiling.diagnosis.finding import Cause, Causes, clamped
from hotloop.profiling.diagnosis.time_slices import Loop

LEAST_PART = 0.05
"""Of the gradients written, those that were dropped."""
WEIGHTS_PART = 0.5
"""Of a backward through a layer: the gradient of its weights. The other half is that of its inputs."""
ADVICE = """\
Restrict the backward pass to the weights it trains, or disable the gradients of the others:
    actor_loss.backward(inputs=list(actor.parameters()))     # none are left in the critics
    critics.requires_grad_(False)                            # or so: before the actor's loss is computed,
    ...                                                      # and True again after its backward
The results are the same to the bit."""


def find(loop: Loop) -> Causes:
    """Find gradients that were written after one step of their optimiser and zeroed before its next."""
    taken, dropped = (loop.counts.get(f"gradients_{name}_elements", 0) for name in ("taken", "dropped"))
    claimed = loop.where(lambda atom: atom.node.phase is Phase.BACKWARD and atom.node.kind == "span")
    if not claimed or not dropped or dropped < LEAST_PART * (taken + dropped):
        return
    part = dropped / (taken + dropped)
    wasted = WEIGHTS_PART * part
    yield Cause(
        title="Gradients are computed and discarded, of weights that this loss does not train.",
        atoms=indices(claimed),
        residual=clamped(1 - wasted, 1 - 1.6 * wasted, 1 - 0.4 * wasted),
        evidence=(
            f"{percent(part)} of the gradients written were zeroed before an optimiser took them",
            f"{dropped / max(loop.updates, 1):,.0f} of them an update, about {percent(wasted)} of what backward "
            "passes do",
            hottest(loop, claimed),
        ),
        general=True,
        blame=loop.trace.torch.gradients_dropped_at or meeting_line(claimed),
    )
