"""What each part of a training loop takes by the script's own clock: the truth that profilers are held against.

`with clock.part("act"):` times what stands in it. Where the parts are is read from the script's own text, so that it
stays right when the script is edited.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter


class Part:
    """A part of the loop and the seconds it has taken."""

    def __init__(self, function: str | None, own: bool) -> None:
        self.function, self.own = function, own
        self.seconds = self.began = 0.0

    def __enter__(self) -> None:
        self.began = perf_counter()

    def __exit__(self, *error: object) -> None:
        self.seconds += perf_counter() - self.began


class Clock:
    """Times a loop and its parts."""

    def __init__(self, file: str) -> None:
        self.file = Path(file)
        self.parts: dict[str, Part] = {}
        self.done, self.seconds = 0, 0.0

    def part(self, name: str, function: str | None = None, own: bool = True) -> Part:
        """Return the part that a `with` statement times.

        Args:
            name: Its name.
            function: The function that is the part; without one, the lines of the statement are.
            own: Whether it is plain own code, which is in no phase of training.
        """
        if name not in self.parts:
            self.parts[name] = Part(function, own)
        return self.parts[name]

    def steps(self, seconds: float) -> Iterator[int]:
        """Count the iterations of the loop until its time is over."""
        begin = perf_counter()
        while (passed := perf_counter() - begin) < seconds:
            yield self.done
            self.done += 1
        self.seconds += passed

    def report(self) -> None:
        """Print the truth as one line of JSON."""
        tree = ast.parse(self.file.read_text(encoding="utf-8"))
        places = dict(_statements(tree)) | {f"def {name}": lines for name, lines in _functions(tree, "")}
        parts = {}
        for name, part in self.parts.items():
            lines = places[f"def {part.function}" if part.function else name]
            place = {"lines": lines} | ({"function": part.function} if part.function else {})
            parts[name] = {"share": part.seconds / self.seconds, "own": part.own, **place}
        truth = {"parts": parts, "loop": _loop(tree), "steps": self.done, "seconds": self.seconds}
        print(json.dumps(truth), flush=True)


def _loop(tree: ast.AST) -> list[int]:
    """Return the lines of `for ... in clock.steps(...)`."""
    for node in ast.walk(tree):
        match node:
            case ast.For(iter=ast.Call(func=ast.Attribute(attr="steps"))):
                return [node.lineno, node.end_lineno or 0]
    raise LookupError("no loop over clock.steps: time one")


def _statements(tree: ast.AST) -> Iterator[tuple[str, list[int]]]:
    """Yield the lines in each `with clock.part("name")`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.With):
            match node.items[0].context_expr:
                case ast.Call(func=ast.Attribute(attr="part"), args=[ast.Constant(value=str(name))]):
                    yield name, [node.body[0].lineno, node.body[-1].end_lineno or 0]


def _functions(tree: ast.AST, prefix: str) -> Iterator[tuple[str, list[int]]]:
    """Yield the lines of each function, by the name that a code object has."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            name = f"{prefix}{node.name}"
            if isinstance(node, ast.FunctionDef):
                yield name, [node.lineno, node.end_lineno or 0]
                name += ".<locals>"
            yield from _functions(node, f"{name}.")
        else:
            yield from _functions(node, prefix)
