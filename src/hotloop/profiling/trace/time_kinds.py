"""In what kind of activity time goes: the interpreter, native calls, torch, memory, waiting."""

from __future__ import annotations

from collections import Counter

from hotloop.profiling.trace.model import Frame, Node, Sample, Thread, Trace
from hotloop.profiling.trace.observed import operands_of
from hotloop.profiling.trace.source_text import module_of

KIND_NAMES: dict[str, str] = {
    "interpreter": "Python",
    "native": "native call",
    "torch_dispatch": "small torch operations",
    "torch_compute": "large torch operations",
    "memory": "memory",
    "gc": "garbage collection",
    "wait": "waiting",
    "io": "files",
    "starved": "no core free",
}
"""What a report calls each kind of time."""
BUSY = 0.1
"""Part of the machine's peak FLOP/s from which on operations are limited by arithmetic."""
LARGE_BYTES = 1 << 18
"""Operands of this size take longer than the call around them: about ten microseconds at 25 GB/s."""
SHORT_NS = 1_000_000
"""A call into torch that is shorter does no large operations: it would move less than 25 MB."""
PRODUCTS = ("linear", "Linear", "conv", "Conv", "matmul", "mm", "einsum", "LSTM", "GRU", "RNN", "attention", "backward")
"""Parts of the names of torch operations that do more arithmetic than one operation for each number."""


class Kinds:
    """Tells the kinds of a thread's samples."""

    def __init__(self, trace: Trace, thread: Thread) -> None:
        self._nodes = thread.by_id
        self.observed = trace.observed
        self._peak = trace.machine.peak_flops_1 or 0.0

    def divide(self, sample: Sample) -> dict[str, int]:
        """Divide the time of a sample by kind, in ns."""
        seen, whole = sample.seen, sample.seen_ns
        found = {"gc": seen.gc_ns, "wait": seen.wait_ns, "io": seen.io_ns, "starved": seen.starved_ns}
        rest = max(whole - sum(found.values()), 0)
        return found | {self._computing(sample): rest}

    def shares(self, samples: tuple[Sample, ...]) -> dict[str, float]:
        """Return the share of each kind of time, largest first."""
        sums = Counter[str]()
        for sample in samples:
            sums.update(self.divide(sample))
        whole = sum(sums.values())
        return {kind: ns / whole for kind, ns in sums.most_common() if ns}

    def reached_flops(self, node: Node | None) -> float:
        """Return the FLOP/s of a node of the call tree; 0 where they were not counted."""
        return node.counts.get("flops", 0) * 1e9 / node.self_ns if node is not None and node.self_ns else 0.0

    def _computing(self, sample: Sample) -> str:
        if not sample.stack:
            return "interpreter"
        top, node = sample.stack[0], self._nodes.get(sample.node)
        place = self.observed.at(place_of(top), top.operation) if top.own else None
        operands = operands_of(place)
        callee = place.callee if place is not None else ""
        if any(each.form == "tensor" for each in operands) or callee.startswith("torch.") or _in_torch(top):
            nbytes = max((each.nbytes for each in operands), default=0)
            return self._torch_kind(node, callee, nbytes, place is not None)
        if any(each.form == "array" for each in operands):
            return "memory" if sum(each.nbytes for each in operands) >= LARGE_BYTES else "native"
        return "native" if top.operation.startswith(("CALL", "CONTAINS_OP")) else "interpreter"

    def _torch_kind(self, node: Node | None, callee: str, nbytes: int, observed: bool) -> str:
        reached = self.reached_flops(node)
        if reached and self._peak:
            return "torch_compute" if reached >= BUSY * self._peak else "torch_dispatch"
        if nbytes < LARGE_BYTES:
            # Without operands and FLOPs nothing is known of a library's operations but how long they take together.
            return "torch_dispatch" if observed or (node is not None and 0 < node.mean_ns < SHORT_NS) else "native"
        return "torch_compute" if any(part in callee for part in PRODUCTS) else "memory"


def place_of(frame: Frame) -> tuple[str, int, int, int, int]:
    """Return where the expression of a frame is."""
    return frame.file, frame.line, frame.end_line, frame.column, frame.end_column


def _in_torch(frame: Frame) -> bool:
    return not frame.own and module_of(frame.file).split(".")[0] == "torch"
