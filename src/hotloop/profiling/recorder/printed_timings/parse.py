"""Find timings in a line that a script prints: `├─ conv1: 0.05 ms`, `update took 0.045 s`, `Total SAC update = 45 ms`.

Pure text. Rates ("1.2 s/it"), clock times ("00:03") and numbers without a unit are no timings.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

UNITS_NS = {"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0}
_NUMBER = r"(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?(?:e[-+]?\d+)?)"
_UNIT = r"(?P<unit>ms(?:ecs?)?|milliseconds?|s(?:ecs?|econds?)?|us(?:ecs?)?|[µμ]s|microseconds?|ns)"
HINT = re.compile(r"\d[ \t]{0,3}(?:[mnuµμ]s|s(?:ec|\b)|milli|micro)")
"""Every timing matches this: a text without a match need not be parsed."""
TIMING = re.compile(
    rf"(?<![\w.,])(?<!\b\d\d:)[~≈<]?\s?(?P<number>{_NUMBER})(?:\s?(?:±|\+/-|\+-)\s?{_NUMBER})?"
    rf"[ \t]{{0,3}}{_UNIT}(?![\w%^-]|\s*/|\s+per\b)"
)
_PREFIX = re.compile(r"[\s│|├└┌┐┬─╰╭╚╠═║`+\\*>•·-]*")
_SEPARATOR = re.compile(r"[,;|()\[\]{}]|\s{2,}|\t|\s[-–→]\s|[:=]\s*[-+]?\d[\d.e+-]*%?\s+")
"""Ends what precedes a name: a separator, or another value ("loss: 0.3 sample: 20 ms")."""
_CLOCK = re.compile(r"\d\s?(?:h|m|min|hrs?)$")
_NUMBERS = re.compile(r"(?<![\w.])(?:\d{2,}|\d+\.\d+)(?![\w.])")
_VERB = re.compile(r"\s+(?:took|takes|in|is|was)$")
_AFTER = re.compile(r"\s*[:–-]?\s*([A-Za-z][^,;|()\[\]:=]*)")
LONGEST_NAME = 60


@dataclass(frozen=True, slots=True)
class Timing:
    """A name and the time that was printed beside it."""

    name: str
    unit: str
    """A key of `UNITS_NS`."""
    ns: float
    rounding_ns: float
    """Largest rounding error: half of the last digit."""


@dataclass(frozen=True, slots=True)
class Line:
    """A printed line."""

    depth: int
    """Columns before its first word: indentation, tree characters, bullets."""
    timings: tuple[Timing, ...]
    text: str
    """Its words: a line without a timing may be the heading of lines below it."""


def read_line(line: str) -> Line:
    """Find the timings of a line; those without a name are left out."""
    prefix = _PREFIX.match(line)
    depth = prefix.end() if prefix else 0
    body = line[depth:]
    found: list[Timing] = []
    at = 0
    matches = list(TIMING.finditer(body))
    for match in matches:
        name = _name(body[at : match.start()])
        if not name and len(matches) == 1:
            after = _AFTER.match(body, match.end())
            name = _clean(after.group(1)) if after else ""
        at = match.end()
        if name:
            unit = _unit(match["unit"])
            number = match["number"].replace(",", "")
            found.append(Timing(name, unit, float(number) * UNITS_NS[unit], _rounding(number) * UNITS_NS[unit]))
    return Line(depth, tuple(found), _clean(body.strip(" \t\r:=-*#")))


def _rounding(number: str) -> float:
    """Return half of the last digit: 0.005 for "0.04", 0.5 for "45"."""
    digits, _, exponent = number.partition("e")
    return 0.5 * 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))


def _unit(written: str) -> str:
    if written.startswith(("ms", "milli")):
        return "ms"
    if written.startswith(("us", "µ", "μ", "micro")):
        return "us"
    return "ns" if written == "ns" else "s"


def _name(head: str) -> str:
    """Return the name in front of a number, "" if there is none."""
    tight = re.search(r"([\w./-]+)=$", head)
    if tight:
        return _clean(tight.group(1))
    head = head.rstrip(" \t:=~≈<>.…-–→")
    if _CLOCK.search(head):
        return ""
    return _clean(_SEPARATOR.split(head)[-1])


def _clean(name: str) -> str:
    """Drop verbs, and the numbers that change from line to line: "episode 12 took" is "episode #"."""
    name = _NUMBERS.sub("#", _VERB.sub("", name.strip(" \t:=.…'\"")))
    return name[-LONGEST_NAME:] if any(letter.isalpha() for letter in name) else ""
