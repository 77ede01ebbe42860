"""Tells the user's own files from those of Python, of libraries and of hotloop."""

from __future__ import annotations

import os
import sysconfig

import hotloop

PACKAGE = os.path.join(os.path.dirname(os.path.abspath(hotloop.__file__)), "")
TRAINING = os.path.join(PACKAGE, "training", "")
"""hotloop's own training code. In a run without code of the user, it counts as the user's."""
STARTERS = os.path.join(PACKAGE, "cli", ""), os.path.join(PACKAGE, "profiling", "recorder", "script.py")
"""Frames outside of these belong to the start of hotloop."""
_LIBRARIES = tuple(
    os.path.join(os.path.abspath(path), "")
    for path in {sysconfig.get_path(key) for key in ("stdlib", "platstdlib", "purelib", "platlib")}
)


def is_own(file: str) -> bool:
    """Check whether a file is the user's own code rather than Python's or a library's."""
    if file.startswith("<"):
        return False
    path = os.path.abspath(file)
    if "site-packages" in path or "dist-packages" in path:
        return False
    return not path.startswith((PACKAGE, *_LIBRARIES))
