"""A span, or a timing that the script prints, claims more a second than the machine can do.

**Cause.** A span claims more arithmetic, or more bytes moved, a second than the machine can do; or a timing that the
script itself prints does. The timer is wrong, for instance because the device was still working when the clock was
read.

**Seen by.** Counted FLOP or transferred bytes, divided by the span's time, more than four times the machine's
measured peak. With a GPU only a measured device peak can call a timing impossible.

Of what the script prints (or logs): a timing such as `├─ conv1: 0.05 ms` whose name is that of a Linear or
convolution layer, and in which the layer's arithmetic does not fit at four times the peak. Of layers of the same name
those count whose module it is printed under ("Critic 1 forward"), of these and of their calls the smallest; and "0.00
ms" may be 5 µs. The evidence says the time that was printed, the FLOP, what that would be a second, and the least
that it must have taken. Where the convolutions take more of the loop than sampling does, that is said too, here and
under `list_batch`.

**Cure.** Do not use that number.
```python
torch.cuda.synchronize()
start = time.perf_counter()
loss = network(batch)
torch.cuda.synchronize()
seconds = time.perf_counter() - start
```

**Residual.** None: nothing is gained, so it is listed with a gain of 1 and does not compete with the others.
"""

from __future__ import annotations

from hotloop.profiling.diagnosis.evidence import duration, indices, size
from hotloop.profiling.diagnosis.finding import Cause, Residual
from hotloop.profiling.diagnosis.printed_timings import convolutions_told, layer_of, printed, printed_in
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
MOST_TOLD = 4


def impossible(amount: float, seconds: float, peak_per_s: float) -> bool:
    """Say whether doing an amount (FLOP or bytes) in this time exceeds the machine's measured peak."""
    return peak_per_s > 0 and amount > 0 and amount > MARGIN * peak_per_s * max(seconds, 0.0)


def find(loop: Loop) -> list[Cause]:
    """Find spans, and timings that the script prints, whose work does not fit into their time."""
    return [*_spans(loop), *_printed(loop)]


def _spans(loop: Loop) -> list[Cause]:
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


def _printed(loop: Loop) -> list[Cause]:
    """Find printed times of layers that are too short for the layers' arithmetic."""
    peak = _peak(loop, "peak_flops")
    claimed = loop.trace.claimed
    pairs = [(claim, layer) for claim in claimed.claims if (layer := layer_of(claim, claimed.layers))]
    wrong = [(claim, layer) for claim, layer in pairs if impossible(layer.flops, claim.most_ns / 1e9, peak)]
    if not wrong:
        return []
    wrong.sort(key=lambda pair: -pair[1].flops / max(pair[0].most_ns, 1.0))
    told = [_too_short(claim, layer.flops, peak) for claim, layer in wrong[:MOST_TOLD]]
    more = [f"and {len(wrong) - MOST_TOLD} more"] if len(wrong) > MOST_TOLD else []
    dominating = convolutions_told(loop) if any(layer.convolution for _, layer in wrong) else []
    first = wrong[0][0]
    names = ", ".join(dict.fromkeys(claim.name for claim, _ in wrong))
    return [
        Cause(
            rule="impossible_timing",
            title=f"Timings that the script prints are impossible on this machine: {names}.",
            atoms=printed_in(loop, [claim for claim, _ in wrong]),
            residual=Residual(1.0, 1.0, 1.0),
            evidence=(*told, *more, *dominating),
            advice=PRINTED_ADVICE,
            informs=True,
            blame=(first.file, first.line),
            span=first.name,
        )
    ]


def _too_short(claim: Claim, flops: int, peak: float) -> str:
    per_s = flops / max(claim.most_ns, 1.0) * 1e9
    return (
        f"{' / '.join(claim.path)} is printed as {printed(claim.median_ns, claim)}: its {size(flops, 'FLOP')} in that "
        f"time would be {size(per_s, 'FLOP')}/s; this machine's measured peak is {size(peak, 'FLOP')}/s, so it takes "
        f"at least {duration(flops / peak * 1e9)}"
    )


def _peak(loop: Loop, name: str) -> float:
    # The peak is the processor's: with a GPU, only a device peak could call a timing impossible.
    return float(loop.machine.get(f"gpu_{name}" if loop.machine.get("gpu") else name) or 0.0)


def _told(loop: Loop, node: Node) -> tuple[str, ...]:
    flops_peak, bytes_peak = _peak(loop, "peak_flops"), _peak(loop, "copy_bytes_per_s")
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
