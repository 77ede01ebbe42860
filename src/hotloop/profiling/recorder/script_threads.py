"""Thread settings that a script makes before it imports numpy.

`os.environ["OMP_NUM_THREADS"] = "1"` at the top of a script works because it comes before `import numpy`. The recorder
imports numpy first, so it would come too late: the setting is read from the script and applied earlier.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator

VARIABLES = frozenset(
    f"{library}_THREADS"
    for library in ("OMP_NUM", "OPENBLAS_NUM", "GOTO_NUM", "MKL_NUM", "BLIS_NUM", "VECLIB_MAXIMUM", "NUMEXPR_NUM")
)


def settings_of(path: str) -> dict[str, str]:
    """Return the values of these variables that a script sets in plain statements at its top level."""
    if not os.path.isfile(path):
        return {}  # Do not read a pipe: that is possible only once.
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
    """Yield (name, value, only if not set yet) for each assignment to the environment."""
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
