"""Spans and counters, the only interface between profiling and training. A span does nothing without a recorder."""

from hotloop.phases import Phase
from hotloop.spans.registry import count, span

__all__ = ["Phase", "count", "span"]
