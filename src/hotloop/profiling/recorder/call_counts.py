"""How often the user's lines and functions are called: counted in short windows, together with steps and updates.

Tracing every call of a run would cost too much. A window of some milliseconds every few seconds shows how many calls
there are for each environment step, which does not depend on how fast the machine is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from hotloop.counters import COUNTERS
from hotloop.json_types import Json
from hotloop.profiling.recorder.messages import Message
from hotloop.profiling.recorder.privacy.redact_text import redacted_strings
from hotloop.profiling.trace.stream_store import write_json

WINDOW_NS = 10_000_000
"""Length of a window, as in `windows.h`."""
EARLY_EVERY_NS, EARLY_NS = 1_000_000_000, 4_000_000_000
"""At first a window each second, because a short recording has few."""
UNKNOWN_LOOP_NS = 3_000_000_000
COST = 1.0
"""How much slower a loop is inside of a window, at most: assumed from call-heavy loops."""
BUDGET_PART = 0.1
"""Part of the recording budget that windows may take."""
MOST_ROWS = 2_000


class CallCounts:
    """Decides when windows are opened, and sums up what was counted in them."""

    def __init__(self, budget: float, is_own: Callable[[str], bool]) -> None:
        self._every_ns = max(round(COST * WINDOW_NS / (BUDGET_PART * budget)), EARLY_EVERY_NS)
        self._is_own = is_own
        self._due_ns = self._since_ns = 0
        self._lines: Counter[tuple[str, int, str]] = Counter()
        """Calls by file, line and callee."""
        self._functions: Counter[tuple[str, str, int]] = Counter()
        """Calls by file, qualified name and first line of the function that is called."""
        self._counts: Counter[str] = Counter()
        self.windows = 0

    def due(self, at_ns: int, loop_started: bool = True) -> bool:
        """Return whether to open a window now. Without a known loop, the first comes when set-up is probably over."""
        if not self._due_ns and not loop_started:
            self._due_ns = at_ns + UNKNOWN_LOOP_NS
        if at_ns < self._due_ns and not (loop_started and not self._since_ns):
            return False
        self._since_ns = self._since_ns or at_ns
        early = at_ns - self._since_ns < EARLY_NS
        self._due_ns = at_ns + (EARLY_EVERY_NS if early else self._every_ns)
        return True

    def add(self, window: Message, counters: Mapping[str, int]) -> None:
        """Add a window: its rows, and what the counters grew by in it, by code."""
        for file, _, _, line, callee, callee_file, callee_line, calls in window["rows"]:
            if self._is_own(file):
                self._lines[file, int(line), callee] += int(calls)
            if callee_file and self._is_own(callee_file):
                self._functions[callee_file, callee, int(callee_line)] += int(calls)
        amounts = {name: window["counts"].get(str(code), 0) for name, code in counters.items() if name in COUNTERS}
        self._counts.update(amounts)
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
