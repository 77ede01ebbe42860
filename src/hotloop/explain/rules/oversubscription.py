"""oversubscription: more compute threads than processor cores.

Each small operation waits until the last of its threads has had its turn on a core, and the threads spin
meanwhile and take the cores from the environments. One thread is fastest for small networks.
"""

from __future__ import annotations

from hotloop.explain.evidence import indices, percent, times, total_ns
from hotloop.explain.finding import Cause, clamped
from hotloop.explain.loop import LEARNING, Loop
from hotloop.spans import Phase

COMPUTES = LEARNING | {Phase.ACT}
BUSY = 0.3
"""A process that computes for this share of the time needs a core."""


def find(loop: Loop) -> list[Cause]:
    """Find torch thread pools larger than what the cores can carry beside the other busy processes."""
    threads = int((loop.trace.manifest.get("torch") or {}).get("threads") or 0)
    cores = int(loop.machine.get("cores") or 0)
    busy = sum(_busy(process.main_thread) for process in loop.trace.processes[1:] if process.threads)
    if not cores or threads <= 1 or threads + busy <= cores:
        return []
    computing = loop.where(lambda atom: atom.node.phase in COMPUTES)
    if not computing:
        return []
    wanted = threads + busy
    return [
        Cause(
            rule="oversubscription",
            title=f"{times(wanted)} busy threads share {cores} cores: torch uses too many threads.",
            atoms=indices(computing),
            residual=clamped(cores / wanted, 0.5 * cores / wanted, 1.0),
            evidence=(
                f"torch uses {threads} threads; {busy} other processes compute; there are {cores} cores",
                f"{percent(sum(a.cpu_ns for a in computing) / max(total_ns(computing), 1.0))} of the "
                "network's time on the processor",
            ),
            advice=_advice(max(1, cores - busy)),
            general=True,
        )
    ]


def _busy(thread) -> bool:
    return thread.wall_ns > 0 and thread.cpu_ns > BUSY * thread.wall_ns


def _advice(threads: int) -> str:
    return (
        "Use one thread for small networks, and never more than the cores left over by the environments:\n"
        f"    torch.set_num_threads({threads})     # first lines of the script; also in every worker\n"
        '    os.environ["OMP_NUM_THREADS"] = "1"  # before importing numpy and torch, in workers'
    )
