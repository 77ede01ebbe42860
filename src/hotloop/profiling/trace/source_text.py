"""The user's source as it was when the run was recorded, and what an expression in it calls."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from hotloop.profiling.trace.model import Frame

_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@dataclass(frozen=True)
class SourceText:
    """One file. Secrets are replaced by `*`, byte by byte, so positions are those of the original."""

    file: str
    digest: str
    """SHA-256 of the original text, in hexadecimal."""
    lines: tuple[str, ...]

    def edited_since(self) -> bool:
        """Return whether the file at its path has other content now. A file that cannot be read has not."""
        try:
            return digest_of(Path(self.file).read_text(encoding="utf-8")) != self.digest
        except (OSError, ValueError):
            return False

    def line(self, number: int) -> str:
        """Return a line, without the white space around it; "" if there is none."""
        return self.lines[number - 1].strip() if 0 < number <= len(self.lines) else ""

    def expression(self, frame: Frame) -> str:
        """Return the expression that a frame was at; "" if its columns are not known."""
        node = self._node_at(frame)
        return " ".join(ast.unparse(node).split()) if node is not None else ""

    def callee(self, frame: Frame) -> str | None:
        """Return what the expression that a frame was at calls: "numpy.stack" for `np.stack(...)`. None for no call.

        A name that was imported is written as it is called in its own module; other names stay as they are.
        """
        node = self._node_at(frame)
        if isinstance(node, ast.Await):
            node = node.value
        if not isinstance(node, ast.Call):
            return None
        return self.name_of(node.func)

    def name_of(self, function: ast.expr) -> str:
        """Return the full name of what an expression stands for: "numpy.stack" for `np.stack`."""
        parts: list[str] = []
        while isinstance(function, ast.Attribute):
            parts.append(function.attr)
            function = function.value
        if isinstance(function, ast.Name):
            parts.append(self._imported.get(function.id, function.id))
        elif parts:
            parts.append("…")
        return ".".join(reversed(parts))

    def _node_at(self, frame: Frame) -> ast.expr | None:
        return self._nodes.get((frame.line, frame.column, frame.end_line, frame.end_column))

    @cached_property
    def tree(self) -> ast.AST | None:
        """The syntax tree; None if the text does not parse."""
        try:
            return ast.parse("\n".join(self.lines))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None

    @cached_property
    def loops(self) -> tuple[tuple[int, int, int, int], ...]:
        """First and last line of each loop and comprehension, and of the innermost function around it; outer first."""
        found: list[tuple[int, int, int, int]] = []
        pending: list[tuple[ast.AST, int, int]] = [(self.tree, 1, len(self.lines))] if self.tree is not None else []
        while pending:
            node, first, last = pending.pop()
            if isinstance(node, _FUNCTIONS):
                decorators = getattr(node, "decorator_list", [])
                first, last = min(each.lineno for each in (node, *decorators)), node.end_lineno or node.lineno
            if isinstance(node, _LOOPS):
                found.append((node.lineno, node.end_lineno or node.lineno, first, last))
            pending += [(child, first, last) for child in ast.iter_child_nodes(node)]
        return tuple(sorted(found, key=lambda loop: (loop[0], -loop[1])))

    @cached_property
    def _nodes(self) -> Mapping[tuple[int, int, int | None, int | None], ast.expr]:
        """The expressions by their positions; of those with the same position the outermost."""
        found: dict[tuple[int, int, int | None, int | None], ast.expr] = {}
        for node in self._walk():
            if isinstance(node, ast.expr):
                found.setdefault((node.lineno, node.col_offset, node.end_lineno, node.end_col_offset), node)
        return found

    @cached_property
    def _imported(self) -> Mapping[str, str]:
        """What each imported name stands for."""
        found: dict[str, str] = {}
        for node in self._walk():
            if isinstance(node, ast.Import):
                for each in node.names:
                    found[each.asname or each.name.split(".")[0]] = (
                        each.name if each.asname else each.name.split(".")[0]
                    )
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
        return found

    def _walk(self) -> Iterator[ast.AST]:
        return ast.walk(self.tree) if self.tree is not None else iter(())


def digest_of(text: str) -> str:
    """Return the digest by which a file is known to have changed."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def module_of(file: str) -> str:
    """Return the module that a library's file is: "torch.optim.adam" for ".../site-packages/torch/optim/adam.py"."""
    path = file.replace("\\", "/")
    for root in ("/site-packages/", "/dist-packages/"):
        _, found, rest = path.rpartition(root)
        if found:
            path = rest
            break
    else:
        parts = path.split("/")
        starts = [i for i, part in enumerate(parts) if part.startswith("python3")]
        path = "/".join(parts[starts[-1] + 1 :] if starts else parts[-1:])
    return (
        path.removesuffix(".py").removesuffix("/__init__").replace("/", ".").removeprefix("<frozen ").removesuffix(">")
    )
