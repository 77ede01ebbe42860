"""What a recorded process sends its recorder as JSON, besides events and samples."""

from __future__ import annotations

from typing import Any

from hotloop.spans.registry import Span

Message = dict[str, Any]


def span_message(each: Span) -> Message:
    """Return the message that gives a span its name."""
    return {"is": "span", "code": each.code, "name": each.name, "phase": each.phase, "hook": each.hook}


def counter_message(name: str, code: int) -> Message:
    """Return the message that gives a counter its name."""
    return {"is": "counter", "code": code, "name": name}
