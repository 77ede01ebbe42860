"""Dropout or BatchNorm is in training mode while the agent acts.

Modules start in training mode. Dropout is then active while actions are chosen, so the acting policy differs from the
evaluated one. BatchNorm normalises by the few current observations, and each step changes its running statistics.

**Seen by.** At least half of the forward passes that chose an action had dropout (p > 0) or BatchNorm (with running
statistics) in training mode. `F.dropout`, and modules inside compiled functions, are not detected.

**Residual.** None: nothing is slow. The gain is 1.

**Not covered.** Dropout as exploration, if the update uses the same masks; LayerNorm, which has no modes.
"""

from __future__ import annotations

from hotloop.phases import Phase
from hotloop.profiling.diagnosis.claims import indices
from hotloop.profiling.diagnosis.evidence import percent
from hotloop.profiling.diagnosis.finding import Cause, Causes
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


def find(loop: Loop) -> Causes:
    """Find forward passes in training mode that choose actions."""
    acting = [node for node in loop.spans if Phase.ACT in loop.phases(node)]
    noisy = {name: sum(loop.counted(name, node) for node in acting) for name in KINDS}
    places = [node for node in acting if any(node.counts.get(name) for name in KINDS)]
    calls = sum(node.calls for node in places)
    found = [name for name, amount in noisy.items() if amount >= max(FEWEST, LEAST_SHARE * calls)]
    atoms = loop.below(places)
    if not found or not atoms:
        return
    what = " and ".join(KINDS[name] for name in found)
    yield Cause(
        title=f"The policy acts with {what} in training mode.",
        atoms=indices(atoms),
        evidence=tuple(
            f"{KINDS[name]} was in training mode in {percent(min(noisy[name] / max(calls, 1), 1.0))} of the "
            "forward passes that chose actions"
            for name in found
        ),
        informs=True,
    )
