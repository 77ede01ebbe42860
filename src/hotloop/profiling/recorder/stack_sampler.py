"""The stack sampler: what line each thread is at, a hundred times a second, and whether it computes or waits.

Stacks and lines are numbered when first seen; after that a sighting is four integers. A stack is known by its
key, the code and instruction of each of its frames, which C reads in a microsecond (`ticks.watch`).
"""

from __future__ import annotations

import os
import sysconfig
from types import CodeType
from typing import Any

import hotloop
from hotloop.profiling.recorder.privacy.source import redacted_source_line
from hotloop.spans.hot_path import Place

MAX_STACKS = 20_000
MAX_KEYS = 500
_PACKAGE = os.path.join(os.path.dirname(os.path.abspath(hotloop.__file__)), "")
TRAINING = os.path.join(_PACKAGE, "training", "")
"""hotloop's own code that trains, not that which records. Where nobody else's is at work, it is what is looked at."""
STARTERS = os.path.join(_PACKAGE, "cli", ""), os.path.join(_PACKAGE, "profiling", "recorder", "script.py")
"""What is outside of these is how hotloop was started."""
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
        self._frames: dict[tuple[int, int], int] = {}
        self._stacks: dict[tuple[int, ...], int] = {}
        self.by_key: dict[int, int] = {}
        self._own: dict[str, bool] = {}
        # Code objects are known by their address, because hashing one hashes all that it holds; kept alive,
        # so that the address is not given to another.
        self._kept: list[CodeType] = []
        self.fresh: list[dict[str, Any]] = []

    def name_stack(self, places: list[Place], key: int) -> int:
        """Return the number of a stack whose key is not in `by_key` yet, given where its frames are."""
        if len(self.by_key) >= MAX_KEYS:
            self.by_key.clear()
        number = self.by_key[key] = self._number_stack(places)
        return number

    def _number_stack(self, places: list[Place]) -> int:
        """Number a stack not seen before. The recorder's own frames are left out."""
        frames: list[int] = []
        known = self._frames
        # The command, and the file that the system starts it by, are how hotloop was begun, and nobody's training.
        starter = next((i for i, each in enumerate(places) if each[0].co_filename.startswith(STARTERS)), len(places))
        places = places[:starter]
        ours = not any(self._is_own(code.co_filename) for code, _, _ in places)
        for code, instruction, line in places:
            key = (id(code), instruction)
            found = known.get(key)
            if found is None:
                found = self._number_frame(key, code, line, ours)
            if found >= 0:
                frames.append(found)
        stack = tuple(frames)
        number = self._stacks.get(stack)
        if number is None:
            if len(self._stacks) >= MAX_STACKS:
                return -1
            number = self._stacks[stack] = len(self._stacks)
            self.fresh.append({"is": "stack", "id": number, "frames": stack})
        return number

    def _is_own(self, file: str) -> bool:
        if file not in self._own:
            self._own[file] = is_own(file)
        return self._own[file]

    def _number_frame(self, key: tuple[int, int], code: CodeType, line: int | None, ours: bool) -> int:
        file = code.co_filename
        self._kept.append(code)
        if file.startswith(_PACKAGE) and not file.startswith(TRAINING):
            self._frames[key] = -1
            return -1
        own = self._is_own(file) or (ours and file.startswith(TRAINING))
        line = line if line and line > 0 else code.co_firstlineno
        number = self._frames[key] = len(self._kept)
        self.fresh.append(
            {"is": "frame", "id": number, "function": code.co_qualname, "file": file, "line": line,
             "text": redacted_source_line(file, line).strip()[:200] if own else "", "own": own}
        )  # fmt: skip
        return number
