"""How often the user's lines and functions are called: counted in short windows, together with steps and updates.

Tracing every call of a run would cost too much. A window of some milliseconds every few seconds shows how many calls
there are for each environment step, which does not depend on how fast the machine is.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

from hotloop.counters import COUNTERS
from hotloop.json_types import Json
from hotloop.profiling.recorder.privacy.redact_text import redacted_strings
from hotloop.profiling.trace.stream_store import write_json
from hotloop.spans import hot_path, registry

WINDOW_NS = 10_000_000
EARLY_EVERY_NS, EARLY_NS = 1_000_000_000, 10_000_000_000
"""At first a window each second, because a short recording has few."""
COST = 0.3
"""How much slower a loop is at most inside of a window, beyond what is measured: assumed from call-heavy loops."""
BUDGET_PART = 0.2
"""Part of the recording budget that windows may take."""
MOST_ROWS = 2_000


class CallCounts:
    """Opens windows and sums up what was counted in them."""

    def __init__(self, budget: float, is_own: Callable[[str], bool]) -> None:
        self._counter = _native_counter()
        self._every_ns = max(round(COST * WINDOW_NS / (BUDGET_PART * budget)), EARLY_EVERY_NS)
        self._is_own = is_own
        self._due_ns = self._since_ns = 0
        self._lines: Counter[tuple[str, int, str]] = Counter()
        """Calls by file, line and callee."""
        self._functions: Counter[tuple[str, str, int]] = Counter()
        """Calls by file, qualified name and first line of the function that is called."""
        self._counts: Counter[str] = Counter()
        self.windows = 0

    def due(self, at_ns: int) -> bool:
        """Return whether it is time for a window."""
        return self._counter is not None and self._due_ns <= at_ns

    def count(
        self, ident: int, at_ns: int, counted: Callable[[], Mapping[int, int]], wait: Callable[[int], None]
    ) -> None:
        """Count the calls of a thread for some milliseconds, and the steps and updates in that time.

        `counted` returns all amounts that were counted so far by code of the counter; `wait` waits until a moment.
        """
        before = counted()
        if self.open(ident, at_ns):
            wait(at_ns + WINDOW_NS)
            after = counted()
            codes = {name: code for name, code in registry.known_counters().items() if name in COUNTERS}
            self.close({name: after.get(code, 0) - before.get(code, 0) for name, code in codes.items()})

    def open(self, ident: int, at_ns: int) -> bool:
        """Begin to count the calls of a thread; return False if the script profiles itself."""
        self._since_ns = self._since_ns or at_ns
        early = at_ns - self._since_ns < EARLY_NS
        self._due_ns = at_ns + (EARLY_EVERY_NS if early else self._every_ns)
        return self._counter is not None and self._counter.start(ident)

    def close(self, counted: Mapping[str, int]) -> None:
        """End the window, in which this much was counted, by name of the counter."""
        assert self._counter is not None
        for file, _, _, line, callee, callee_file, callee_line, calls in self._counter.stop():
            if self._is_own(file):
                self._lines[file, line, callee] += calls
            if callee_file and self._is_own(callee_file):
                self._functions[callee_file, callee, callee_line] += calls
        self._counts.update(counted)
        self.windows += 1

    def write(self, path: Path) -> None:
        """Replace the file of counts, once there are any."""
        if not self.windows:
            return
        lines = [(*key, calls) for key, calls in self._lines.most_common(MOST_ROWS)]
        functions = [(*key, calls) for key, calls in self._functions.most_common(MOST_ROWS)]
        content: dict[str, Json] = {
            "windows": self.windows,
            "counts": dict(self._counts),
            "lines": [dict(zip(("file", "line", "callee", "calls"), row, strict=True)) for row in lines],
            "functions": [dict(zip(("file", "function", "line", "calls"), row, strict=True)) for row in functions],
        }
        write_json(path, redacted_strings(content), indent=None)


def _native_counter() -> ModuleType | None:
    if not hot_path.ACCELERATED:
        return None
    try:
        counter = importlib.import_module("hotloop.profiling.recorder._call_counter")
    except ImportError:
        return None
    return counter if counter.SUPPORTED else None
