"""There are more compute threads than free cores.

Torch's threads and the environment processes compete for the cores, and each small operation waits for its last thread
to get one.

**Seen by.** More than one torch thread, and more than 1.25 busy threads per core: torch's threads plus the cores that
other processes use while the main thread is not waiting for them. Or, if something outside of the run uses the cores:
small networks (the fastest call takes under 10 ms) on several threads, if they are on a core for less than 60 % of the
time.

**Residual.** The fastest call of each span shows its time when it is not disturbed; the median call is the upper bound.
"""

from __future__ import annotations

from hotloop.phases import Phase
from hotloop.profiling.diagnosis.claims import indices
from hotloop.profiling.diagnosis.evidence import duration, percent, times
from hotloop.profiling.diagnosis.finding import Cause, Causes, Residual, clamped
from hotloop.profiling.diagnosis.time_slices import LEARNING, Atom, Loop, total_ns
from hotloop.profiling.trace.model import Node

COMPUTES = LEARNING | {Phase.ACT}
TOO_MANY = 1.25
"""Busy threads per core; fewer are hidden by the scheduler."""
FEWEST_CALLS = 20
WAITING = 0.6
"""A network that is running for less than this part of its time waits for the other threads of its pool."""
LEAST_BUSY, LEAST_STARVED = 0.05, 0.01
"""The least cores kept busy by others, and the least share of time without a core, that the evidence mentions."""
LEAST_SAMPLES = 50
SMALL_NS = 10_000_000
"""If a call takes less than this at best, a second thread gains less than the waiting costs."""
ADVICE = """\
Use one thread for small networks, and never more than the cores left over by the environments:
    torch.set_num_threads(1)             # first lines of the script; also in every worker
    os.environ["OMP_NUM_THREADS"] = "1"  # before importing numpy and torch, in workers"""


def find(loop: Loop) -> Causes:
    """Find torch thread pools that are too large for the cores left by other busy processes."""
    torch = loop.trace.torch
    threads = torch.threads or 0
    cores = loop.machine.cores or 0
    busy = _busy(loop, cores)
    computing = loop.where(lambda a: a.node.phase in COMPUTES and a.node.kind == "span")
    if not cores or threads <= 1 or not computing:
        return
    crowded = threads + busy > TOO_MANY * cores
    if not crowded and not _wait_for_each_other(loop, computing):
        return
    main = loop.trace.main
    pool_ns = max(main.counts.get("cpu_ns", 0) - sum(thread.cpu_ns for thread in main.threads), 0)
    yield Cause(
        title=f"Torch uses {threads} threads, and {times(threads + busy)} busy threads share {cores} cores."
        if crowded
        else f"Torch's {threads} threads wait for each other: something else keeps the {cores} cores busy.",
        atoms=indices(computing),
        residual=_undisturbed(computing),
        evidence=(
            f"torch uses {threads} threads, there are {cores} cores" + _others(loop, busy),
            f"the network's code is on the processor for {percent(_computing_share(computing))} of its time",
            f"threads below Python used {pool_ns / 1e9:.1f} s of processor time in {loop.trace.wall_s:.1f} s",
            *_slowest(computing),
        ),
        general=True,
        blame=torch.set_at,
    )


def _busy(loop: Loop, cores: int) -> float:
    """Return how many cores other processes keep busy while the main thread does not wait for them.

    Workers that compute only while the main thread waits for them do not disturb it. As much of their work as fits into
    the waiting time is assumed to be done there.
    """
    waited_ns = total_ns(loop.within(Phase.WAIT))
    others = loop.trace.processes[1:]
    work_ns = sum(each.counts.get("cpu_ns", 0) or sum(thread.cpu_ns for thread in each.threads) for each in others)
    return max(work_ns - cores * waited_ns, 0.0) / max(loop.wall_ns - waited_ns, 1.0)


def _wait_for_each_other(loop: Loop, computing: list[Atom]) -> bool:
    """Return whether small networks wait for the threads that they are divided among."""
    nodes = _spans(computing)
    if loop.machine.gpu or not nodes or sum(atom.n for atom in computing) < LEAST_SAMPLES:
        return False
    best_ns = sum(node.min_ns * node.calls for node in nodes) / sum(node.calls for node in nodes)
    return best_ns < SMALL_NS and _computing_share(computing) < WAITING


def _others(loop: Loop, busy: float) -> str:
    """Describe what keeps the cores busy, as far as it is known: other programs are not in the recording."""
    starved = loop.trace.main.counts.get("starved_ns", 0) / loop.wall_ns
    facts = [f"other processes of the run keep {busy:.1f} of them busy"] if busy >= LEAST_BUSY else []
    facts += [f"the main thread waits for one in {percent(starved)} of the time"] if starved >= LEAST_STARVED else []
    return "".join(f", {each}" for each in facts)


def _undisturbed(computing: list[Atom]) -> Residual:
    """Predict what remains by the fastest calls seen: they show the time of an undisturbed call.

    At worst the median call is what is left.
    """
    nodes = _spans(computing)
    whole = sum(node.total_ns for node in nodes)
    if not whole:
        return clamped(0.6, 0.3, 0.9)
    fastest = sum(node.min_ns * node.calls for node in nodes) / whole
    median = sum(node.p50_ns * node.calls for node in nodes) / whole
    return clamped(fastest, 0.7 * fastest, median)


def _spans(computing: list[Atom]) -> list[Node]:
    """Return the spans of the atoms that were called often enough and do not lie in one another."""
    nodes = {atom.node.id: atom.node for atom in computing}
    return [node for node in nodes.values() if node.calls >= FEWEST_CALLS and node.parent not in nodes]


def _computing_share(computing: list[Atom]) -> float:
    return sum(atom.cpu_ns for atom in computing) / max(total_ns(computing), 1.0)


def _slowest(computing: list[Atom]) -> list[str]:
    nodes = sorted(_spans(computing), key=lambda node: -node.total_ns)[:2]
    return [
        f"{node.name} takes {duration(node.mean_ns)} on average and {duration(node.min_ns)} at best" for node in nodes
    ]
