"""The number of updates grows with the number of environments, and learning takes most of the time.

The number of updates is tied to the number of environments (`num_envs // 4`), with small batches.

**Seen by.** 32 environments or more, batches sampled from replay (not epochs over a rollout), at least half of the time
in learning, and at least four times as many updates per vector step as the target, one per 64 environments.

**Cure.** Make the ratio explicit, use fewer and larger updates, and compare learning curves per minute, not per step.
```python
UPDATES_PER_STEP = 4  # was 64 for 256 environments
BATCH = 256  # larger batches make up for fewer updates
for _ in range(UPDATES_PER_STEP):
    agent.update(replay.sample(BATCH))
```

**Residual.** The target divided by the present ratio. The gain is in steps per second; less is learned per step. This
is the only rule whose fix changes the maths.
"""

from __future__ import annotations

from hotloop.phases import Phase
from hotloop.profiling.diagnosis.claims import indices
from hotloop.profiling.diagnosis.evidence import duration, hottest, meeting_line, percent, times
from hotloop.profiling.diagnosis.finding import Cause, Causes, clamped
from hotloop.profiling.diagnosis.time_slices import LEARNING, Loop, total_ns

FEWEST_ENVS = 32
ENVS_PER_UPDATE = 64
TOO_MANY = 4.0
"""This multiple of the target is too many."""
LEAST_SHARE = 0.5


def find(loop: Loop) -> Causes:
    """Find off-policy learners with many updates for every vector step."""
    if loop.num_envs < FEWEST_ENVS or not loop.updates or not _off_policy(loop):
        return
    ratio = loop.updates / loop.vector_steps
    target = max(1.0, loop.num_envs // ENVS_PER_UPDATE)
    learning = loop.where(lambda atom: atom.node.phase in LEARNING)
    share = loop.share(learning)
    if ratio < TOO_MANY * target or share < LEAST_SHARE:
        return
    yield Cause(
        title=f"{times(ratio)} updates a vector step: learning takes {percent(share)} of the time.",
        atoms=indices(learning),
        residual=clamped(target / ratio, 0.9 * target / ratio, 2 * target / ratio),
        evidence=(
            f"{times(ratio)} updates for each vector step of {times(loop.num_envs)} environments "
            f"({times(loop.updates / loop.env_steps)} an environment step)",
            f"an update takes {duration(total_ns(learning) / loop.updates)}",
            f"the gain is for {times(target)} updates a vector step; less is learned per step",
            hottest(loop, learning),
        ),
        advice=_advice(loop, ratio, target),
        general=True,
        blame=meeting_line(learning),
    )


def _off_policy(loop: Loop) -> bool:
    """Return whether batches are drawn from replay for the updates: not PPO's epochs over a rollout."""
    sampling = [node for node in loop.spans if node.phase is Phase.SAMPLE and not node.name.endswith(".get")]
    return sum(node.calls for node in sampling) >= 0.5 * loop.updates


def _advice(loop: Loop, ratio: float, target: float) -> str:
    return (
        "Make the ratio explicit, do fewer and larger updates, and check the learning curve per minute:\n"
        f"    UPDATES_PER_STEP = {target:.0f}        # was {ratio:.0f} for {loop.num_envs:.0f} environments\n"
        "    BATCH = 256                  # larger batches make up for fewer updates\n"
        "    for _ in range(UPDATES_PER_STEP):\n"
        "        agent.update(replay.sample(BATCH))"
    )
