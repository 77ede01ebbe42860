"""The default directory of a run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path


def default_path(command: Sequence[str]) -> Path:
    """Return `runs/<time>-<name of the script>`, numbered if that exists."""
    name = Path(command[0] if command else "run").stem or "run"
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    path = Path("runs") / f"{stamp}-{name}"
    number = 1
    while os.path.lexists(path):
        number += 1
        path = Path("runs") / f"{stamp}-{name}-{number}"
    return path
