"""How a `Trace` shows itself in a notebook.

What a report looks like is known above the trace, and the trace must not import it. So the package that joins them
leaves a function here, and a trace asks for it when it is to be shown.
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
    """Let traces be shown as the HTML that a function makes of them."""
    _display.as_html = as_html


def html_of(trace: Any) -> str | None:
    """Return a trace as HTML; None, which notebooks take as "show the text", where nobody knows how."""
    return _display.as_html(trace) if _display.as_html else None
