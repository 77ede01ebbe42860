"""Spans: the one thing that profiling and training share. A span is a no-op until a recorder listens."""

from hotloop.phases import Phase
from hotloop.spans.registry import count, span

__all__ = ["Phase", "count", "span"]
