"""An update fetches many single values from tensors into Python.

Typical examples are priorities in a loop, the norm of each parameter, and metrics.

**Seen by.** More than 5 values fetched per update and step, and time on lines with `.item()`, `.tolist()`, `.cpu()`,
`.numpy()` or `float(...)` while learning.

**Residual.** 10 % (2 to 30 %).
"""

from __future__ import annotations

from hotloop.phases import Phase
from hotloop.profiling.diagnosis.claims import HOST_SYNC, grow, indices, matching
from hotloop.profiling.diagnosis.evidence import duration, hottest, times
from hotloop.profiling.diagnosis.finding import Cause, Causes, clamped
from hotloop.profiling.diagnosis.time_slices import ENVIRONMENT, Loop, total_ns
from hotloop.profiling.trace.model import Node

MOST_PER_UPDATE = 5.0
"""For each update and each step; a loss, a few metrics and a stopping test are ordinary."""
ADVICE = """\
Keep values as tensors, work on all of them at once, and fetch them once in many updates:
    priorities[i] = td_error.detach().abs()              # all at once, no loop, no .item()
    losses.append(loss.detach())
    if update % 100 == 0:
        log(torch.stack(losses).mean().item())           # host sync
        losses.clear()"""


def find(loop: Loop) -> Causes:
    """Find many fetched values an update, and the time on the lines that fetch them."""
    fetched = loop.host_syncs
    # An action fetched each step is ordinary, so steps count as well as updates.
    if not loop.updates or fetched < MOST_PER_UPDATE * (loop.updates + loop.vector_steps):
        return
    pool = loop.where(lambda atom: _of_update(loop, atom.node))
    claimed = grow(matching(pool, HOST_SYNC), pool, least=0.8)
    if not claimed:
        return
    yield Cause(
        title="Updates fetch many single values from tensors into Python.",
        atoms=indices(claimed),
        residual=clamped(0.1, 0.02, 0.3),
        evidence=(
            f"{times(fetched / loop.updates)} values fetched an update (.item(), .tolist(), .cpu()...)",
            f"{duration(total_ns(claimed) / loop.updates)} an update on the lines that do it",
            hottest(loop, claimed),
        ),
    )


def _of_update(loop: Loop, node: Node) -> bool:
    """Return whether a node can be part of an update. Gaps between the optimiser and the next action count, too."""
    if node.phase is Phase.ACT:
        return node.kind == "gap" and not loop.beside_env(node)
    return node.phase not in ENVIRONMENT | {Phase.STORE}
