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


def settings_of(path: str) -> dict[str, str]:
    """Return what a script sets of these variables by plain statements at its top level."""
    if not os.path.isfile(path):
        return {}  # A pipe can be read only once.
    try:
        with open(path, "rb") as file:
            statements = ast.parse(file.read()).body
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return {}  # Python will report it.
    found: dict[str, str] = {}
    for name, value, only_if_missing in _settings(statements):
        if name in VARIABLES and not (only_if_missing and name in (found.keys() | os.environ.keys())):
            found[name] = value
    return found


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
