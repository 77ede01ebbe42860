"""The stack sampler: what line each thread is at, a hundred times a second, and whether it computes or waits.

Stacks and lines are numbered when first seen; after that a sighting is four integers. A thread whose CPU clock
has not moved since the last look is where it was, so that idle threads cost nothing.
"""

from __future__ import annotations

import linecache
import os
import sysconfig
from types import CodeType, FrameType
from typing import Any

import hotloop

MAX_DEPTH = 60
MAX_STACKS = 20_000
_PACKAGE = os.path.join(os.path.dirname(os.path.abspath(hotloop.__file__)), "")
_LIBRARIES = tuple(
    os.path.join(os.path.abspath(path), "")
    for path in {sysconfig.get_path(key) for key in ("stdlib", "platstdlib", "purelib", "platlib")}
)


def is_own(file: str) -> bool:
    """Say whether a file is the user's own code rather than Python's or a library's."""
    if file.startswith("<"):
        return False
    path = os.path.abspath(file)
    if "site-packages" in path or "dist-packages" in path:
        return False
    return not path.startswith((_PACKAGE, *_LIBRARIES))


class StackBook:
    """Numbers for frames and stacks, and the names still to be written down."""

    def __init__(self) -> None:
        self._frames: dict[tuple[CodeType, int], int] = {}
        self._stacks: dict[tuple[int, ...], int] = {}
        self._skip: dict[CodeType, bool] = {}
        self._own: dict[str, bool] = {}
        self.fresh: list[dict[str, Any]] = []

    def number(self, frame: FrameType | None) -> int:
        """Return the number of a stack, given its innermost frame. hotloop's own frames are left out."""
        frames: list[int] = []
        known, skip = self._frames, self._skip
        while frame is not None and len(frames) < MAX_DEPTH:
            code = frame.f_code
            if code not in skip:
                skip[code] = code.co_filename.startswith(_PACKAGE)
            if not skip[code]:
                key = (code, frame.f_lasti)
                found = known.get(key)
                frames.append(self._number_frame(key, frame) if found is None else found)
            frame = frame.f_back
        stack = tuple(frames)
        found = self._stacks.get(stack)
        if found is None:
            if len(self._stacks) >= MAX_STACKS:
                return -1
            found = self._stacks[stack] = len(self._stacks)
            self.fresh.append({"is": "stack", "id": found, "frames": stack})
        return found

    def _number_frame(self, key: tuple[CodeType, int], frame: FrameType) -> int:
        code, line = key[0], frame.f_lineno or key[0].co_firstlineno
        file = code.co_filename
        if file not in self._own:
            self._own[file] = is_own(file)
        number = self._frames[key] = len(self._frames)
        self.fresh.append(
            {"is": "frame", "id": number, "function": code.co_qualname, "file": file, "line": line,
             "text": linecache.getline(file, line).strip()[:200], "own": self._own[file]}
        )  # fmt: skip
        return number
