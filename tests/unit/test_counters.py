"""Hooks, summaries and rules use only the counters that `hotloop.counters` defines."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import hotloop
from hotloop import counters

SOURCE = Path(hotloop.__file__).parent
DEFINED = {*counters.LOOP, *counters.HOOKS, *counters.PROCESS}
CALLS = {"count", "tally", "counter_code", "counted", "window_amounts", "rate_over_time", "count_over_time"}
"""Functions with a counter's name among their arguments."""


def strings(node: ast.AST) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield each.value


def used(tree: ast.AST) -> Iterator[str]:
    """Yield names in `count("name")`, `map(counter_code, ("name", ...))` and `x.counts.get("name")`."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        function, first = node.func, node.args[0]
        name = getattr(function, "attr", getattr(function, "id", ""))
        if name == "map" and getattr(first, "id", "") == "counter_code":
            yield from (each for argument in node.args[1:] for each in strings(argument))
        of_counts = isinstance(function, ast.Attribute) and getattr(function.value, "attr", "") == "counts"
        if (name in CALLS or (name == "get" and of_counts)) and isinstance(first, ast.Constant):
            yield from strings(first)


def test_every_counter_used_is_defined():
    found = {
        name: path.relative_to(SOURCE)
        for part in ("profiling", "integrations", "training/run")
        for path in (SOURCE / part).rglob("*.py")
        for name in used(ast.parse(path.read_text()))
    }
    assert len(found) > 15, "the search still finds the calls"
    assert {name: str(path) for name, path in found.items() if name not in DEFINED} == {}


def test_every_counter_defined_is_used():
    paths = [path for part in ("profiling", "training/run") for path in (SOURCE / part).rglob("*.py")]
    literals = {each for path in paths for each in strings(ast.parse(path.read_text()))}
    assert {name for name in DEFINED if name not in literals} == set()
