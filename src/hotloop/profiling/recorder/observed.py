"""What was seen when the main thread was followed through its own code, in short windows (`_observer.c`).

Each place of the code that ran is described once: what it calls, and the types and shapes of what it works on. The rows
of a window say which objects went through which places, by numbers that are the same for the same object: so the flow
of data can be found. There are no values in them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from pathlib import Path

from hotloop.counters import COUNTERS
from hotloop.json_types import Json
from hotloop.profiling.recorder.messages import Message
from hotloop.profiling.recorder.privacy.redact_text import redacted_strings
from hotloop.profiling.recorder.stack_book import operation_names
from hotloop.profiling.trace.stream_store import write_json

HEAD = 4
"""Integers before the objects of a row: place, frame, number of operands, number of results."""
MOST_NUMBERS = 500_000
FIRST, LAST = 5, 5
"""Windows that are kept: these from the start and these from the end."""


class Observed:
    """The places and the windows."""

    def __init__(self) -> None:
        self._places: list[dict[str, Json]] = []
        self._windows: list[dict[str, Json]] = []
        self._written = -1
        self._numbers: dict[int, int] = {0: 0}
        """Of objects, by identity; 0 stands for none. Those that live on have the same number in all windows."""
        self.seen = 0
        """Windows so far."""

    def add(self, message: Message, counters: dict[str, int]) -> None:
        """Add a place, or a window and what the counters grew by in it, by code."""
        if message["is"] == "place":
            self._add_place(message)
        else:
            self._add_window(message, counters)

    def _add_place(self, message: Message) -> None:
        operation = operation_names()[message["operation"]] if message["operation"] else "FUNCTION"
        line, end_line, column, end_column = message["at"]
        self._places.append(
            {
                "id": message["id"],
                "file": message["file"],
                "function": message["function"],
                "first_line": message["first_line"],
                "line": line,
                "end_line": end_line,
                "column": column,
                "end_column": end_column,
                "operation": operation,
                "callee": message["callee"],
                "operands": message["operands"],
            }
        )

    def _add_window(self, message: Message, counters: dict[str, int]) -> None:
        rows: list[Json] = [*self._rows(message["rows"])]
        if not rows:
            return
        counts = {name: message["counts"].get(str(code), 0) for name, code in counters.items() if name in COUNTERS}
        self._windows.append({"counts": counts, "rows": rows})
        if len(self._windows) > FIRST + LAST:
            del self._windows[FIRST]
        self.seen += 1

    def write(self, path: Path) -> None:
        """Replace the file, if there is anything new."""
        if self.seen == self._written or not self.seen:
            return
        self._written = self.seen
        places = redacted_strings({"places": [*self._places]})
        write_json(path, {**places, "windows": [*self._windows]}, indent=None)

    def _rows(self, packed: bytes) -> Iterator[str]:
        """Yield rows as text: place, frame, number of operands, operands, results."""
        if len(self._numbers) > MOST_NUMBERS:
            self._numbers = {0: 0}
        values, at = array("q", packed), 0
        while at + HEAD <= len(values):
            place, frame, operands, results = values[at : at + HEAD]
            end = at + HEAD + operands + results
            if end > len(values):
                return
            objects = [self._numbers.setdefault(each, len(self._numbers)) for each in values[at + HEAD : end]]
            yield " ".join(map(str, [place, frame, operands, *objects]))
            at = end
