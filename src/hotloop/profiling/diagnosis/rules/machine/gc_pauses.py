"""The garbage collector goes through millions of objects again and again.

**Cause.** The garbage collector visits every container that is alive. With torch and Gymnasium imported that takes
some 100 ms on one core here, before any transition is kept as an object; the program stands still meanwhile.

**Seen by.** Calls of `gc.collect()` in the loop; or automatic collections that take 8 % of the loop or more, as the
interpreter counts them. Python collects everything only when a quarter of all objects are new, so automatic pauses
are long but rare: a stall of a second in an hour is no finding.

**Cure.**
```python
gc.collect()
gc.freeze()  # once, before the loop: what is there now is never visited again
gc.collect(1)  # seldom, young objects only
self.rewards = np.zeros(capacity, np.float32)  # one object, not a million
```

**Residual.** 1 % where the call can go (0 to 10 %), 15 % (2 to 50 %) of automatic pauses.
"""

from __future__ import annotations

import re

from hotloop.profiling.diagnosis.evidence import duration, hottest, indices, matching, percent, total_ns
from hotloop.profiling.diagnosis.finding import Cause, clamped
from hotloop.profiling.diagnosis.time_slices import Atom, Loop

CALLS = re.compile(r"\bgc\.collect\(")
SPAN = "gc.collect"
LEAST_SHARE = 0.08
"""Of automatic collections: programs that make many lists and tuples spend up to 5 % on looking at young ones."""
ADVICE_CALLS = """\
Do not collect in the loop. Freeze what start-up made, and collect seldom if at all:
    gc.collect(); gc.freeze()            # once, before the loop: never visited again
    if iteration % 1000 == 0:
        gc.collect(1)                    # young objects only
Memory is freed without the collector as soon as nobody refers to it; only cycles need it."""
ADVICE_AUTOMATIC = """\
Keep fewer objects alive, or have them looked at less often:
    self.rewards = np.zeros(capacity, np.float32)    # arrays are one object, not a million
    gc.collect(); gc.freeze()                        # once buffers are full, before the loop
    gc.disable()                                     # and gc.collect() after each rollout
    gc.set_threshold(50_000, 20, 100)                # or simply less often"""


def find(loop: Loop) -> list[Cause]:
    """Find calls of the collector, and pauses that it takes by itself."""
    called = [atom for atom in loop.atoms if any(node.name == SPAN for node in loop.lineage(atom.node))]
    inside = {atom.index for atom in called}
    called += [atom for atom in matching(loop.atoms, CALLS) if atom.index not in inside]
    causes = [_of_calls(loop, called)] if called else []
    counts = loop.trace.main.counts
    automatic_ns = counts.get("gc_pause_ns", 0) - total_ns(called)
    if automatic_ns >= LEAST_SHARE * loop.wall_ns:
        taken = {atom.index for atom in called}
        causes.append(_automatic(loop, [atom for atom in loop.atoms if atom.index not in taken], automatic_ns))
    return causes


def _of_calls(loop: Loop, called: list[Atom]) -> Cause:
    calls = sum(node.calls for node in loop.thread.nodes if node.name == SPAN and node.kind == "span")
    return Cause(
        rule="gc_pauses",
        title="gc.collect() is called in the loop, and each time visits everything that is alive.",
        atoms=indices(called),
        residual=clamped(0.01, 0.0, 0.1),
        evidence=(
            *([f"{calls} calls, {duration(total_ns(called) / calls)} each"] if calls else []),
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
        rule="gc_pauses",
        title="The garbage collector keeps stopping the program to visit all objects.",
        atoms=indices(claimed),
        residual=clamped(0.15, 0.02, 0.5),
        evidence=(
            f"{percent(pause_ns / loop.wall_ns)} of the loop's time in automatic collections",
            _counted(loop),
            *([f"up to {duration(worst)} in one window of time"] if worst else []),
            hottest(loop, claimed),
        ),
        advice=ADVICE_AUTOMATIC,
        general=True,
    )


def _counted(loop: Loop) -> str:
    counts = loop.trace.main.counts
    pauses = max(counts.get("gc_pauses", 0), 1)
    return f"{counts.get('gc_pauses', 0)} collections, {duration(counts.get('gc_pause_ns', 0) / pauses)} on average"
