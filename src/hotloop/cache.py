"""The cache folder, for data that can be recreated: machine measurements, puzzle banks."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return hotloop's cache folder. As XDG specifies, an empty or relative XDG_CACHE_HOME is ignored."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(given) if os.path.isabs(given) else Path.home() / ".cache") / "hotloop"
