"""The transitions of a vector step are stored one environment at a time, each value fetched separately.

**Seen by.** With four environments or more: at least half as many store calls per vector step as environments. The rule
claims the time of storing and of lines with `.item()`, `.cpu()` or `.numpy()`. If there are no store calls, because
transitions are kept in a plain list, at least half as many fetched values per vector step as environments.

**Residual.** 60 µs per vector step: ten array calls.
"""

from __future__ import annotations

import re

from hotloop.phases import Phase
from hotloop.profiling.diagnosis.evidence import hottest, times
from hotloop.profiling.diagnosis.finding import Cause, Causes
from hotloop.profiling.diagnosis.selection import HOST_SYNC, grow, indices, left_over, matching
from hotloop.profiling.diagnosis.time_slices import ENVIRONMENT, LEARNING, Atom, Loop

KEEPS = re.compile(r"\.(push|add|append|store|remember|insert|put)\w*\(")
FEWEST_ENVS = 4
"""Below this, a loop over the environments is as good as a batch."""
FOR_EACH = 0.5
"""Calls for each environment from which something is done once for every environment."""
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
    storing = [node for node in loop.thread.nodes if node.phase is Phase.STORE and node.kind == "span"]
    pushes = sum(node.calls for node in storing) / loop.vector_steps
    syncs = loop.host_syncs / loop.vector_steps
    each = FOR_EACH * loop.num_envs
    elsewhere = LEARNING | ENVIRONMENT | {Phase.ACT, Phase.LOG, Phase.EVALUATE}
    pool = loop.where(lambda atom: atom.node.phase not in elsewhere)
    seeds: list[Atom] = []
    if pushes >= each:
        stored = [atom for atom in pool if atom.node.phase is Phase.STORE]
        seeds = stored + matching(pool, HOST_SYNC) + matching(pool, KEEPS)
    elif syncs >= each:
        seeds = matching(pool, HOST_SYNC)
    claimed = grow(seeds, pool) if seeds else []
    if not claimed:
        return
    steps = loop.vector_steps
    yield Cause(
        title="Transitions are stored one environment at a time, value by value.",
        atoms=indices(claimed),
        residual=left_over(claimed, steps * BATCHED_PUSH_NS, steps * BATCHED_PUSH_NS / 2, steps * 2 * BATCHED_PUSH_NS),
        evidence=(
            f"{times(pushes)} store calls and {times(syncs)} values fetched from tensors "
            f"for each vector step of {times(loop.num_envs)} environments",
            f"{times(syncs / loop.num_envs)} host syncs an environment step",
            hottest(loop, claimed),
        ),
        advice=ADVICE,
    )
