"""Losses that are NaN or infinite. From the first on, the weights are worthless.

**Cause.** A loss is NaN or infinite. One step of the optimiser makes every weight NaN, and `argmax` of NaN is an
action like any other: the loop goes on at full speed. Here 57 of 60 updates were such, after one batch in which all
returns were zero.

**Seen by.** The loss is looked at when its backward pass begins, if it is a single number on the CPU (half a
microsecond). On a device it is not looked at, for that would make the host wait.

**Cure.**
```python
scaled = (returns - returns.mean()) / (returns.std() + 1e-8)  # equal returns: 0, not 0 / 0
torch.nn.utils.clip_grad_norm_(parameters, 0.5, error_if_nonfinite=True)  # stops before the weights are lost
torch.autograd.set_detect_anomaly(True)  # to find where it comes from; slow
```

**Residual.** None: it is listed with a gain of 1. The line is that of the backward pass, not of the operation that
made the NaN.
"""

from __future__ import annotations

from hotloop.phases import Phase
from hotloop.profiling.diagnosis.evidence import indices, times
from hotloop.profiling.diagnosis.finding import Cause, Residual
from hotloop.profiling.diagnosis.time_slices import Loop

ADVICE = """\
Stop, find the first operation that makes it, and start again from a checkpoint before it:
    torch.autograd.set_detect_anomaly(True)        # slow; names the forward operation
    assert torch.isfinite(loss), "loss"            # host sync: while searching only
Usual sources: x / x.std() of values that are all equal (add 1e-8), log(0) and 0 · -inf with masked actions,
sqrt at 0, exp of a large log ratio, observations that are NaN or not scaled, a learning rate too high.
clip_grad_norm_(..., error_if_nonfinite=True) stops a run before its weights are lost."""


def find(loop: Loop) -> list[Cause]:
    """Find backward passes from a loss that is not a number."""
    bad = loop.trace.main.counts.get("non_finite_losses", 0)
    nodes = [node for node in loop.thread.nodes if node.kind == "span" and node.phase is Phase.BACKWARD]
    chosen = {node.id for node in nodes}
    calls = sum(node.calls for node in nodes)
    atoms = loop.where(lambda atom: atom.node.id in chosen) or list(loop.atoms)
    if not bad or not atoms:
        return []
    return [
        Cause(
            rule="non_finite_loss",
            title="The loss is NaN or infinite.",
            atoms=indices(atoms),
            residual=Residual(1.0, 1.0, 1.0),
            evidence=(
                f"{times(bad)} of {times(max(calls, bad))} backward passes started from a loss that is not finite",
            ),
            advice=ADVICE,
            informs=True,
        )
    ]
