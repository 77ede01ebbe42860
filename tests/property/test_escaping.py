"""Any text can be escaped: nothing unprintable is written, nothing is lost, every format stays valid."""

from __future__ import annotations

import csv
import io
import json
import re
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hotloop.escaping import csv_cell, json_text, markup, printable, printable_lines

HOSTILE = [
    "\x1b[31mred", "\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "\x1b]52;c;aGk=\x07", "a\rb", "a\nb", "a\tb",
    "\x7f", "\x9b31m", "\u202eabc\u202c", "\u2066x\u2069", "\u200ex", "\u2028", "\ud800", "\udcff", "\ufffe",
    "\U000e0041", "\x00", "\\x1b", "\\\x1b", "\\\\x1b", "\\u202e\u202e", "=1+1", "'=1", "\t=1", "\r=1", "<&>\"'",
    "[red]x[/red]", "$x^$",
]  # fmt: skip
TEXT = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(st.characters(codec=None, exclude_categories=())),
    st.text(st.sampled_from("\\xuU0123456789abcdef\x1b\u202e\U000e0041")),
)
ESCAPE = re.compile(r"(\\+)(x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})")


def original(shown: str) -> str:
    """Undo `printable`: an odd number of backslashes escapes a character, an even number is doubled backslashes."""

    def undo(match: re.Match[str]) -> str:
        n = len(match[1])
        return "\\" * (n // 2) + (chr(int(match[2][1:], 16)) if n % 2 else match[2])

    return ESCAPE.sub(undo, shown)


HALF = re.compile("[\ud800-\udfff]")


def all_text(content: dict) -> str:
    """All strings in an object, unchanged."""
    return "".join(f"{name}{''.join(value) if isinstance(value, list) else value}" for name, value in content.items())


def is_safe(text: str) -> bool:
    return all(char.isprintable() or char in "\u200c\u200d" for char in text)


@given(TEXT)
@example("\\" * 3 + "x1b\x1b")
def test_printable_text_is_safe_and_reversible(text):
    shown = printable(text)
    assert is_safe(shown)
    assert original(shown) == text


@pytest.mark.parametrize("text", ["env.step", "é 漢字 🏎️ 👩‍🚀", r"C:\new\train.py", r'print("a\n")', "[red]", "$x$"])
def test_ordinary_text_is_unchanged(text):
    assert printable(text) == markup(text).replace("&quot;", '"') == text


@given(TEXT)
def test_lines_keep_only_their_line_breaks(text):
    shown = printable_lines(text)
    assert shown.count("\n") == text.count("\n")
    assert is_safe(shown.replace("\n", ""))


@given(TEXT)
def test_a_cell_is_not_a_formula_and_is_reversible(text):
    cell = csv_cell(text)
    assert not cell.lstrip("\n").startswith(("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠"))
    file = io.StringIO()
    csv.writer(file).writerow([cell, -3.5])
    assert next(csv.reader(io.StringIO(file.getvalue()))) == [cell, "-3.5"]
    plain = cell[1:] if re.match(r"'+\n*[=+\-@＝＋－＠]", cell) else cell
    assert original(plain) == text


@given(TEXT)
def test_escaped_text_is_valid_xml_content_and_attribute(text):
    found = ElementTree.fromstring(f'<a b="{markup(text)}">{markup(text)}</a>')
    assert found.text == found.get("b") == printable(text) or not text


@given(st.dictionaries(TEXT, st.one_of(TEXT, st.lists(TEXT), st.integers())), st.booleans())
def test_json_is_strict_and_drops_only_lone_surrogates(content, compact):
    text = json_text(content, compact=compact)
    assert is_safe(text.replace("\n", "")) and (not compact or "\n" not in text)
    found = json.loads(text)
    # No lone surrogate is left, neither literally nor as an escape.
    assert not HALF.search(all_text(found))
    if not HALF.search(all_text(content)):
        assert found == content


def test_numbers_json_cannot_represent_become_null():
    assert json.loads(json_text({"NaN": [float("nan"), -float("inf"), 1.5]})) == {"NaN": [None, None, 1.5]}
