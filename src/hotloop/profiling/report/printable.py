"""Escapes all text in a report that came from the user's program, once, before a writer lays it out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any

from hotloop.escaping import printable, printable_lines
from hotloop.profiling.report.view import Report


def printable_report(report: Report) -> Report:
    """Return a report that is safe to print. Advice keeps its line breaks, because it contains code."""
    shown: Report = _printable(report)
    advice = [printable_lines(finding.advice) for finding in report.findings]
    findings = [replace(each, advice=text) for each, text in zip(shown.findings, advice, strict=True)]
    return replace(shown, findings=tuple(findings))


def _printable(value: Any) -> Any:
    if isinstance(value, Enum):
        return value
    if isinstance(value, str):
        return printable(value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{each.name: _printable(getattr(value, each.name)) for each in fields(value)})
    if isinstance(value, Mapping):
        return {_printable(name): _printable(each) for name, each in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(map(_printable, value))
    return value
