"""The network is too small for the GPU, which waits while the host sends it tiny pieces of work.

For a network of about ten thousand weights, launching an operation takes about ten microseconds and computing it less.
Each observation is also copied to the device, and each action back.

**Seen by.** Device time, from device events, is less than a quarter of the host time of acting, forward, backward,
optimiser and transfers, which together are at least a fifth of the loop.

**Residual.** Half of the host's time for the calls, plus the counted arithmetic at a fifth of one core's peak, with a
wide interval. This rule is tested on synthetic recordings only: it was not run on a GPU and has no case in the zoo.
"""

from __future__ import annotations

from hotloop.phases import DEVICE_PHASES
from hotloop.profiling.diagnosis.claims import indices
from hotloop.profiling.diagnosis.evidence import duration, meeting_line, percent, size
from hotloop.profiling.diagnosis.finding import Cause, Causes, clamped
from hotloop.profiling.diagnosis.time_slices import Loop, total_ns

LEAST_SHARE = 0.2
"""Part of the loop in work meant for the device, below which nothing is gained by moving it."""
MOST_BUSY = 0.25
"""Part of that time in which the device computes, above which it is used well enough."""
SLOW_HOST = 0.2
"""Part of one core's peak that small layers reach on the processor."""
ADVICE = """\
Compare with the processor, or give the device more to do at once:
    device = "cpu"                                  # networks below some hundred thousand weights
    BATCH, NUM_ENVS = 8 * BATCH, 8 * NUM_ENVS       # larger batches cost the device nothing here
    update = torch.compile(update, mode="reduce-overhead")   # CUDA graphs: one launch for a whole update
Keep values on the device, and move observations of all environments in one transfer."""


def find(loop: Loop) -> Causes:
    """Find work for a device that keeps it busy for a small part of the time it takes."""
    nodes = [node for node in loop.spans if node.phase in DEVICE_PHASES]
    # The device time of a span includes that of the spans inside it.
    device_ns = sum(node.device_ns for node in nodes if not loop.inside(node, DEVICE_PHASES))
    claimed = loop.of_nodes(nodes)
    host_ns = total_ns(claimed)
    is_idle = 0 < device_ns <= MOST_BUSY * host_ns
    if not loop.machine.gpu or not is_idle or host_ns < LEAST_SHARE * loop.wall_ns:
        return
    flops = sum(loop.counted("flops", node) for node in nodes)
    peak = float(loop.machine.peak_flops_1 or 0.0)
    on_host_ns = flops / (SLOW_HOST * peak) * 1e9 if peak else device_ns
    # The calls into torch remain on the processor: about half of what they cost with a device behind them.
    mid = min(0.5 + on_host_ns / host_ns, 1.0)
    yield Cause(
        title="The network is too small for the device: the host is busy with sending it work.",
        atoms=indices(claimed),
        residual=clamped(mid, 0.5 * mid, mid + 0.3),
        evidence=(
            f"the device computes for {percent(device_ns / host_ns)} of the {duration(host_ns)} spent on it, "
            f"{percent(device_ns / loop.wall_ns)} of the loop",
            f"{size(flops, 'FLOP')} in all; one core would take about {duration(on_host_ns)} for them",
            _driver_evidence(loop),
        ),
        general=True,
        blame=meeting_line(claimed),
    )


def _driver_evidence(loop: Loop) -> str:
    busy = loop.trace.main.memory.gpu_busy_percent
    busy = busy[busy >= 0]
    return f"its driver reports it busy for {percent(float(busy.mean()) / 100)} of the time" if len(busy) else ""
