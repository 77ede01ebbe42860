"""Hot lines and functions: whose time, of what kind, and in which call."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.traces import gap, make_trace, seen

from hotloop.phases import Phase
from hotloop.profiling.trace.hot_lines import hot_functions, hot_lines
from hotloop.profiling.trace.model import Frame, Sample, Seen, Trace
from hotloop.profiling.trace.observed import Observed
from hotloop.profiling.trace.reading.json_schemas import ObservedPlace, ObservedRecord
from hotloop.profiling.trace.source_text import SourceText, digest_of, module_of
from hotloop.profiling.trace.time_kinds import Kinds

SOURCE = """\
import numpy as np
from random import sample as pick
import torch.nn.functional as F

def batch(memory):
    rows = pick(memory, 32)
    return np.stack([row.obs for row in rows])

def train(net, memory):
    loss = F.mse_loss(net(batch(memory)), 0).sum()
    return loss if 3 in memory else None
"""
FILE = "/home/me/train.py"


def source(text: str = SOURCE) -> SourceText:
    return SourceText(FILE, digest_of(text), tuple(text.split("\n")))


def frame(line: int, part: str, function: str, operation: str = "CALL", first_line: int = 1) -> Frame:
    """The frame of an expression in SOURCE."""
    text = SOURCE.split("\n")[line - 1]
    column = text.index(part)
    return Frame(
        function, FILE, line, text.strip(), True, line, column, column + len(part), operation, first_line=first_line
    )


LIBRARY = Frame("stack", "/x/lib/python3.11/site-packages/numpy/core/shape_base.py", 400, "", False, operation="CALL")
PICK = frame(6, "pick(memory, 32)", "batch", first_line=5)
STACK = frame(7, "np.stack([row.obs for row in rows])", "batch", first_line=5)
CALL = frame(10, "batch(memory)", "train", first_line=9)
IN = frame(11, "3 in memory", "train", "CONTAINS_OP", first_line=9)


def trace_of(*samples: tuple[list[Frame], float]) -> Trace:
    trace = make_trace([gap("(a → b)", Phase.OWN, sum(s for _, s in samples))], [seen("(a → b)", *s) for s in samples])
    return replace(trace, sources={FILE: source()})


@pytest.fixture
def trace() -> Trace:
    return trace_of(([PICK, CALL], 5.0), ([LIBRARY, STACK, CALL], 3.0), ([IN], 2.0))


def test_time_counts_for_the_innermost_line_of_the_user(trace):
    found = [(line.line, round(line.share, 3), line.function) for line in hot_lines(trace)]
    assert found == [(6, 0.5, "batch"), (7, 0.3, "batch"), (11, 0.2, "train")]


def test_calls_have_the_name_of_what_they_call(trace):
    assert [line.callee for line in hot_lines(trace)] == ["random.sample", "numpy.core.shape_base.stack", None]
    assert [line.expression for line in hot_lines(trace)] == [
        "pick(memory, 32)",
        "np.stack([row.obs for row in rows])",
        "3 in memory",
    ]


def test_functions_have_their_own_time_and_that_of_those_they_call(trace):
    found = [(each.function, each.line, each.share, each.self_share) for each in hot_functions(trace)]
    assert found == [("batch", 5, pytest.approx(0.8), pytest.approx(0.8)), ("train", 9, 1.0, pytest.approx(0.2))]


def test_recursion_counts_once():
    inner = frame(10, "batch(memory)", "train", first_line=9)
    (only,) = hot_functions(trace_of(([inner, inner, inner], 1.0)))
    assert (only.share, only.self_share) == (1.0, 1.0)


def test_the_kind_of_time_is_its_largest_part():
    plain = frame(11, "3 in memory", "train", "LOAD_FAST")
    trace = trace_of(([plain], 1.0))
    for times, kind in [
        (Seen(100, 100), "interpreter"),
        (Seen(100, 100, gc_ns=70), "gc"),
        (Seen(100, 10, wait_ns=80), "wait"),
        (Seen(100, 10, io_ns=60, wait_ns=30), "io"),
        (Seen(100, 30, starved_ns=70), "starved"),
    ]:
        samples = tuple(replace(each, seen=times) for each in trace.thread.samples)
        thread = replace(trace.thread, samples=samples)
        assert hot_lines(trace, thread)[0].kind == kind
        assert sum(Kinds(trace, thread).shares(samples).values()) == pytest.approx(1.0)


def test_a_search_is_a_native_call_and_a_loop_is_not():
    lines = hot_lines(trace_of(([IN], 1.0), ([frame(11, "loss", "train", "LOAD_FAST")], 0.5)))
    assert [line.kind for line in lines] == ["native"]
    assert hot_lines(trace_of(([frame(11, "loss", "train", "LOAD_FAST")], 1.0)))[0].kind == "interpreter"


def test_a_library_line_is_listed_where_no_line_of_the_user_is_around_it():
    (line,) = hot_lines(trace_of(([LIBRARY], 1.0)))
    assert (line.own, line.file) == (False, LIBRARY.file)


def test_without_source_the_text_of_the_line_is_kept(trace):
    line = hot_lines(replace(trace, sources={}))[0]
    assert (line.source, line.callee, line.expression) == ("rows = pick(memory, 32)", None, "")


def test_source_that_does_not_parse_gives_no_expression():
    broken = SourceText(FILE, "", ("def f(:", "  pick(memory)"))
    assert broken.expression(PICK) == "" and broken.callee(PICK) is None
    assert broken.line(2) == "pick(memory)" and broken.line(9) == ""


def test_an_edited_file_is_noticed(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SOURCE)
    kept = SourceText(str(path), digest_of(SOURCE), tuple(SOURCE.split("\n")))
    assert not kept.edited_since()
    path.write_text(SOURCE + "# changed\n")
    assert kept.edited_since()
    path.unlink()
    assert not kept.edited_since()


@pytest.mark.parametrize(
    ("file", "module"),
    [
        ("/x/lib/python3.11/site-packages/torch/optim/adam.py", "torch.optim.adam"),
        ("/x/lib/python3.11/site-packages/gymnasium/__init__.py", "gymnasium"),
        ("/usr/lib/python3.11/random.py", "random"),
        ("/usr/lib/python3/dist-packages/yaml/loader.py", "yaml.loader"),
        ("<frozen importlib._bootstrap>", "importlib._bootstrap"),
    ],
)
def test_a_library_file_is_named_as_a_module(file, module):
    assert module_of(file) == module


def test_operands_and_the_callee_are_those_that_were_observed(trace):
    columns, operands = (STACK.column, STACK.end_column), ("list of 32 × array uint8 [9]",)
    place = ObservedPlace(3, FILE, "batch", 5, 7, 7, *columns, "CALL", "numpy.stack", operands)
    observed = Observed(ObservedRecord((place,)))
    lines = {line.line: line for line in hot_lines(replace(trace, observed=observed))}
    assert (lines[7].callee, lines[7].operands) == ("numpy.stack", operands)
    assert (lines[6].callee, lines[6].operands) == ("random.sample", ())


def test_nothing_sampled_is_no_lines():
    empty = make_trace([gap("(a → b)", Phase.OWN, 1.0)])
    assert hot_lines(empty) == [] and hot_functions(empty) == [] and Kinds(empty, empty.thread).shares(()) == {}
    assert Sample(0, (), 1, 5, 5).seen_ns == 5


def test_a_sample_without_a_stack_has_a_kind():
    """Regression: explain failed on samples whose stack was not kept."""
    empty = make_trace([gap("(a → b)", Phase.OWN, 1.0)])
    assert Kinds(empty, empty.thread).shares((Sample(0, (), 1, 5, 5),)) == {"interpreter": 1.0}
