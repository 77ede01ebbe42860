"""What a script sets for numpy before it imports it, which the recorder has imported long before.

`os.environ["OMP_NUM_THREADS"] = "1"` at the top of a script works because it comes before `import numpy`. Under the
recorder it would come too late, so it is read from the script and set before.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator

VARIABLES = frozenset(
    {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS",
     "VECLIB_MAXIMUM_THREADS", "NUMEXPR_NUM_THREADS"}
)  # fmt: skip


def set_threads_of(path: str) -> None:
    """Set what a script sets of these variables by plain statements at its top level."""
    try:
        with open(path, "rb") as file:
            statements = ast.parse(file.read()).body
    except (OSError, SyntaxError, ValueError):
        return  # whoever runs the script tells
    for name, value, only_if_missing in _settings(statements):
        if name in VARIABLES and not (only_if_missing and name in os.environ):
            os.environ[name] = value


def _settings(statements: list[ast.stmt]) -> Iterator[tuple[str, str, bool]]:
    """Yield names and values that are assigned to the environment, and whether only where there is none."""
    for each in statements:
        match each:
            case ast.Assign([ast.Subscript(place, ast.Constant(str(name)))], ast.Constant(str(value))):
                if _is_environment(place):
                    yield name, value, False
            case ast.Expr(ast.Call(ast.Attribute(place, "setdefault"), arguments)):
                match arguments:
                    case [ast.Constant(str(name)), ast.Constant(str(value))] if _is_environment(place):
                        yield name, value, True


def _is_environment(place: ast.expr) -> bool:
    return ast.unparse(place) in ("os.environ", "environ")
