"""Where hotloop keeps what it can make again: what this machine can do, puzzle banks."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return hotloop's own folder in the user's cache.

    As the XDG specification has it, an XDG_CACHE_HOME that is empty or relative counts as not given.
    """
    given = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(given) if os.path.isabs(given) else Path.home() / ".cache") / "hotloop"
