"""Dropout drops and BatchNorm normalises by the batch while the agent acts.

**Cause.** A module is in training mode when it is made. Dropout then drops while actions are chosen, so another
policy acts than the one that is evaluated; BatchNorm normalises by the few observations at hand, and each step moves
its running statistics.

**Seen by.** The layers of each module are searched once. Forward passes that chose an action, at least half of which
were made with dropout (p > 0) or BatchNorm (with running statistics) in training mode. `F.dropout` called as a
function is not seen, nor are modules inside compiled functions.

**Cure.**
```python
policy.eval()  # before collecting
with torch.no_grad():
    actions = policy(observations)
policy.train()  # before the update
```

**Residual.** None: nothing is slow. It is listed with a gain of 1.

**Not meant.** Dropout as exploration, if the update uses the same masks; LayerNorm, which has no modes.
"""

from __future__ import annotations

from hotloop.phases import Phase
from hotloop.profiling.diagnosis.evidence import indices, percent
from hotloop.profiling.diagnosis.finding import Cause, Residual
from hotloop.profiling.diagnosis.time_slices import Loop

KINDS = {"training_mode.dropout": "dropout", "training_mode.batchnorm": "BatchNorm"}
FEWEST = 10
LEAST_SHARE = 0.5
ADVICE = """\
Act in evaluation mode, learn in training mode:
    policy.eval()                 # before collecting; no gradients are needed there either
    with torch.no_grad():
        actions = policy(observations)
    policy.train()                # before the update
Target networks stay in evaluation mode. If the randomness is meant (dropout as exploration), the log
probabilities used in the update must come from the same mask."""


def find(loop: Loop) -> list[Cause]:
    """Find acting whose forward passes were made in training mode."""
    acting = [node for node in loop.thread.nodes if node.kind == "span" and Phase.ACT in loop.phases(node)]
    noisy = {name: sum(loop.counted(name, node) for node in acting) for name in KINDS}
    places = [node for node in acting if any(node.counts.get(name) for name in KINDS)]
    inside = {node.id for node in places}
    calls = sum(node.calls for node in places)
    found = [name for name, amount in noisy.items() if amount >= max(FEWEST, LEAST_SHARE * calls)]
    atoms = loop.where(lambda atom: any(each.id in inside for each in loop.lineage(atom.node)))
    if not found or not atoms:
        return []
    what = " and ".join(KINDS[name] for name in found)
    return [
        Cause(
            rule="training_mode_acting",
            title=f"The policy acts with {what} in training mode.",
            atoms=indices(atoms),
            residual=Residual(1.0, 1.0, 1.0),
            evidence=tuple(
                f"{KINDS[name]} was in training mode in {percent(min(noisy[name] / max(calls, 1), 1.0))} of the "
                "forward passes that chose actions"
                for name in found
            ),
            advice=ADVICE,
            informs=True,
        )
    ]
