"""Target networks are updated parameter by parameter in a Python loop.

Each pair of parameters costs 6 µs with `lerp_`, 8 µs with `mul_` and `add_`, 15 to 20 µs with new tensors (`tau * p +
(1 - tau) * q`), plus the iteration over the modules.

**Seen by.** A function of your own that has both a line that zips the parameters of two networks and a line that writes
in place (`copy_`, `lerp_`, `mul_`, `add_`).

**Residual.** A sixth (half to twice that): 1.5 µs per tensor instead of 9. The lists are built once. The leading
underscore of `_foreach_lerp_` means that torch may change the function, but its own optimisers use it.
"""

from __future__ import annotations

import re

from hotloop.phases import Phase
from hotloop.profiling.diagnosis.claims import busy_ns, by_function, indices, left_over, matching, union
from hotloop.profiling.diagnosis.evidence import copy_speed, duration, hottest
from hotloop.profiling.diagnosis.finding import Cause, Causes
from hotloop.profiling.diagnosis.time_slices import ENVIRONMENT, Loop, total_ns

PAIRS = re.compile(r"\bzip\(.*\b(named_)?(parameters|buffers)\(\)|\bstate_dict\(\)\.(items|keys)\(")
"""The loop's head: a network and its copy, side by side."""
BLENDS = re.compile(r"\.(copy_|lerp_|mul_|add_|set_)\(|\btau\b|\bpolyak\b|\.data\b\s*=|\[\w+\]\s*=")
UPDATES_IN_PLACE = re.compile(r"\.(copy_|lerp_|mul_|add_)\(|\.data\b\s*=")
ONE_BY_ONE = re.compile(r"\b(\w*param\w*\.(data\.)?|\w+\.data\.)(copy_\(.*\*.*\+|lerp_\(|mul_\()")
"""A single parameter blended in place. It indicates the loop, whose head is often not sampled."""
FOREACH_NS = 1_500
"""A tensor's part of `torch._foreach_lerp_`: measured 1.1 to 1.7 µs."""
LOOP_NS = 9_000
"""A tensor's part of the loop: measured 6 µs with lerp_, 8 with mul_ and add_, 15 to 20 with new tensors."""
BLEND_BYTES = 12
ADVICE = """\
List the tensors once and blend all of them in one call:
    self.online = list(self.critic.parameters())
    self.slow = list(self.target.parameters())
    with torch.no_grad():
        torch._foreach_lerp_(self.slow, self.online, tau)   # slow += tau * (online - slow)"""


def find(loop: Loop) -> Causes:
    """Find loops over pairs of parameters in own code."""
    elsewhere = ENVIRONMENT | {Phase.ACT, Phase.SAMPLE, Phase.STORE, Phase.EVALUATE, Phase.CHECKPOINT}
    pool = loop.where(lambda atom: not (loop.phases(atom.node) & elsewhere and atom.node.kind == "span"))
    pairs, writers, single = (by_function(matching(pool, each)) for each in (PAIRS, UPDATES_IN_PLACE, ONE_BY_ONE))
    walks = (pairs.keys() & writers.keys()) | single.keys()
    claimed = [atom for atom in union(matching(pool, PAIRS), matching(pool, BLENDS)) if atom.function in walks]
    if not claimed or not loop.updates:
        return
    # The slow network is as large as what the optimisers step through: no larger arithmetic than theirs.
    elements = loop.counts.get("optimiser_elements", 0)
    arithmetic_ns = min(elements * BLEND_BYTES / (2 * copy_speed(loop)) * 1e9, 0.5 * busy_ns(claimed))
    left_ns = busy_ns(claimed) * FOREACH_NS / LOOP_NS + arithmetic_ns
    yield Cause(
        title="Target networks are updated one parameter at a time.",
        atoms=indices(claimed),
        residual=left_over(claimed, left_ns),
        evidence=(
            f"{duration(total_ns(claimed) / loop.updates)} an update on walking through pairs of parameters",
            hottest(loop, claimed),
        ),
    )
