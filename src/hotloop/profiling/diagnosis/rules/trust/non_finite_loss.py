"""The loss is NaN or infinite. After the first such update, the weights are worthless.

One optimiser step makes every weight NaN, and `argmax` of NaN is a valid action, so the loop continues at full speed.
In one run this happened to 57 of 60 updates, after a batch in which all returns were zero.

**Seen by.** The loss is checked at the start of its backward pass, if it is a single number on the CPU (0.5 µs). On a
device it is not checked, because the host would have to wait.

**Residual.** None: the gain is 1. The line is that of the backward pass, not of the operation that caused the NaN.
"""

from __future__ import annotations

from hotloop.phases import Phase
from hotloop.profiling.diagnosis.claims import indices
from hotloop.profiling.diagnosis.evidence import times
from hotloop.profiling.diagnosis.finding import Cause, Causes
from hotloop.profiling.diagnosis.time_slices import Loop

ADVICE = """\
Stop, find the first operation that makes it, and start again from a checkpoint before it:
    torch.autograd.set_detect_anomaly(True)        # slow; names the forward operation
    assert torch.isfinite(loss), "loss"            # host sync: while searching only
Usual sources: x / x.std() of values that are all equal (add 1e-8), log(0) and 0 · -inf with masked actions,
sqrt at 0, exp of a large log ratio, observations that are NaN or not scaled, a learning rate too high.
clip_grad_norm_(..., error_if_nonfinite=True) stops a run before its weights are lost."""


def find(loop: Loop) -> Causes:
    """Find backward passes from a loss that is not a number."""
    bad = loop.trace.main.counts.get("non_finite_losses", 0)
    nodes = [node for node in loop.spans if node.phase is Phase.BACKWARD]
    calls = sum(node.calls for node in nodes)
    atoms = loop.of_nodes(nodes) or list(loop.atoms)
    if not bad or not atoms:
        return
    yield Cause(
        title="The loss is NaN or infinite.",
        atoms=indices(atoms),
        evidence=(f"{times(bad)} of {times(max(calls, bad))} backward passes started from a loss that is not finite",),
        informs=True,
    )
