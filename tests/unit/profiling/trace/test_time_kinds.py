"""The kind of time follows from the instruction, from what it works on, and from the speed that was reached."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.traces import gap, make_trace, place

from hotloop.phases import Phase
from hotloop.profiling.trace.model import Frame, Sample, Seen, Trace
from hotloop.profiling.trace.observed import Observed
from hotloop.profiling.trace.reading.json_schemas import ObservedPlace, ObservedRecord
from hotloop.profiling.trace.time_kinds import KIND_NAMES, LARGE_BYTES, Kinds, place_of

FILE = "/a/train.py"
TORCH = Frame("linear", "/x/lib/python3.11/site-packages/torch/nn/modules/linear.py", 125, "", False, operation="CALL")
NUMPY = Frame("stack", "/x/lib/python3.11/site-packages/numpy/core/shape_base.py", 400, "", False, operation="CALL")
PEAK = 6e10
"""FLOP/s of a core in `make_trace`."""


def frame(operation: str) -> Frame:
    return Frame("learn", FILE, 7, "", True, 7, 4, 30, operation)


def trace_of(
    operation: str = "CALL", callee: str = "", operands: tuple[str, ...] | None = None, **node: object
) -> Trace:
    """A run with one node; of the instruction in `frame`, these operands were observed."""
    fields = {"kind": "gap", "self_s": 1.0} | node
    trace = make_trace([place("learn", Phase.OWN, **fields)])  # pyright: ignore[reportArgumentType]
    if operands is None:
        return trace
    seen = ObservedPlace(0, FILE, "learn", 1, 7, 7, 4, 30, operation, callee, operands)
    return replace(trace, observed=Observed(ObservedRecord((seen,))))


def kind_of(trace: Trace, *stack: Frame) -> str:
    (kind,) = Kinds(trace, trace.thread).shares((Sample(1, stack, 1, 10, 10),))
    return kind


SMALL, LARGE = LARGE_BYTES // 4 - 1, LARGE_BYTES // 4


@pytest.mark.parametrize(
    ("operation", "callee", "operands", "kind"),
    [
        ("CALL", "sorted", ("list of 3 × int",), "native"),
        ("CONTAINS_OP", "", ("int", "list of 3 × int"), "native"),
        ("BINARY_OP", "", ("int", "int"), "interpreter"),
        ("BINARY_OP", "", (f"array float32 [{SMALL}]", "int"), "native"),
        ("BINARY_OP", "", (f"array float32 [{LARGE}]", "int"), "memory"),
        ("CALL", "numpy.stack", ("list of 256 × array uint8 [4, 96, 96]",), "memory"),
        ("CALL", "torch.add", (f"tensor float32 [{SMALL}]",), "torch_dispatch"),
        ("CALL", "torch.add", (f"tensor float32 [{LARGE}]",), "memory"),
        ("BINARY_OP", "", ("tensor float32 [8]", "tensor float32 [8]"), "torch_dispatch"),
        ("CALL", "torch.matmul", (f"tensor float32 [{LARGE}]",), "torch_compute"),
        ("CALL", "torch.manual_seed", ("int",), "torch_dispatch"),
        ("CALL", "torch.Tensor.numpy", ("tensor float32 [2]",), "torch_dispatch"),
    ],
)
def test_the_kind_of_an_observed_instruction(operation, callee, operands, kind):
    """Regression: an operator on small tensors outside of any span was a native call."""
    assert kind_of(trace_of(operation, callee, operands), frame(operation)) == kind


@pytest.mark.parametrize(
    ("stack", "kind"),
    [
        ((), "interpreter"),
        ((frame("CALL"),), "native"),
        ((frame("LOAD_ATTR"),), "interpreter"),
        ((NUMPY, frame("CALL")), "native"),
        ((TORCH, frame("CALL")), "native"),
    ],
)
def test_the_kind_of_an_instruction_that_was_not_observed(stack, kind):
    assert kind_of(trace_of(), *stack) == kind


def test_short_spans_of_torch_are_small_operations():
    assert kind_of(trace_of(calls=10_000), TORCH, frame("CALL")) == "torch_dispatch"
    assert kind_of(trace_of(calls=10), TORCH, frame("CALL")) == "native"


def test_counted_flops_decide():
    slow, fast = ({"flops": round(share * PEAK)} for share in (0.05, 0.5))
    small = ("CALL", "torch.matmul", ("tensor float32 [2, 2]",))
    assert kind_of(trace_of(counts=slow), TORCH) == kind_of(trace_of(*small, counts=slow), frame("CALL"))
    assert kind_of(trace_of(counts=slow), TORCH) == "torch_dispatch"
    assert kind_of(trace_of(*small, counts=fast), frame("CALL")) == "torch_compute"
    trace = trace_of(counts=fast)
    kinds = Kinds(trace, trace.thread)
    assert kinds.reached_flops(trace.thread.nodes[1]) == pytest.approx(0.5 * PEAK)
    assert kinds.reached_flops(None) == 0.0


def test_an_observation_is_of_one_instruction():
    trace = trace_of("CALL", "torch.add", ("tensor float32 [8]",))
    elsewhere = replace(frame("CALL"), column=5)
    assert place_of(frame("CALL")) == (FILE, 7, 7, 4, 30)
    assert kind_of(trace, elsewhere) == "native"
    assert kind_of(trace, frame("LOAD_ATTR")) == "interpreter"
    assert kind_of(trace, replace(frame("CALL"), own=False)) == "native"


def test_waiting_is_taken_off_first():
    trace = make_trace([gap("(a → b)", Phase.OWN, 1.0)])
    seen = Seen(wall_ns=100, gc_ns=10, wait_ns=20, io_ns=5, starved_ns=15)
    sample = Sample(1, (frame("CALL"),), 1, 100, 100, seen=seen)
    kinds = Kinds(trace, trace.thread)
    assert kinds.divide(sample) == {"gc": 10, "wait": 20, "io": 5, "starved": 15, "native": 50}
    shares = kinds.shares((sample,))
    assert list(shares) == ["native", "wait", "starved", "gc", "io"]
    assert sum(shares.values()) == pytest.approx(1.0)
    assert {*shares} <= {*KIND_NAMES}
    assert kinds.shares(()) == {}
