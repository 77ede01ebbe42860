"""Writes accounts to files: names, windows, totals and state, in the tables of `trace.stream_store`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np

from hotloop.clock import wall_ns
from hotloop.json_types import Json
from hotloop.profiling.recorder.call_counts import CallCounts
from hotloop.profiling.recorder.call_tree.fold import Folded, Ints
from hotloop.profiling.recorder.call_tree.thread_totals import SAMPLE_SUMS, Account
from hotloop.profiling.recorder.feed import NamedSpan
from hotloop.profiling.recorder.node_names import node_entries
from hotloop.profiling.recorder.observed import Observed
from hotloop.profiling.recorder.printed_timings.collect import Book
from hotloop.profiling.recorder.privacy.redact_text import redacted_strings
from hotloop.profiling.recorder.record_options import RecordOptions
from hotloop.profiling.recorder.source_files import write_sources
from hotloop.profiling.trace.stream_store import Columns, ProcessFiles, write_json

Write = Callable[[str, Columns], None]
WINDOWED = ("windows", "spans", "counters", "samples", "memory")


class Writer:
    """Writes one process's files."""

    def __init__(self, files: ProcessFiles) -> None:
        self.files = files
        self.printed_timings = Book()
        self.append: Write = files.append
        self._spans_named = 0
        self._counters_named = 0
        self._has_tails = False
        self._raw: list[tuple[int, Ints, Ints, Ints]] = []
        self.raw_waiting = 0

    def tail(self, table: str, columns: Columns) -> None:
        """Replace the rows of the window that is not complete yet."""
        self.files.replace(f"{table}.tail.arrow", table, columns)
        self._has_tails = True

    def drop_tails(self) -> None:
        """Remove the rows that `tail` wrote, when the window is complete."""
        for table in WINDOWED if self._has_tails else ():
            self.files.drop(f"{table}.tail.arrow")
        self._has_tails = False

    def names(
        self,
        accounts: list[Account],
        main: Account,
        spans: list[NamedSpan],
        counters: dict[str, int],
        fresh: list[dict[str, Json]],
    ) -> None:
        """Write new names. Call this before writing rows that refer to them."""
        self.files.create()
        entries: list[dict[str, Json]] = [{"is": "span"} | asdict(each) for each in spans[self._spans_named :]]
        new_counters = list(counters.items())[self._counters_named :]
        entries += [{"is": "counter", "code": code, "name": name} for name, code in new_counters]
        self._spans_named, self._counters_named = len(spans), len(counters)
        for account in accounts:
            if not account.named:
                thread = {"is": "thread", "id": account.index, "ident": account.ident, "name": account.name}
                entries.append(thread | {"main": account is main})
            entries += node_entries(account, spans)
            account.named = len(account.tree.keys)
        # The text of a frame is a line of code, which has already been redacted in a way that preserves its columns.
        self.files.add_names([redacted_strings(each, keep=frozenset({"text"})) for each in entries + fresh])

    def keeps_raw(self, window: int, options: RecordOptions) -> bool:
        """Return whether to keep the single calls of a window: those of the first windows and of some later ones."""
        chosen = window < options.raw_windows + 1 or (window & (window - 1)) == 0
        return chosen and self.files.size_of("raw") < options.raw_bytes

    def keep_raw(self, thread: int, done: Folded) -> None:
        """Keep the single calls of a fold until `raw()` writes them."""
        self._raw.append((thread, done.done_node, done.done_start, done.done_end))
        self.raw_waiting += len(done.done_node)

    def raw(self) -> None:
        """Append the kept single calls to the file. Call `names` first."""
        for index, node, start, end in self._raw:
            thread = np.full(len(node), index)
            self.files.append("raw", {"thread": thread, "node": node, "start_ns": start, "end_ns": end})
        self.drop_raw()

    def drop_raw(self) -> None:
        """Discard the kept single calls."""
        self._raw.clear()
        self.raw_waiting = 0

    def close(self, own_files: list[str]) -> None:
        """Complete the files, and store these source files of the user."""
        self.files.close()
        if self.files.created:
            write_sources(self.files.folder / "sources.json", own_files)

    def totals(
        self, accounts: list[Account], calls: CallCounts | None = None, observed: Observed | None = None
    ) -> None:
        """Replace the totals of all nodes, what was seen in windows, and the timings that the script printed."""
        if calls is not None:
            calls.write(self.files.folder / "calls.json")
        if observed is not None:
            observed.write(self.files.folder / "observed.json")
        rows = [row for account in accounts for row in account.totals_rows()]
        timings = self.printed_timings.content()
        if timings is not None:
            write_cleared(self.files.folder / "claims.json", timings)
        if rows:
            self.files.replace("totals.arrow", "totals", {name: [row[name] for row in rows] for name in rows[0]})

    def state(self, content: dict[str, Json]) -> None:
        """Replace the state file of this process."""
        write_cleared(self.files.folder / "state.json", {"wall_ns": wall_ns()} | content)


def write_cleared(path: Path, content: dict[str, Json]) -> None:
    """Write a JSON file of a process, with secrets redacted."""
    write_json(path, redacted_strings(content), indent=None)


def write_window(
    write: Write,
    window: int,
    accounts: list[Account],
    seen: tuple[Counter[int], Counter[int], Counter[int]],
    memory: dict[str, int],
) -> None:
    """Write everything measured in a window.

    Args:
        write: Appends to a table, or replaces its tail.
        window: Number of the window.
        accounts: The threads.
        seen: By span code: timed calls, calls that were only counted, device time in ns.
        memory: The window's row of the memory table.
    """
    rows = [account.window_rows(window) for account in accounts]
    write("windows", {name: np.concatenate([each[name] for each in rows]) for name in rows[0]})
    codes = sorted({code for each in seen for code in each})
    calls = [(window, code, *(each[code] for each in seen)) for code in codes]
    write("spans", _columns(("window", "code", "timed", "counted", "device_ns"), calls))
    counters = [(window, a.index, n, c, amount) for a in accounts for (n, c), amount in a.counters.items()]
    write("counters", _columns(("window", "thread", "node", "counter", "amount"), counters))
    samples = [(window, a.index, n, s, *sums) for a in accounts for (n, s), sums in a.samples.items()]
    write("samples", _columns(("window", "thread", "node", "stack", *SAMPLE_SUMS), samples))
    write("memory", {name: [value] for name, value in memory.items()})


def _columns(names: tuple[str, ...], rows: list[tuple[int, ...]]) -> dict[str, list[int]]:
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}
