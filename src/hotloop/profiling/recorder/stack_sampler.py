"""Numbers for the stacks that the sampler sees: which line each thread executes, a hundred times a second.

Stacks and frames get a number when they are first seen; after that, a sample is four integers. A stack is identified by
a key, a hash of the code and instruction of each frame, which C computes in a microsecond (`hot_path.watch`).
"""

from __future__ import annotations

import os
import sysconfig
from types import CodeType

import hotloop
from hotloop.json_types import Json
from hotloop.profiling.recorder.privacy.source import redacted_source_line
from hotloop.spans.hot_path import Place

MAX_STACKS = 20_000
MAX_KEYS = 500
_PACKAGE = os.path.join(os.path.dirname(os.path.abspath(hotloop.__file__)), "")
TRAINING = os.path.join(_PACKAGE, "training", "")
"""hotloop's own training code. In stacks without code of the user, it counts as the user's."""
STARTERS = os.path.join(_PACKAGE, "cli", ""), os.path.join(_PACKAGE, "profiling", "recorder", "script.py")
"""These frames, and all that called them, start hotloop and are left out of stacks."""
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
    return not path.startswith((_PACKAGE, *_LIBRARIES))


class StackBook:
    """Numbers for frames and stacks, and the entries of `names.jsonl` that are not written yet."""

    def __init__(self) -> None:
        self._frames: dict[tuple[int, int], int] = {}
        self._stacks: dict[tuple[int, ...], int] = {}
        self.by_key: dict[int, int] = {}
        self._own: dict[str, bool] = {}
        # Code objects are identified by id, because hashing one would hash its constants. They are kept alive, so that
        # no other object gets the same id.
        self._kept: list[CodeType] = []
        self.fresh: list[dict[str, Json]] = []

    def name_stack(self, places: list[Place], key: int) -> int:
        """Return the number of a stack whose key is not in `by_key` yet."""
        if len(self.by_key) >= MAX_KEYS:
            self.by_key.clear()
        number = self.by_key[key] = self._number_stack(places)
        return number

    def _number_stack(self, places: list[Place]) -> int:
        """Number a stack not seen before. The recorder's own frames are left out."""
        frames: list[int] = []
        known = self._frames
        # The frames of the command that started hotloop are not part of the training.
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
            {
                "is": "frame",
                "id": number,
                "function": code.co_qualname,
                "file": file,
                "line": line,
                "text": redacted_source_line(file, line).strip()[:200] if own else "",
                "own": own,
            }
        )
        return number
