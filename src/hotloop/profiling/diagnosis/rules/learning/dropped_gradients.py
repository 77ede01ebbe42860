"""A backward computes gradients of weights that are zeroed before any optimiser takes them.

**Cause.** A loss goes through networks that it does not train, and leaves gradients in their weights, which are
zeroed before their optimiser steps again. So it is with an actor that learns through its critics: the way to the
actions is needed, the gradients of the critics' weights are not, and they are half of the arithmetic of that
backward. In visual SAC, where the critics' encoders need no backward at all for the actor, leaving it out made 727 ms
of an update's 905.

**Seen by.** One in seventeen steps of an optimiser is followed: were its gradients written again between its step and
the next `zero_grad`? Parameters that two optimisers share, and what a closure zeroes within a step, are not judged.
The line is that of the backward which wrote them.

**Cure.**
```python
actor_loss.backward(inputs=list(actor.parameters()))  # none are computed for the critics
critics.requires_grad_(False)  # or so: before the actor's loss is computed, and True again after its backward
```

**Residual.** Backward passes without half of what the dropped gradients are of all gradients, by number of weights
(0.4 to 1.6 times that): convolutions do more arithmetic a weight than linear layers, and small layers are bound by
their calls.
"""

from __future__ import annotations

from hotloop.phases import Phase
from hotloop.profiling.diagnosis.evidence import hottest, indices, meeting_line, percent
from hotloop.profiling.diagnosis.finding import Cause, clamped
from hotloop.profiling.diagnosis.time_slices import Loop

LEAST_PART = 0.05
"""Of the gradients written, those that were dropped."""
WEIGHTS_PART = 0.5
"""Of a backward through a layer: the gradient of its weights. The other half is that of its inputs."""
ADVICE = """\
Say whose gradients a backward is for, or switch those of the others off meanwhile:
    actor_loss.backward(inputs=list(actor.parameters()))     # none are left in the critics
    critics.requires_grad_(False)                            # or so: before the actor's loss is computed,
    ...                                                      # and True again after its backward
The results are the same to the bit."""


def find(loop: Loop) -> list[Cause]:
    """Find gradients that were written after one step of their optimiser and zeroed before its next."""
    taken, dropped = (loop.counts.get(f"gradients_{name}_elements", 0) for name in ("taken", "dropped"))
    claimed = loop.where(lambda atom: atom.node.phase is Phase.BACKWARD and atom.node.kind == "span")
    if not claimed or not dropped or dropped < LEAST_PART * (taken + dropped):
        return []
    wasted = WEIGHTS_PART * dropped / (taken + dropped)
    place = (loop.trace.manifest.get("torch") or {}).get("gradients_dropped_at")
    return [
        Cause(
            rule="dropped_gradients",
            title="Gradients are computed and thrown away: of weights that this loss does not train.",
            atoms=indices(claimed),
            residual=clamped(1 - wasted, 1 - 1.6 * wasted, 1 - 0.4 * wasted),
            evidence=(
                f"{percent(dropped / (taken + dropped))} of the gradients written were zeroed before an optimiser took "
                "them",
                f"{dropped / max(loop.updates, 1):,.0f} of them an update, about {percent(wasted)} of what backward "
                "passes do",
                hottest(loop, claimed),
            ),
            advice=ADVICE,
            general=True,
            blame=(str(place[0]), int(place[1])) if place else meeting_line(claimed),
        )
    ]
