"""The optimiser goes through many small tensors one by one in Python.

Each tensor takes a dozen small operations. On the CPU, this is the default of `torch.optim.Adam(...)`. A step of Adam,
measured with torch 2.13 on one core:

| tensors | shape | default | `foreach=True` | `fused=True` |
|---|---|---|---|---|
| 6 | 64 × 64 | 194 to 359 µs | 245 µs | 76 µs |
| 20 | 64 × 64 | 638 µs | 440 µs | 144 µs |
| 40 | 16 × 16 | 1415 µs | 862 µs | 281 µs |
| 20 | 256 × 256 | 1991 µs | 2091 µs | 766 µs |

**Seen by.** Steps of an optimiser that is neither fused nor foreach, with 24 or more tensors. With fewer, small
tensors a step takes less than a millisecond, but `fused=True` is three times faster there as well.

**Residual.** 7 µs per tensor and 28 bytes per element at twice the machine's copy speed (0.6 to 1.8 times that).
Results are equal up to rounding. Large tensors are bound by memory and gain nothing.
"""

from __future__ import annotations

from hotloop.phases import Phase
from hotloop.profiling.diagnosis.claims import indices, left_over
from hotloop.profiling.diagnosis.evidence import copy_speed, duration, hottest, size, times
from hotloop.profiling.diagnosis.finding import Cause, Causes
from hotloop.profiling.diagnosis.time_slices import Loop, total_ns

FEWEST_TENSORS = 24
"""Below this a step takes less than a millisecond whatever its form."""
FUSED_TENSOR_NS = 7_000
"""Measured with torch 2.13 on a CPU: 7 µs a tensor with fused=True, 35 µs in the loop, 22 µs with foreach=True."""
ADAM_BYTES = 28
"""Read: weight, gradient and two moments; written: weight and moments."""
ADVICE = """\
Let the optimiser update all tensors in one call (same result to rounding; Adam, AdamW, SGD and Adagrad have it):
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-4, fused=True)
    optimizer = torch.optim.RMSprop(network.parameters(), foreach=True)    # those without a fused form
An ensemble of N equal networks has N times fewer tensors as one network of [N, in, out] weights and torch.bmm."""


def find(loop: Loop) -> Causes:
    """Find steps of optimisers that go through many tensors one by one."""
    # While an optimiser's spans are not timed, its counts go to their parent, which is not a step.
    stepping = [node for node in loop.spans if node.phase is Phase.OPTIMISE and node.calls]
    nodes = [each for each in stepping if loop.counted("optimiser_tensors", each) >= FEWEST_TENSORS * each.calls]
    if not nodes:
        return
    claimed = loop.below(nodes)
    steps = sum(node.calls for node in nodes)
    visits = sum(loop.counted("optimiser_tensors", node) for node in nodes)
    elements = sum(loop.counted("optimiser_elements", node) for node in nodes)
    # Weights and moments of small networks stay in the caches, which are faster than a large copy.
    left_ns = visits * FUSED_TENSOR_NS + elements * ADAM_BYTES / (2 * copy_speed(loop)) * 1e9
    tensors = visits / steps
    yield Cause(
        title=f"The optimiser goes through {times(tensors)} tensors one by one.",
        atoms=indices(claimed),
        residual=left_over(claimed, left_ns, low=0.6, high=1.8),
        evidence=(
            f"{nodes[0].name} takes {duration(total_ns(claimed) / steps)} for {times(tensors)} tensors "
            f"of {size(elements / visits, 'numbers')} on average: "
            f"{duration(total_ns(claimed) / visits)} a tensor, fused it is about 7 µs",
            "neither fused=True nor foreach=True is set",
            hottest(loop, claimed),
        ),
    )
