"""The named parts of the loop do not add up to the whole.

A span contains work of another phase: a trainer with `reset` and `step(x)` looks like an environment to the hooks, but
contains the real one and the updates; or a span named "env" surrounds the whole iteration. Then totals count time twice
and the wrong calls count as environment steps. Or the times that the script prints for the parts are far less than the
total it prints with them.

**Seen by.** At least 10 % of the loop in updates inside an environment's span, or in an environment or updates inside
acting, storing or sampling. Or two or more printed times, indented under another or next to a "total", that sum to less
than half of it, on average over at least three prints.

**Residual.** None: shares are misleading, but the gain is 1.

**Not covered.** Networks inside an environment (opponents, learned rewards) and callbacks that evaluate. For printed
times: progress bars, rates, time since the start, means and maxima, milliseconds under seconds.
"""

from __future__ import annotations

from hotloop.phases import Phase
from hotloop.profiling.diagnosis.claims import indices
from hotloop.profiling.diagnosis.evidence import duration, meeting_line, percent
from hotloop.profiling.diagnosis.finding import Cause, Causes
from hotloop.profiling.diagnosis.printed_timings import Whole, printed, printed_in, wholes
from hotloop.profiling.diagnosis.time_slices import ENVIRONMENT, Atom, Loop

STEPPING = frozenset({Phase.ENV})
UPDATING = frozenset({Phase.BACKWARD, Phase.OPTIMISE})
FOREIGN: dict[Phase, frozenset[Phase]] = {
    **dict.fromkeys(ENVIRONMENT, UPDATING),
    **dict.fromkeys((Phase.ACT, Phase.STORE, Phase.SAMPLE), UPDATING | STEPPING),
    **dict.fromkeys(UPDATING, STEPPING),
}
"""By a span's phase, the phases that cannot be part of it. Logging, evaluating and waiting may contain anything."""
LEAST_FOREIGN = 0.1
NESTED_ADVICE = """\
Name the whole for what it is, so that each part is counted once:
    def train_iteration(self, steps): ...     # a trainer with `reset` and `step(x)` looks like an environment
    with span("iteration"):                   # a name without a phase makes a container
        with span("env.step"): ...
        with span("update"): ..."""
LEAST_MISSING = 0.5
"""Part of a printed whole that its printed parts must leave out."""
MOST_SHOWN = 3
PRINTED_ADVICE = """\
Also print the time that no part covers, and look there first:
    rest = total - sum(parts.values())
Parts that ought to be all of it were timed wrongly: wait for the work to be done before reading the clock."""


def find(loop: Loop) -> Causes:
    """Find spans with work of another phase, and printed parts that do not add up."""
    yield from _nested(loop)
    yield from _printed(loop)


def _nested(loop: Loop) -> Causes:
    for node in loop.spans:
        foreign = FOREIGN.get(node.phase, frozenset())
        # Of nested spans of the same phase, the outermost is reported.
        if not foreign or loop.inside(node, frozenset({node.phase})):
            continue
        spans = [each for each in loop.thread.subtree(node)[1:] if each.kind == "span"]
        below = {each.id: each for each in spans if each.phase in foreign}
        inside = sum(each.total_ns for each in below.values() if each.parent not in below)
        if inside < LEAST_FOREIGN * loop.wall_ns:
            continue
        names = sorted({each.name for each in below.values()})[:3]
        title = f"{node.name} counts as {node.phase}, but contains learning or other phases."
        evidence = (
            f"{node.name} ({node.phase}) takes {percent(node.total_ns / loop.wall_ns)} of the loop, of which "
            f"{percent(inside / loop.wall_ns)} is {', '.join(names)}: as parts they would be counted twice",
            "its calls are counted as environment steps" if node.phase is Phase.ENV else "",
        )
        yield _cause(title, loop.below([node]), evidence, NESTED_ADVICE)


def _printed(loop: Loop) -> Causes:
    missing = [
        each for each in wholes(loop.trace.claimed.claims) if each.parts_ns < (1.0 - LEAST_MISSING) * each.claim.mean_ns
    ]
    if not missing:
        return
    missing.sort(key=lambda each: each.parts_ns / each.claim.mean_ns)
    more = f"and {len(missing) - MOST_SHOWN} more" if len(missing) > MOST_SHOWN else ""
    first = missing[0].claim
    names = ", ".join(each.claim.name for each in missing[:MOST_SHOWN])
    yield Cause(
        title=f"The parts that the script prints do not sum to the whole: {names}.",
        atoms=printed_in(loop, [each.claim for each in missing]),
        evidence=(*map(_sums, missing[:MOST_SHOWN]), more),
        advice=PRINTED_ADVICE,
        informs=True,
        blame=(first.file, first.line),
    )


def _sums(each: Whole) -> str:
    whole_ns = each.claim.mean_ns
    parts = ", ".join(f"{part.name} {printed(part.mean_ns, part)}" for part in each.parts[:6])
    return (
        f"{each.claim.name} is printed as {duration(whole_ns)}, its parts ({parts}{', …' * (len(each.parts) > 6)}) "
        f"sum to {duration(each.parts_ns)}, {percent(each.parts_ns / whole_ns)} of it: "
        f"{duration(whole_ns - each.parts_ns)} are missing"
    )


def _cause(title: str, atoms: list[Atom], evidence: tuple[str, ...], advice: str) -> Cause:
    return Cause(
        title=title,
        atoms=indices(atoms),
        evidence=evidence,
        advice=advice,
        informs=True,
        blame=meeting_line(atoms),
    )
