"""The transitions of a vector step are stored one environment at a time, each value fetched separately.

**Seen by.** With four environments or more: at least half as many store calls per vector step as environments. The rule
claims the time of storing and of lines with `.item()`, `.cpu()` or `.numpy()`. If there are no store calls, because
transitions are kept in a plain list, at least half as many fetched values per vector step as environments.

**Residual.** 60 µs per vector step: ten array calls.
"""

from __future__ import annotations

import re

from hotloop.phases import Phase
from hotloop.profiling.diagnosis.claims import HOST_SYNC, grow, indices, left_over, matching
from hotloop.profiling.diagnosis.evidence import hottest, times
from hotloop.profiling.diagnosis.finding import Cause, Causes
from hotloop.profiling.diagnosis.time_slices import ENVIRONMENT, LEARNING, Loop

KEEPS = re.compile(r"\.(push|add|append|store|remember|insert|put)\w*\(")
FEWEST_ENVS = 4
"""Below this, a loop over the environments is as good as a batch."""
FOR_EACH = 0.5
"""With this many calls per environment and vector step, something is done separately for each environment."""
BATCHED_PUSH_NS = 60_000
"""Five columns fetched and written into a ring at once: ten array calls of some microseconds."""
ADVICE = """\
Fetch once per vector step and store all environments at once:
    at = (self.position + np.arange(n)) % self.capacity
    self.states[at] = states.cpu().numpy()
    self.actions[at] = actions.cpu().numpy()
    self.rewards[at] = rewards.cpu().numpy()
    self.position = (self.position + n) % self.capacity"""


def find(loop: Loop) -> Causes:
    """Find stores that are called, or values that are fetched, once for every environment."""
    if loop.num_envs < FEWEST_ENVS or not loop.vector_steps:
        return
    steps, enough = loop.vector_steps, FOR_EACH * loop.num_envs
    pushes = sum(node.calls for node in loop.spans if node.phase is Phase.STORE) / steps
    syncs = loop.host_syncs / steps
    elsewhere = LEARNING | ENVIRONMENT | {Phase.ACT, Phase.LOG, Phase.EVALUATE}
    pool = loop.where(lambda atom: atom.node.phase not in elsewhere)
    seeds = matching(pool, HOST_SYNC) if max(pushes, syncs) >= enough else []
    if pushes >= enough:
        seeds += [atom for atom in pool if atom.node.phase is Phase.STORE] + matching(pool, KEEPS)
    claimed = grow(seeds, pool)
    if not claimed:
        return
    yield Cause(
        title="Transitions are stored one environment at a time, value by value.",
        atoms=indices(claimed),
        residual=left_over(claimed, steps * BATCHED_PUSH_NS),
        evidence=(
            f"{times(pushes)} store calls and {times(syncs)} values fetched from tensors "
            f"for each vector step of {times(loop.num_envs)} environments",
            f"{times(syncs / loop.num_envs)} host syncs an environment step",
            hottest(loop, claimed),
        ),
    )
