"""Keys, tokens and passwords are not written down."""

from __future__ import annotations

import re

SECRET_NAME = re.compile(r"(?i)(key|token|secret|passw(or)?d|pwd|credential|auth)")
ASSIGNED = re.compile(
    r"(?i)(?P<name>\b\w*(?:key|token|secret|passw(?:or)?d|pwd|credential|auth)\w*[\"']?\]?(?:\s*:\s*[\w.]+)?\s*[=:]\s*)"
    r"(?P<quote>[\"']).+?(?P=quote)"
)
SECRET_VALUE = re.compile(
    r"(?x) ( (?:sk|pk|ghp|gho|hf|xox[abp]|glpat|AKIA)[-_]?[A-Za-z0-9_\-]{12,}"
    r" | [A-Fa-f0-9]{32,} | eyJ[\w\-]{10,}\.[\w\-.]+ )"
)
IN_URL = re.compile(r"(?P<scheme>\w+://[^/\s:@]+):[^/\s@]+@")
HIDDEN = "***"


def redacted_command(words: list[str]) -> list[str]:
    """Return a command line with what looks secret replaced by ***."""
    shown: list[str] = []
    hide_next = False
    for word in words:
        name, equals, _ = word.partition("=")
        if hide_next and not word.startswith("-"):
            shown.append(HIDDEN)
        elif equals and SECRET_NAME.search(name):
            shown.append(f"{name}={HIDDEN}")
        else:
            shown.append(redacted_text(word))
        hide_next = word.startswith("-") and not equals and bool(SECRET_NAME.search(word))
    return shown


def redacted(values: dict[str, object]) -> dict[str, object]:
    """Return configuration or environment values with what looks secret replaced by ***."""
    return {name: HIDDEN if SECRET_NAME.search(str(name)) else _redacted_value(value) for name, value in values.items()}


def _redacted_value(value: object) -> object:
    if isinstance(value, dict):
        return redacted(value)
    if isinstance(value, list | tuple):
        return [_redacted_value(each) for each in value]
    return redacted_text(value) if isinstance(value, str) else value


def redacted_line(text: str) -> str:
    """Return a line of code with what looks secret replaced by ***."""
    return redacted_text(ASSIGNED.sub(rf"\g<name>\g<quote>{HIDDEN}\g<quote>", text))


def redacted_text(text: str) -> str:
    """Return a text with keys and the passwords of addresses replaced by ***."""
    return SECRET_VALUE.sub(HIDDEN, IN_URL.sub(rf"\g<scheme>:{HIDDEN}@", text))
