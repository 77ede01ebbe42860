"""The parts of the loop, as they are named, do not make up the whole.

**Cause.** A span contains what belongs to another phase: a trainer with `reset` and `step(x)` looks like an
environment to the hooks, and contains the real one and the updates; or a span named "env" lies around the whole
iteration. Totals then count time twice, and environment steps are counted by the wrong call. Or much of the time lies
in no span. Or the parts that the script itself prints are far less than the whole that it prints with them.

**Seen by.** A tenth of the loop or more in updates inside an environment's span, or in an environment or updates
inside acting, storing or sampling. Or 30 % of the loop outside of any span with nothing beside it that tells its
phase; the lines seen there are named. Or, of what the script prints, two or more times indented under another (or
printed beside a "total") that sum to less than half of it, on average over the last prints, at least three.

**Cure.**
```python
def train_iteration(self, epochs): ...  # not step(): it is no environment


with span("iteration"):  # a name that tells no phase is a container
    with span("search"):  # what had no name
        action = planner.search(state)
```

**Residual.** None: it says that shares mislead, and is listed with a gain of 1.

**Not meant.** Networks inside an environment (opponents, learned rewards), and callbacks that evaluate. Of printed
times: progress bars, rates, time since the start, means and maxima, milliseconds under seconds.
"""

from __future__ import annotations

from hotloop.phases import Phase
from hotloop.profiling.diagnosis.evidence import duration, hottest, indices, meeting_line, percent
from hotloop.profiling.diagnosis.finding import Cause, Residual
from hotloop.profiling.diagnosis.printed_timings import Whole, printed, printed_in, wholes
from hotloop.profiling.diagnosis.time_slices import ENVIRONMENT, Atom, Loop
from hotloop.profiling.trace.model import Node

STEPPING = frozenset({Phase.ENV})
UPDATING = frozenset({Phase.BACKWARD, Phase.OPTIMISE})
FOREIGN: dict[Phase, frozenset[Phase]] = {
    **dict.fromkeys(ENVIRONMENT, UPDATING),
    **dict.fromkeys((Phase.ACT, Phase.STORE, Phase.SAMPLE), UPDATING | STEPPING),
    **dict.fromkeys(UPDATING, STEPPING),
}
"""By a span's phase, the phases that cannot be part of it. Logging, evaluating and waiting may contain anything."""
LEAST_FOREIGN = 0.1
LEAST_UNNAMED = 0.3
NESTED_ADVICE = """\
Name the whole for what it is, so that each part is counted once:
    def train_iteration(self, steps): ...     # a trainer with `reset` and `step(x)` looks like an environment
    with span("iteration"):                   # a name that tells no phase makes a container
        with span("env.step"): ...
        with span("update"): ..."""
UNNAMED_ADVICE = """\
Give the lines below a span, so that their time has a name:
    with hotloop.span("search"):
        action = planner.search(state)
Own timers must cover the whole loop: print what is left over beside the parts."""
LEAST_MISSING = 0.5
"""Part of a printed whole that its printed parts must leave out."""
MOST_TOLD = 3
PRINTED_ADVICE = """\
Print what is left over beside the parts, and look there first:
    rest = total - sum(parts.values())
Parts that ought to be all of it were timed wrongly: wait for the work to be done before reading the clock."""


def find(loop: Loop) -> list[Cause]:
    """Find spans that contain what is none of theirs, time without a name, and printed parts that miss the whole."""
    return [*_nested(loop), *_unnamed(loop), *_printed(loop)]


def _nested(loop: Loop) -> list[Cause]:
    found = []
    for node in loop.thread.nodes:
        foreign = FOREIGN.get(node.phase, frozenset()) if node.kind == "span" else frozenset()
        if not foreign or _around(loop, node):
            continue
        below = {
            each.id: each for each in loop.thread.subtree(node)[1:] if each.phase in foreign and each.kind == "span"
        }
        inside = sum(each.total_ns for each in below.values() if each.parent not in below)
        if inside < LEAST_FOREIGN * loop.wall_ns:
            continue
        names = sorted({each.name for each in below.values()})[:3]
        subtree = {each.id for each in loop.thread.subtree(node)}
        atoms = loop.where(lambda atom, ids=subtree: atom.node.id in ids)
        title = f"{node.name} is taken for {node.phase}, but contains learning or other phases."
        told = (
            f"{node.name} ({node.phase}) takes {percent(node.total_ns / loop.wall_ns)} of the loop, of which "
            f"{percent(inside / loop.wall_ns)} is {', '.join(names)}: as parts they would be counted twice",
            *(["its calls are counted as environment steps"] if node.phase is Phase.ENV else []),
        )
        found.append(_cause(title, atoms, told, NESTED_ADVICE))
    return [cause for cause in found if cause.atoms]


def _around(loop: Loop, node: Node) -> bool:
    """Say whether a span of the same phase lies around a node, which then tells the same."""
    return any(each.phase is node.phase and each.kind == "span" for each in loop.lineage(node)[1:])


def _unnamed(loop: Loop) -> list[Cause]:
    atoms = loop.where(lambda atom: atom.node.kind == "root" or (atom.node.kind == "gap" and _untold(atom)))
    share = loop.share(atoms)
    seen = loop.share(atom for atom in atoms if atom.own is not None)
    # Without environment steps it is no training loop; without a line of the user's there is nothing to name.
    if not loop.env_steps or seen < LEAST_UNNAMED:
        return []
    told = (f"{percent(share)} of the loop lies in no span, and nothing tells its phase", hottest(loop, atoms))
    return [_cause(f"{percent(share)} of the loop has no name.", atoms, told, UNNAMED_ADVICE)]


def _printed(loop: Loop) -> list[Cause]:
    missing = [
        each for each in wholes(loop.trace.claimed.claims) if each.parts_ns < (1.0 - LEAST_MISSING) * each.claim.mean_ns
    ]
    if not missing:
        return []
    missing.sort(key=lambda each: each.parts_ns / each.claim.mean_ns)
    more = [f"and {len(missing) - MOST_TOLD} more"] if len(missing) > MOST_TOLD else []
    first = missing[0].claim
    names = ", ".join(each.claim.name for each in missing[:MOST_TOLD])
    return [
        Cause(
            rule="parts_do_not_sum",
            title=f"The parts that the script prints do not sum to the whole: {names}.",
            atoms=printed_in(loop, [each.claim for each in missing]),
            residual=Residual(1.0, 1.0, 1.0),
            evidence=(*map(_sums, missing[:MOST_TOLD]), *more),
            advice=PRINTED_ADVICE,
            informs=True,
            blame=(first.file, first.line),
        )
    ]


def _sums(each: Whole) -> str:
    whole_ns = each.claim.mean_ns
    parts = ", ".join(f"{part.name} {printed(part.mean_ns, part)}" for part in each.parts[:6])
    return (
        f"{each.claim.name} is printed as {duration(whole_ns)}, its parts ({parts}{', …' * (len(each.parts) > 6)}) "
        f"sum to {duration(each.parts_ns)}, {percent(each.parts_ns / whole_ns)} of it: "
        f"{duration(whole_ns - each.parts_ns)} are in none of them"
    )


def _untold(atom: Atom) -> bool:
    return atom.node.phase is Phase.OTHER


def _cause(title: str, atoms: list[Atom], told: tuple[str, ...], advice: str) -> Cause:
    return Cause(
        rule="parts_do_not_sum",
        title=title,
        atoms=indices(atoms),
        residual=Residual(1.0, 1.0, 1.0),
        evidence=told,
        advice=advice,
        informs=True,
        blame=meeting_line(atoms),
    )
