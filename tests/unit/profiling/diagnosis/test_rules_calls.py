"""Expensive calls are known by what is called and with what, not by the words of a line."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.traces import gap, make_trace, place, seen

from hotloop.phases import Phase
from hotloop.profiling.diagnosis import Finding, explain
from hotloop.profiling.diagnosis.catalogue import CATALOGUE, Needs
from hotloop.profiling.diagnosis.rules.calls.expensive_calls import fits
from hotloop.profiling.trace.model import Frame
from hotloop.profiling.trace.observed import Observed
from hotloop.profiling.trace.operands import parse
from hotloop.profiling.trace.reading.json_schemas import ObservedPlace, ObservedRecord, ObservedWindow

FILE = "/me/train.py"


def explained(callee: str, operands: tuple[str, ...], operation: str = "CALL", passes: int = 50) -> list[Finding]:
    """The findings where one expression of the user's takes half of the time."""
    frame = Frame("main", FILE, 7, "zzz(a, b)", True, 7, 4, 20, operation, first_line=1)
    where = ObservedPlace(0, FILE, "main", 1, 7, 7, 4, 20, operation, callee, operands)
    window = ObservedWindow({"env_steps": 10, "updates": 10}, ("0 1 0",) * passes)
    nodes = [place("Env.step", Phase.ENV, 2.0, 100), gap("(Env.step → Env.step)", Phase.OWN, 2.0)]
    trace = make_trace(nodes, [seen(nodes[1].name, [frame], 2.0)], {"env_steps": 100, "updates": 100})
    return explain(replace(trace, observed=Observed(ObservedRecord((where,), (window,)))))


@pytest.mark.parametrize(
    ("callee", "operands", "operation", "title"),
    [
        ("", ("tuple of 2 × int", "list of 300 × tuple of 2 × int"), "CONTAINS_OP", "searched element by element"),
        ("list.index", ("list of 300 × int", "int"), "CALL", "searched element by element"),
        ("list.pop", ("list of 5000 × mixed", "int"), "CALL", "front of a long list"),
        ("", ("deque of 9000 × mixed", "int"), "BINARY_SUBSCR", "long deque"),
        ("numpy.append", ("array float64 [5000]", "float"), "CALL", "grows by a copy"),
        ("torch.tensor", ("list of 32 × array float32 [4, 84, 84]",), "CALL", "made from a list of arrays"),
        ("copy.deepcopy", ("__main__.Board",), "CALL", "copied deeply"),
        ("time.sleep", ("float",), "CALL", "sleeps"),
    ],
)
def test_known_calls_are_causes(callee, operands, operation, title):
    first = explained(callee, operands, operation)[0]
    assert (first.rule, first.kind, first.line) == ("expensive_calls", "cause", 7)
    assert title in first.title and 1.0 < first.gain_low <= first.gain <= first.gain_high


@pytest.mark.parametrize(
    ("callee", "operands", "operation"),
    [
        ("", ("int", "set of 300 × int"), "CONTAINS_OP"),
        ("", ("int", "list of 3 × int"), "CONTAINS_OP"),
        ("list.pop", ("list of 5000 × mixed",), "CALL"),
        ("", ("list of 9000 × mixed", "int"), "BINARY_SUBSCR"),
        ("torch.tensor", ("list of 2 × float",), "CALL"),
        ("mine.sleep", ("float",), "CALL"),
        ("numpy.linalg.solve", ("array float64 [200, 200]", "array float64 [200]"), "CALL"),
    ],
)
def test_others_are_hotspots(callee, operands, operation):
    found = explained(callee, operands, operation)
    assert [each.kind for each in found if each.line == 7] == ["hotspot"]
    assert "expensive_calls" not in {each.rule for each in found}


def test_what_may_be_needed_is_told_as_a_hotspot_with_its_mechanism():
    found = explained("numpy.clip", ("array float64 [2]", "int", "int"), passes=1000)
    (told,) = (each for each in found if each.line == 7)
    assert (told.kind, told.gain_low) == ("hotspot", 1.0)
    assert "a few numbers at a time" in told.title


def test_calls_that_are_rare_are_not_many():
    assert all("few numbers" not in each.title for each in explained("numpy.clip", ("array float64 [2]",), passes=20))


def test_needs():
    batch, number = parse("list of 32 × array uint8 [84, 84]"), parse("int")
    assert fits(Needs(0, container=("list",), length=32, form="array", elements=32 * 84 * 84), (batch, number))
    assert not fits(Needs(0, length=33), (batch,))
    assert not fits(Needs(1, form="tensor"), (batch, number))
    assert not fits(Needs(2), (batch, number))
    assert fits(Needs(most=0), (batch, number))
    assert fits(Needs(1, text=("in", "float")), (batch, number))


def test_each_entry_can_be_recognised_and_says_what_to_do():
    for entry in CATALOGUE:
        assert entry.calls or entry.operations or entry.through, entry.title
        assert entry.title.endswith(".") and entry.advice.rstrip("`").strip(), entry.title
        middle, low, high = entry.remains
        assert 0 <= low <= middle <= high <= 1, entry.title
