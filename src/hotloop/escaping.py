r"""Text that came from a user's program, made safe for where it is written: a terminal, JSON, CSV, XML.

A span name may hold a terminal escape sequence, a bidirectional override, half a surrogate pair or a spreadsheet
formula. Characters that cannot be seen are written as `\x1b`, `\u202e` or `\U000e0001`, and a backslash before
something that looks like such an escape is doubled: what a reader sees is exactly one text.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

JOINERS = "\u200c\u200d"
"""Not printable alone, but emoji and Persian are spelt with them, and they hide nothing."""
LOOKS_ESCAPED = r"x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}"
FORMULA = re.compile(r"'*\n*[=+\-@\uff1d\uff0b\uff0d\uff20]")
"""How a cell begins that a spreadsheet computes (in full width, too), or one that was quoted for that."""


def printable(text: str) -> str:
    """Return a text as one line that only shows itself: for terminals, log lines and plain files."""
    if text.isprintable() and "\\" not in text:
        return text
    return _pattern("".join(_unprintable(text))).sub(_escape_match, text)


def printable_lines(text: str) -> str:
    """Return `printable` text whose line breaks stay, for texts that hotloop itself lays out in lines."""
    return "\n".join(map(printable, text.split("\n")))


def csv_cell(text: str) -> str:
    """Return text that no spreadsheet takes for a formula: such a cell begins with `'`. Line breaks stay, quoted."""
    shown = printable_lines(text)
    return f"'{shown}" if FORMULA.match(shown) else shown


def markup(text: str) -> str:
    """Return `printable` text for the content or a quoted attribute of XML, SVG or HTML."""
    return html.escape(printable(text))


def json_text(content: Any, *, compact: bool = False, default: Callable[[Any], Any] | None = None) -> str:
    """Return JSON that any parser accepts and any terminal may show.

    A number that JSON does not have (NaN, infinity) is null, half of a surrogate pair the text of its escape.

    Args:
        content: What to write.
        compact: Without line breaks and spaces; else indented.
        default: Turns what JSON does not have into what it has.
    """
    shape: dict[str, Any] = {"separators": (",", ":")} if compact else {"indent": 2}
    try:
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, default=default, **shape)
    except ValueError:
        finite = json.loads(json.dumps(content, default=default), parse_constant=lambda _: None)
        text = json.dumps(finite, ensure_ascii=False, allow_nan=False, **shape)
    # Outside of strings there are only ASCII characters, and line breaks of the layout.
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
        # Strict parsers reject the whole document for half of a pair, also where it is escaped.
        return "\\" + _escape(char)
    return json.dumps(char)[1:-1]
