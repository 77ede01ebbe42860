"""Places and rows of followed windows are read; damaged ones are left out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotloop.profiling.trace.observed import Observed, Row, operands_of, position_of
from hotloop.profiling.trace.reading.json_schemas import ObservedPlace, ObservedRecord, ObservedWindow

STACK = ObservedPlace(
    0, "/a/train.py", "learn", 3, 4, 4, 8, 20, "CALL", "numpy.stack", ("list of 2 × array float32 [3]", "int")
)
OTHER = replace(STACK, id=7, callee="numpy.concatenate")
ADD = replace(STACK, id=2, line=5, operation="BINARY_OP", callee="", operands=("int", "int"))


def observed(*rows: str, more: tuple[str, ...] = ()) -> Observed:
    return Observed(ObservedRecord((STACK, OTHER, ADD), (ObservedWindow({}, rows), ObservedWindow({}, more))))


def test_rows_are_read():
    first, second = observed("0 5 2 1 2 3", "2 5 2 3 3 4", more=("7 6 0",)).windows
    assert first == (Row(STACK, 5, (1, 2), (3,)), Row(ADD, 5, (3, 3), (4,)))
    assert second == (Row(OTHER, 6, (), ()),)


@pytest.mark.parametrize(
    "row", ["", "0", "0 5", "0 5 x", "1 5 0", "0 5 -1 3", "0 5 1.0 2", "9" * 5000 + " 0 0", "\x00"]
)
def test_damaged_rows_are_left_out(row):
    assert observed(row, "2 1 0").windows[0] == (Row(ADD, 1, (), ()),)


@given(st.lists(st.one_of(st.text(max_size=20), st.lists(st.integers()).map(lambda row: " ".join(map(str, row))))))
def test_no_row_fails(rows):
    seen = observed(*rows)
    assert sum(seen.passes.values()) == len(seen.windows[0])


def test_the_place_that_was_passed_most_often_stands_for_an_instruction():
    position = ("/a/train.py", 4, 4, 8, 20)
    assert position_of(STACK) == position
    assert observed("0 1 0", "7 1 0", "7 1 0").at(position, "CALL") == OTHER
    assert observed("0 1 0", "0 1 0", more=("7 1 0",)).at(position, "CALL") == STACK
    assert observed().at(position, "BINARY_OP") is None
    assert Observed().at(position, "CALL") is None
    assert observed("0 1 0", more=("0 1 0", "2 1 0")).passes == {0: 2, 2: 1}


def test_operands_of_a_place():
    array, number = operands_of(STACK)
    assert (array.length, array.shape, number.form) == (2, (3,), "")
    assert operands_of(None) == ()
