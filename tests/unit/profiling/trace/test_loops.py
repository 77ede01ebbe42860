"""The loops around a line, and the function that a frame belongs to."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.traces import frame

from hotloop.profiling.trace.loops import function_name, loops_around
from hotloop.profiling.trace.source_text import SourceText

TEXT = """\
def f(rows):
    for row in rows:
        while row:
            row = g([x + 1 for x in row])
    def inner(x):
        return x
    return rows

for i in range(3):
    f(i)
"""
SOURCE = SourceText("train.py", "", tuple(TEXT.split("\n")))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("f", "f"),
        ("f.<locals>.inner", "f.<locals>.inner"),
        ("f.<locals>.<listcomp>", "f"),
        ("A.f.<locals>.<listcomp>.<genexpr>", "A.f"),
        ("<genexpr>", "<module>"),
        ("<module>", "<module>"),
    ],
)
def test_a_comprehension_belongs_to_the_function_around_it(name, expected):
    assert function_name(frame(name)) == expected


def around(function: str, line: int, first_line: int = 1) -> list[tuple[int, int]]:
    found = loops_around(SOURCE, replace(frame(function, line=line), first_line=first_line))
    return [(first, last) for _, first, last in found]


def test_loops_are_those_of_the_function_outermost_first():
    assert around("f", 4) == [(2, 4), (3, 4), (4, 4)]
    assert around("f", 7) == []
    assert around("f.<locals>.inner", 6, 5) == []
    assert around("<module>", 10) == [(9, 10)]
    assert loops_around(None, frame("f")) == ()


def test_source_that_does_not_parse_has_no_loops():
    assert loops_around(SourceText("train.py", "", ("for x in:",)), frame("f")) == ()
