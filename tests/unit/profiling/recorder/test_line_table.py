"""Positions read from a line table are those that Python itself gives."""

from __future__ import annotations

import json.decoder
import random
from types import CodeType

import pytest

from hotloop.profiling.recorder.line_table import Position, positions

LONG = """
def f(a,
      b):
    return [x for x in (a
        + b, %s
    )]
""" % ("'" + "y" * 300 + "', " * 3)


def codes_in(code: CodeType):
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from codes_in(each)


def expected(code: CodeType) -> list[Position | None]:
    found: list[Position | None] = []
    for line, end_line, column, end_column in code.co_positions():
        values = (-1 if each is None else each for each in (end_line, column, end_column))
        found.append(None if line is None else Position(line, *values))
    return found


@pytest.mark.parametrize("module", [json.decoder, random, pytest])
def test_positions_of_real_modules(module):
    with open(module.__file__, encoding="utf-8") as file:
        whole = compile(file.read(), module.__file__, "exec")
    for code in codes_in(whole):
        assert positions(code.co_linetable, code.co_firstlineno) == expected(code)


def test_long_lines_and_expressions_over_several_lines():
    for code in codes_in(compile(LONG, "long.py", "exec")):
        assert positions(code.co_linetable, code.co_firstlineno) == expected(code)
