"""Reads untrusted JSON files as plain data that is safe to use.

The result has bounded nesting, finite numbers that fit 64 bits, and text that UTF-8 can encode: other bytes of a path
are escaped.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import NoReturn

from hotloop.json_types import Json
from hotloop.profiling.trace.reading import limits
from hotloop.profiling.trace.reading.open_files import Budget, Malformed, read_bytes

LARGEST_INT = 1 << 63


def read_json(path: Path, budget: Budget | None = None, limit: int = limits.JSON_BYTES) -> dict[str, Json] | None:
    """Read a file that holds one JSON object; None if there is no such file.

    Raises:
        Malformed: The file holds something else.
    """
    data = read_bytes(path, limit)
    if data is None:
        return None
    if budget is not None:
        budget.take(len(data))
    return parse_object(data)


def parse_object(data: bytes) -> dict[str, Json]:
    """Return the JSON object in a text, checked.

    Raises:
        Malformed: It is no such object, or has numbers or nesting beyond the limits.
    """
    try:
        content = json.loads(data.decode("utf-8"), parse_constant=_refuse_constant)
    except RecursionError:
        raise Malformed("its JSON is nested too deep") from None
    except ValueError as error:  # includes UnicodeDecodeError and numbers with too many digits
        problem = str(error).partition("\n")[0][:200]
        raise Malformed(f"it is not valid JSON ({problem})") from error
    if not isinstance(content, dict):
        raise Malformed(f"it holds {type(content).__name__}, not a JSON object")
    return _checked_object(content, 0)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _checked_object(content: dict[str, Json], depth: int) -> dict[str, Json]:
    return {encodable(name): _checked(each, depth + 1) for name, each in content.items()}


def _checked(value: Json, depth: int) -> Json:
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict | list) and depth >= limits.JSON_DEPTH:
        raise Malformed("its JSON is nested too deep")
    if isinstance(value, dict):
        return _checked_object(value, depth)
    if isinstance(value, list):
        return [_checked(each, depth + 1) for each in value]
    if isinstance(value, int) and not -LARGEST_INT <= value < LARGEST_INT:
        raise Malformed("it holds a number of more than 64 bits")
    if isinstance(value, float) and not math.isfinite(value):
        raise Malformed("it holds a number that is not finite")
    return value


def encodable(text: str) -> str:
    """Return a text with escapes in place of what UTF-8 cannot encode; cut if it is long."""
    if len(text) > limits.TEXT:
        text = text[: limits.TEXT - 1] + "…"
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")
