"""Threads as recorded, window by window and without corrections."""

from __future__ import annotations

import numpy as np

from hotloop.profiling.trace.build.columns import grouped, none_of, of_windows
from hotloop.profiling.trace.model import RecordedThread
from hotloop.profiling.trace.reading.names import Names
from hotloop.profiling.trace.reading.run_files import ProcessParts


def recorded_threads(parts: ProcessParts, names: Names) -> tuple[RecordedThread, ...]:
    """Return the threads of a process as recorded. In `names`, the nodes of evaluations are marked."""
    windows = parts.memory["window"]
    by_thread = grouped(of_windows(parts.windows, set(windows.tolist())), "thread")
    found = []
    for thread in names.threads.values():
        rows = by_thread.get(thread.id, none_of(parts.windows))
        window = np.searchsorted(windows, rows["window"])
        nodes = names.nodes.get(thread.id, {})
        columns = rows["node"], rows["calls"], rows["self_ns"]
        found.append(RecordedThread(thread.id, thread.name, thread.ident, thread.main, nodes, window, *columns))
    return tuple(found)
