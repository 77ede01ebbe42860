"""Returns or advantages are computed in a Python loop over time.

Per step and environment, this costs 20 to 40 µs with tensor elements, 1 µs with numpy scalars and 1 ns when compiled.

**Seen by.** A line of your own that carries a discounted value (`R = r + gamma * R`), inside a loop that goes
backwards, or next to a temporal difference or `insert(0, ...)`; at least 1 µs per environment step. So a loop over time
that handles many environments in one array is not reported.

**Residual.** 2 % (0 to 8 %).
"""

from __future__ import annotations

import re

from hotloop.phases import Phase
from hotloop.profiling.diagnosis.claims import busy_ns, indices
from hotloop.profiling.diagnosis.evidence import duration, hottest, times
from hotloop.profiling.diagnosis.finding import Cause, Causes, clamped
from hotloop.profiling.diagnosis.time_slices import ENVIRONMENT, Atom, Function, Loop

BACKWARDS = re.compile(r"^for\b.*(\breversed\(|,\s*-1,\s*-1\)|\[::-1\])")
"""Time is walked through from its end."""
CARRIES = re.compile(r"\b(\w+)\s*=(?!=).*(\*\s*\1\b(?!\s*[.(\[])|=\s*\1\s*\*)|\b(\w+)\[[^\]]*\]\s*=(?!=).*\*\s*\3\[")
"""`R = r + gamma * R`: the value of the last step, times something, is part of the next."""
DISCOUNTS = re.compile(r"(?i)gamma|lambda|\blam\b|discount|gae|advant|return|delta|reward")
OF_TIME = re.compile(r"(?i)\.insert\(0,|\.appendleft\(|delta.*=.*(gamma|discount).*\*|\[(t|step|i|k) \+ 1\b")
"""Next to a recurrence, it indicates a loop over time. The head of the loop is often not sampled."""
LONGEST, AROUND = 25, 6
"""Lines between the head of the loop and the recurrence; lines around it if the head was not seen."""
LEAST_NS = 1_000
"""For each environment step: less is what one array operation for all environments at once costs."""
NETWORK = frozenset({Phase.ACT, Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMISE})
ELSEWHERE = ENVIRONMENT | NETWORK | {Phase.EVALUATE, Phase.LOG, Phase.CHECKPOINT}
ADVICE = """\
Compile the recurrence (or loop over time only, with all environments in one array):
    @numba.njit(cache=True)
    def gae(rewards, values, dones, gamma, lam, out):      # [T, N] float32 arrays; values [T + 1, N]
        for n in range(rewards.shape[1]):
            running = 0.0
            for t in range(rewards.shape[0] - 1, -1, -1):
                alive = 1.0 - dones[t, n]
                delta = rewards[t, n] + gamma * values[t + 1, n] * alive - values[t, n]
                running = delta + gamma * lam * alive * running
                out[t, n] = running"""


def find(loop: Loop) -> Causes:
    """Find own functions outside of networks and environments that walk backwards through time."""
    pool = loop.where(lambda atom: not (atom.node.kind == "span" and atom.node.phase in ELSEWHERE))
    regions = recurrences(pool)
    claimed = [atom for atom in pool if _inside(atom, regions)]
    per_step_ns = busy_ns(claimed) / max(loop.env_steps, 1)
    if per_step_ns < LEAST_NS:
        return
    yield Cause(
        title="Returns or advantages are computed in an interpreted loop over time.",
        atoms=indices(claimed),
        # 1 to 5 ns a step and environment are left, and three calls for a rollout.
        residual=clamped(0.02, 0.0, 0.08),
        evidence=(
            f"{duration(per_step_ns)} an environment step; a compiled loop takes some nanoseconds",
            f"{times(loop.num_envs)} environments a vector step",
            hottest(loop, claimed),
        ),
    )


def recurrences(pool: list[Atom]) -> list[tuple[Function, int, int]]:
    """Return the functions and lines, first and last, of loops over time that carry a discounted value on."""
    lines = {(atom.function, atom.own.line): atom.text for atom in pool if atom.own and atom.function}
    found = []
    for (function, line), text in lines.items():
        if not (CARRIES.search(text) and DISCOUNTS.search(text)):
            continue
        near = {at: each for (where, at), each in lines.items() if where == function and -LONGEST <= at - line <= 3}
        heads = [at for at, each in near.items() if at < line and BACKWARDS.search(each)]
        # A running return, one addition a step, has neither a head nor anything of time beside it.
        if heads:
            found.append((function, max(heads), line + 3))
        elif any(OF_TIME.search(each) for at, each in near.items() if at >= line - AROUND):
            found.append((function, line - AROUND, line + 3))
    return found


def _inside(atom: Atom, regions: list[tuple[Function, int, int]]) -> bool:
    line = atom.own.line if atom.own else 0
    return any(atom.function == function and first <= line <= last for function, first, last in regions)
