"""How a `Trace` is displayed in a notebook.

Reports import traces, so a trace cannot import the report that displays it. Instead, `hotloop/__init__.py` registers
the function that renders a trace as HTML.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class _Display:
    as_html: Callable[[Any], str] | None = None


_display = _Display()


def show_with(as_html: Callable[[Any], str]) -> None:
    """Register the function that renders a trace as HTML."""
    _display.as_html = as_html


def html_of(trace: Any) -> str | None:
    """Return a trace as HTML. None if no function is registered: notebooks then show its `repr`."""
    return _display.as_html(trace) if _display.as_html else None
