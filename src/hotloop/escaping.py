r"""Escapes text from a user's program for a terminal, JSON, CSV or XML.

A span name may contain a terminal escape sequence, a bidirectional override, half a surrogate pair or a spreadsheet
formula. Invisible characters are written as `\x1b`, `\u202e` or `\U000e0001`. A backslash before something that looks
like such an escape is doubled, so the escaping is unambiguous.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from functools import lru_cache

from hotloop.json_types import Json

JOINERS = "\u200c\u200d"
"""Not printable by themselves, but harmless, and needed in emoji and Persian text."""
LOOKS_ESCAPED = r"x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}"
FORMULA = re.compile(r"'*\n*[=+\-@\uff1d\uff0b\uff0d\uff20]")
"""Start of a cell that a spreadsheet evaluates (full-width characters included), or of one already quoted for that."""


def printable(text: str) -> str:
    """Return a text as one line without control characters, for terminals, log lines and plain files."""
    if text.isprintable() and "\\" not in text:
        return text
    return _pattern("".join(_unprintable(text))).sub(_escape_match, text)


def printable_lines(text: str) -> str:
    """Return `printable` text that keeps its line breaks, for text that hotloop itself breaks into lines."""
    return "\n".join(map(printable, text.split("\n")))


def csv_cell(text: str) -> str:
    """Return text for a CSV cell. Text that a spreadsheet would evaluate gets the prefix `'`. Line breaks are kept."""
    shown = printable_lines(text)
    return f"'{shown}" if FORMULA.match(shown) else shown


def markup(text: str) -> str:
    """Return `printable` text for the content or a quoted attribute of XML, SVG or HTML."""
    return html.escape(printable(text))


def json_text(content: Json, *, compact: bool = False, default: Callable[..., Json] | None = None) -> str:
    """Return JSON that every parser accepts and that is safe to print in a terminal.

    NaN and infinity become null. Half of a surrogate pair becomes the text of its escape.

    Args:
        content: The data.
        compact: Omit line breaks and spaces; otherwise indent.
        default: Converts objects that JSON cannot represent.
    """
    indent, separators = (None, (",", ":")) if compact else (2, None)
    encoder = json.JSONEncoder(
        ensure_ascii=False, allow_nan=False, default=default, indent=indent, separators=separators
    )
    try:
        text = encoder.encode(content)
    except ValueError:
        finite = json.loads(json.dumps(content, default=default), parse_constant=lambda _: None)
        text = encoder.encode(finite)
    # Outside strings, JSON has only ASCII characters and line breaks.
    return text.translate({ord(char): _json_escape(char) for char in _unprintable(text) if char != "\n"})


def _unprintable(text: str) -> list[str]:
    return sorted(char for char in set(text) if not char.isprintable() and char not in JOINERS)


@lru_cache(maxsize=256)
def _pattern(unprintable: str) -> re.Pattern[str]:
    characters = rf"(\\*)([{re.escape(unprintable)}])|" if unprintable else ""
    return re.compile(rf"{characters}(?P<backslashes>\\+)(?={LOOKS_ESCAPED})")


def _escape_match(match: re.Match[str]) -> str:
    if match["backslashes"]:
        return match["backslashes"] * 2
    return match[1] * 2 + _escape(match[2])


def _escape(char: str) -> str:
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _json_escape(char: str) -> str:
    if 0xD800 <= ord(char) < 0xE000:
        # Strict parsers reject half of a surrogate pair even if it is escaped.
        return "\\" + _escape(char)
    return json.dumps(char)[1:-1]
