"""hotloop: see, explain, prove and remove what makes reinforcement-learning training slow."""

from __future__ import annotations

from hotloop.spans import Phase, count, span

__all__ = ["Phase", "count", "span"]
