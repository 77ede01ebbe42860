"""A measured or printed time is too short for the work: the machine cannot be that fast.

The timer is wrong, for example because the device was still working when the clock was read.

**Seen by.** Counted FLOP or transferred bytes, divided by the span's time, exceed the machine's measured peak more than
four times. With a GPU, only a measured peak of the device counts.

A printed or logged time, such as `├─ conv1: 0.05 ms`, is compared if it is named like a linear or convolution layer:
the layer's FLOP must fit into it at four times the peak. If several layers have that name, the module that it is
printed under decides ("Critic 1 forward"), then the layer with the least arithmetic; "0.00 ms" may be up to 5 µs. The
evidence shows the printed time, the FLOP, the resulting rate and the shortest possible time. If convolutions take more
of the loop than sampling, this is reported as well, here and under `list_batch`.

**Residual.** None: there is nothing to gain, so the gain is 1.
"""

from __future__ import annotations

from hotloop.profiling.diagnosis.claims import indices
from hotloop.profiling.diagnosis.evidence import duration, size
from hotloop.profiling.diagnosis.finding import Cause, Causes
from hotloop.profiling.diagnosis.printed_timings import convolution_evidence, layer_of, printed, printed_in
from hotloop.profiling.diagnosis.time_slices import Loop
from hotloop.profiling.trace.model import Node
from hotloop.profiling.trace.printed_timings import Claim

MARGIN = 4.0
"""Only a multiple of the peak is impossible: it may have been measured on a busy machine, and the work of a
backward pass is counted as twice the forward pass although the first layer needs no gradient of its input."""
ADVICE = """\
Do not trust this number. Wait for the device before reading the clock, or time with device events:
    torch.cuda.synchronize(); start = time.perf_counter()
    loss = network(batch)
    torch.cuda.synchronize(); seconds = time.perf_counter() - start"""
PRINTED_ADVICE = """\
Do not decide by these numbers: the clock was read before the work was done. Wait first, before and after:
    torch.cuda.synchronize()             # a device; of a queue or a pool: future.result()
    start = time.perf_counter()
    x = self.conv1(x)
    torch.cuda.synchronize(); seconds = time.perf_counter() - start
`hotloop run --modules 2` times layers this way."""
MOST_SHOWN = 4


def impossible(amount: float, seconds: float, peak_per_s: float) -> bool:
    """Return whether doing an amount (FLOP or bytes) in this time exceeds the machine's measured peak."""
    return peak_per_s > 0 and amount > 0 and amount > MARGIN * peak_per_s * max(seconds, 0.0)


def find(loop: Loop) -> Causes:
    """Find spans, and timings that the script prints, whose work does not fit into their time."""
    yield from _spans(loop)
    yield from _printed(loop)


def _spans(loop: Loop) -> Causes:
    for node in loop.spans:
        evidence = _excess(loop, node)
        if evidence:
            yield Cause(
                title=f"The time measured for {node.name} is impossible on this machine.",
                atoms=indices(loop.below([node])),
                evidence=evidence,
                informs=True,
                span=node.name,
            )


def _printed(loop: Loop) -> Causes:
    """Find printed times of layers that are too short for the layers' arithmetic."""
    peak, _ = _peaks(loop)
    claimed = loop.trace.claimed
    pairs = [(claim, layer) for claim in claimed.claims if (layer := layer_of(claim, claimed.layers))]
    wrong = [(claim, layer) for claim, layer in pairs if impossible(layer.flops, claim.most_ns / 1e9, peak)]
    if not wrong:
        return
    wrong.sort(key=lambda pair: -pair[1].flops / max(pair[0].most_ns, 1.0))
    evidence = [_too_short(claim, layer.flops, peak) for claim, layer in wrong[:MOST_SHOWN]]
    more = f"and {len(wrong) - MOST_SHOWN} more" if len(wrong) > MOST_SHOWN else ""
    dominating = convolution_evidence(loop) if any(layer.convolution for _, layer in wrong) else []
    first = wrong[0][0]
    names = ", ".join(dict.fromkeys(claim.name for claim, _ in wrong))
    yield Cause(
        title=f"Timings that the script prints are impossible on this machine: {names}.",
        atoms=printed_in(loop, [claim for claim, _ in wrong]),
        evidence=(*evidence, more, *dominating),
        advice=PRINTED_ADVICE,
        informs=True,
        blame=(first.file, first.line),
        span=first.name,
    )


def _too_short(claim: Claim, flops: int, peak: float) -> str:
    per_s = flops / max(claim.most_ns, 1.0) * 1e9
    return (
        f"{' / '.join(claim.path)} is printed as {printed(claim.median_ns, claim)}: its {size(flops, 'FLOP')} in that "
        f"time would be {size(per_s, 'FLOP')}/s; this machine's measured peak is {size(peak, 'FLOP')}/s, so it takes "
        f"at least {duration(flops / peak * 1e9)}"
    )


def _peaks(loop: Loop) -> tuple[float, float]:
    """Return FLOP/s and copied bytes/s of the GPU, if there is one, else of the CPU; 0 if not measured."""
    machine = loop.machine
    if machine.gpu:
        return machine.gpu_peak_flops or 0.0, machine.gpu_copy_bytes_per_s or 0.0
    return machine.peak_flops or 0.0, machine.copy_bytes_per_s or 0.0


def _excess(loop: Loop, node: Node) -> tuple[str, ...]:
    flops_peak, bytes_peak = _peaks(loop)
    ns = max(node.total_ns, node.device_ns)
    evidence = []
    for name, unit, peak in (("flops", "FLOP", flops_peak), ("transfer_bytes", "B", bytes_peak)):
        amount = loop.counted(name, node)
        if node.calls and impossible(amount, ns / 1e9, peak):
            evidence.append(
                f"{size(amount / node.calls, unit)} in {duration(ns / node.calls)} would be "
                f"{size(amount / (max(ns, 1) / 1e9), unit)}/s; "
                f"this machine's measured peak is {size(peak, unit)}/s"
            )
    return tuple(evidence)
