"""Features or searches are computed by Python loops over environments and cells.

Typical examples are flood fill and breadth-first search.

**Seen by.** Functions of your own that spend at least a quarter of their time on lines that vectorised code does not
have: `for`, `while`, `if`, `append`, `popleft`, `len(...)`. They must run in the environment, or directly before or
after its step, and be a search, or a loop with four or more environments; at least 5 µs per environment step.

**Residual.** 3 % (1 to 10 %): a compiled loop is about 30 times faster. Callers that exist only for the loop are
claimed as well.
"""

from __future__ import annotations

import re

from hotloop.profiling.diagnosis.claims import busy_ns, by_function, indices, matching, with_callers
from hotloop.profiling.diagnosis.evidence import duration, hottest, times
from hotloop.profiling.diagnosis.finding import Cause, Causes, clamped
from hotloop.profiling.diagnosis.time_slices import ENVIRONMENT, LEARNING, Atom, Loop, total_ns

INTERPRETED = re.compile(
    r"^(for|while|if|elif|else|continue|break|and|or|not|def)\b|\.(popleft|append|appendleft|add|pop|discard)\("
    r"|(?<![\w.])(heappush|heappop|deque|set|divmod|len|min|max|abs|sum|map|any|all|zip|enumerate|sorted)\("
)
SEARCH = re.compile(r"\.popleft\(|\bheappop\(|\bdeque\(|^while\b.*(queue|stack|frontier|open|heap)")
LOOPING = re.compile(r"^(for|while)\b|\.popleft\(|\.pop\(|\bfor \w+ in range\(")
FEWEST_ENVS = 4
LEAST_INTERPRETED = 0.25
"""A function counts as a Python loop from this share of its time on interpreted lines."""
LEAST_NS = 5_000
"""Less than this per environment step is less than a hundred Python operations: not worth a kernel."""
ADVICE = """\
Compile the loop over environments and cells into one kernel call (or vectorise it over a leading axis):
    @numba.njit(cache=True)
    def reachable(blocked, starts, out):       # [N, H, W] bool, [N, 2] int, [N] int
        for n in range(len(starts)):           # same loops, machine speed
            ...
    reachable(boards, heads, self.features[:, 10])   # one call a vector step"""


def find(loop: Loop) -> Causes:
    """Find the user's own interpreted loops inside the environment."""
    pool = loop.where(lambda a: bool(a.stack) and a.stack[0].own and _features(loop, a))
    looping = [atom for atoms in by_function(pool).values() if _interpreted(loop, atoms) for atom in atoms]
    claimed = with_callers(loop, looping)
    per_step_ns = busy_ns(claimed) / max(loop.env_steps, 1)
    if not claimed or per_step_ns < LEAST_NS:
        return
    yield Cause(
        title="The environment's features or search run as Python loops, one environment at a time.",
        atoms=indices(claimed),
        residual=clamped(0.03, 0.01, 0.1),
        evidence=(
            f"{duration(per_step_ns)} of interpreted Python an environment step, "
            f"{times(loop.num_envs)} environments a vector step",
            hottest(loop, claimed),
        ),
    )


def _features(loop: Loop, atom: Atom) -> bool:
    """Return whether an atom may compute observations: in the environment, or directly before or after it."""
    if loop.phases(atom.node) & ENVIRONMENT:
        return True
    return atom.node.phase not in LEARNING and loop.beside_env(atom.node)


def _interpreted(loop: Loop, atoms: list[Atom]) -> bool:
    """Return whether a function loops in Python: a search, or a loop over many environments."""
    if total_ns(matching(atoms, INTERPRETED)) < LEAST_INTERPRETED * total_ns(atoms):
        return False
    return bool(matching(atoms, SEARCH) or (loop.num_envs >= FEWEST_ENVS and matching(atoms, LOOPING)))
