"""The garbage collector goes through all objects again and again.

A collection visits every live container while the program stops. With torch and Gymnasium imported, this takes about
100 ms on one core, before any transition is stored as an object.

**Seen by.** Calls of `gc.collect()` in the loop, or automatic collections that take at least 8 % of the loop. Python
collects everything only when a quarter of all objects are new, so automatic pauses are long but rare: a pause of a
second in an hour is not reported.

**Residual.** 1 % (0 to 10 %) if calls can be removed, 15 % (2 to 50 %) of automatic pauses.
"""

from __future__ import annotations

import re

from hotloop.profiling.diagnosis.claims import indices, matching, union
from hotloop.profiling.diagnosis.evidence import duration, hottest, percent
from hotloop.profiling.diagnosis.finding import Cause, Causes, clamped
from hotloop.profiling.diagnosis.time_slices import Atom, Loop, total_ns

CALLS = re.compile(r"\bgc\.collect\(")
SPAN = "gc.collect"
LEAST_SHARE = 0.08
"""Of automatic collections. Programs with many lists and tuples spend up to 5 % on collecting young objects."""
ADVICE_CALLS = """\
Do not collect in the loop. Freeze what start-up made, and collect seldom if at all:
    gc.collect(); gc.freeze()            # once, before the loop: never visited again
    if iteration % 1000 == 0:
        gc.collect(1)                    # young objects only
Memory is freed without the collector when its last reference goes away; only cycles need it."""
ADVICE_AUTOMATIC = """\
Keep fewer objects alive, or collect less often:
    self.rewards = np.zeros(capacity, np.float32)    # arrays are one object, not a million
    gc.collect(); gc.freeze()                        # once buffers are full, before the loop
    gc.disable()                                     # and gc.collect() after each rollout
    gc.set_threshold(50_000, 20, 100)                # or simply less often"""


def find(loop: Loop) -> Causes:
    """Find calls of the collector, and pauses that it takes by itself."""
    spanned = loop.where(lambda atom: any(node.name == SPAN for node in loop.lineage(atom.node)))
    called = union(spanned, matching(loop.atoms, CALLS))
    if called:
        yield _of_calls(loop, called)
    automatic_ns = loop.trace.main.counts.get("gc_pause_ns", 0) - total_ns(called)
    if automatic_ns >= LEAST_SHARE * loop.wall_ns:
        taken = indices(called)
        yield _automatic(loop, [atom for atom in loop.atoms if atom.index not in taken], automatic_ns)


def _of_calls(loop: Loop, called: list[Atom]) -> Cause:
    calls = sum(node.calls for node in loop.spans if node.name == SPAN)
    return Cause(
        title="gc.collect() is called in the loop and visits all live objects each time.",
        atoms=indices(called),
        residual=clamped(0.01, 0.0, 0.1),
        evidence=(
            f"{calls} calls, {duration(total_ns(called) / calls)} each" if calls else "",
            _counted(loop),
            hottest(loop, called),
        ),
        advice=ADVICE_CALLS,
        sweeps=calls,
    )


def _automatic(loop: Loop, atoms: list[Atom], pause_ns: float) -> Cause:
    """Blame the stacks that were seen for longest at a time: while the collector runs, no stack can be taken."""
    claimed: list[Atom] = []
    for atom in sorted(atoms, key=lambda each: -each.ns / max(each.n, 1)):
        if atom.stack and total_ns(claimed) < pause_ns:
            claimed.append(atom)
    worst = max((int(ns) for ns in loop.trace.main.windows.counts.get("gc_pause_ns", ())), default=0)
    return Cause(
        title="The garbage collector keeps stopping the program to visit all objects.",
        atoms=indices(claimed),
        residual=clamped(0.15, 0.02, 0.5),
        evidence=(
            f"{percent(pause_ns / loop.wall_ns)} of the loop's time in automatic collections",
            _counted(loop),
            f"up to {duration(worst)} in one window of time" if worst else "",
            hottest(loop, claimed),
        ),
        advice=ADVICE_AUTOMATIC,
        general=True,
    )


def _counted(loop: Loop) -> str:
    counts = loop.trace.main.counts
    pauses = max(counts.get("gc_pauses", 0), 1)
    return f"{counts.get('gc_pauses', 0)} collections, {duration(counts.get('gc_pause_ns', 0) / pauses)} on average"
