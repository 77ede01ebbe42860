"""impossible_timing: a span claims more arithmetic or more bytes a second than the machine can do.

Then the timer is wrong, not the machine fast: on a device, work goes on after the call returned. Such a
number must not be used to decide what to optimise.
"""

from __future__ import annotations

from hotloop.explain.evidence import duration, indices, size
from hotloop.explain.finding import Cause, Residual
from hotloop.explain.loop import Loop
from hotloop.trace.model import Node

MARGIN = 4.0
"""Only a multiple of the peak is impossible: it may have been measured on a busy machine, and the work of a
backward pass is counted as twice the forward pass although the first layer needs no gradient of its input."""
ADVICE = """\
Do not trust this number. Wait for the device before reading the clock, or time with device events:
    torch.cuda.synchronize(); start = time.perf_counter()
    loss = network(batch)
    torch.cuda.synchronize(); seconds = time.perf_counter() - start"""


def impossible(amount: float, seconds: float, peak_per_s: float) -> bool:
    """Say whether doing an amount (FLOP or bytes) in this time exceeds the machine's measured peak."""
    return peak_per_s > 0 and amount > 0 and amount > MARGIN * peak_per_s * max(seconds, 0.0)


def find(loop: Loop) -> list[Cause]:
    """Find spans whose counted work does not fit into their time."""
    found = []
    for node in loop.thread.nodes:
        told = _told(loop, node)
        if told and node.kind == "span":
            inside = {each.id for each in loop.thread.subtree(node)}
            atoms = loop.where(lambda atom, inside=inside: atom.node.id in inside)
            found.append(
                Cause(
                    rule="impossible_timing",
                    title=f"The time measured for {node.name} is impossible on this machine.",
                    atoms=indices(atoms),
                    residual=Residual(1.0, 1.0, 1.0),
                    evidence=told,
                    advice=ADVICE,
                    informs=True,
                    span=node.name,
                )
            )
    return found


def _told(loop: Loop, node: Node) -> tuple[str, ...]:
    # The peak is the processor's: with a GPU, only a device peak could call a timing impossible.
    on_gpu = bool(loop.machine.get("gpu"))
    flops_peak = loop.machine.get("gpu_peak_flops" if on_gpu else "peak_flops") or 0.0
    bytes_peak = loop.machine.get("gpu_copy_bytes_per_s" if on_gpu else "copy_bytes_per_s") or 0.0
    ns = max(node.total_ns, node.device_ns)
    told = []
    for name, unit, peak in (("flops", "FLOP", flops_peak), ("transfer_bytes", "B", bytes_peak)):
        amount = loop.counted(name, node)
        if node.calls and impossible(amount, ns / 1e9, peak):
            told.append(
                f"{size(amount / node.calls, unit)} in {duration(ns / node.calls)} would be "
                f"{size(amount / (max(ns, 1) / 1e9), unit)}/s; "
                f"this machine's measured peak is {size(peak, unit)}/s"
            )
    return tuple(told)
