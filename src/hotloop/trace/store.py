"""A run's files: one folder a process, append-only Arrow streams, readable at any moment and after any death.

    run.json                    what was run, on what machine: written once, updated at the end
    <pid>/process.json          the process: parent, clock, name
    <pid>/names.jsonl           numbers to names: threads, nodes, frames, stacks, counters (append-only)
    <pid>/<table>.arrows        Arrow IPC streams (append-only): windows, counters, samples, memory, raw
    <pid>/<table>.tail.arrow    the rows of the window that is not complete yet (replaced)
    <pid>/totals.arrow          shortest, longest, histogram, memory of each node so far (replaced)
    <pid>/state.json            how far it got, what recording cost, warnings (replaced)

A stream that ends in the middle of a batch is read up to the batch before. Replaced files are renamed into
place, so that a reader never sees half of one. Long runs stay small: windows grow longer as a run goes on.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

SCHEMAS: dict[str, pa.Schema] = {
    "windows": pa.schema(
        [("window", pa.int32()), ("thread", pa.int32()), ("node", pa.int32()),
         ("calls", pa.int64()), ("total_ns", pa.int64()), ("self_ns", pa.int64())]
    ),
    "spans": pa.schema(
        [("window", pa.int32()), ("code", pa.int32()), ("timed", pa.int64()), ("counted", pa.int64()),
         ("device_ns", pa.int64())]
    ),
    "counters": pa.schema(
        [("window", pa.int32()), ("thread", pa.int32()), ("node", pa.int32()),
         ("counter", pa.int32()), ("amount", pa.int64())]
    ),
    "samples": pa.schema(
        [("window", pa.int32()), ("thread", pa.int32()), ("node", pa.int32()), ("stack", pa.int32()),
         ("n", pa.int32()), ("wall_ns", pa.int64()), ("cpu_ns", pa.int64())]
    ),
    "memory": pa.schema(
        [("window", pa.int32()), ("start_ns", pa.int64()), ("end_ns", pa.int64()), ("rss_bytes", pa.int64()),
         ("gpu_bytes", pa.int64()), ("gpu_busy_percent", pa.int64()), ("cpu_ns", pa.int64()),
         ("minor_faults", pa.int64()), ("major_faults", pa.int64()),
         ("gc_pauses", pa.int64()), ("gc_pause_ns", pa.int64()), ("background_ns", pa.int64()),
         ("reserved_bytes", pa.int64()), ("starved_ns", pa.int64())]
    ),
    "raw": pa.schema([("thread", pa.int32()), ("node", pa.int32()), ("start_ns", pa.int64()), ("end_ns", pa.int64())]),
    "totals": pa.schema(
        [("thread", pa.int32()), ("node", pa.int32()), ("min_ns", pa.int64()), ("max_ns", pa.int64()),
         ("grown_bytes", pa.int64()), ("peak_bytes", pa.int64()), ("gpu_bytes", pa.int64()),
         ("buckets", pa.list_(pa.int16())), ("counts", pa.list_(pa.int64()))]
    ),
}  # fmt: skip
STREAMS = ("windows", "spans", "counters", "samples", "memory", "raw")
Columns = dict[str, Any]
BUFFER = 1 << 16


class ProcessFiles:
    """The files of one process, open for appending."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._names = open(folder / "names.jsonl", "a", encoding="utf-8", buffering=1)  # noqa: SIM115
        self._streams: dict[str, pa.ipc.RecordBatchStreamWriter] = {}
        self._files: dict[str, Any] = {}
        # Small tables are written every second: for them a quick compression matters more than a good one.
        self._quick = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
        self._small = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)

    def append(self, table: str, columns: Columns) -> None:
        """Add rows to a stream. They are in the file when this returns."""
        batch = _batch(table, columns)
        if not batch.num_rows:
            return
        if table not in self._streams:
            # Buffered: a batch is dozens of small writes otherwise.
            file = pa.BufferedOutputStream(pa.OSFile(str(self.folder / f"{table}.arrows"), "ab"), BUFFER)
            self._files[table] = file
            options = self._small if table == "raw" else self._quick
            self._streams[table] = pa.ipc.new_stream(file, SCHEMAS[table], options=options)
        self._streams[table].write_batch(batch)
        self._files[table].flush()

    def replace(self, name: str, table: str, columns: Columns) -> None:
        """Write a small table, in place of the one that was there."""
        temporary = self.folder / f"{name}.part"
        with (
            open(temporary, "wb") as file,
            pa.ipc.new_stream(file, SCHEMAS[table], options=self._quick) as writer,
        ):
            writer.write_batch(_batch(table, columns))
        os.replace(temporary, self.folder / name)

    def drop(self, name: str) -> None:
        """Remove a replaced file that no longer holds."""
        (self.folder / name).unlink(missing_ok=True)

    def add_names(self, entries: list[dict[str, Any]]) -> None:
        """Append what numbers stand for. Written before the rows that use them."""
        if entries:
            self._names.write("".join(json.dumps(entry) + "\n" for entry in entries))

    def size_of(self, table: str) -> int:
        """Bytes in a stream so far."""
        file = self._files.get(table)
        return file.tell() if file else 0

    def close(self) -> None:
        """End all streams properly."""
        for writer in self._streams.values():
            writer.close()
        for file in self._files.values():
            file.close()
        self._names.close()


def _batch(table: str, columns: Columns) -> pa.RecordBatch:
    schema = SCHEMAS[table]
    return pa.RecordBatch.from_arrays([_array(columns[each.name], each.type) for each in schema], schema=schema)


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    """Make an Arrow array of integers, or of lists of them.

    `pa.array` would import pandas, where it is installed: into a training process, and when that ends it cannot be.
    """
    if isinstance(kind, pa.ListType):
        ends = np.cumsum([0, *map(len, values)])
        flat = np.concatenate([np.zeros(0, np.int64), *(np.asarray(each, np.int64) for each in values)])
        return pa.ListArray.from_arrays(_array(ends, pa.int32()), _array(flat, kind.value_type), type=kind)
    whole = np.ascontiguousarray(values, dtype=np.dtype(f"i{kind.bit_width // 8}"))
    return pa.Array.from_buffers(kind, len(whole), [None, pa.py_buffer(whole)])


def write_json(path: Path, content: dict[str, Any], indent: int | None = 1) -> None:
    """Write a JSON file whole or not at all. Without indent it is several times faster."""
    temporary = f"{path}.part"
    with open(temporary, "wb", buffering=0) as file:
        file.write(json.dumps(content, indent=indent).encode())
    os.replace(temporary, path)


def read_table(folder: Path, table: str) -> dict[str, NDArray[np.int64]]:
    """Read a stream with its tail, up to the last whole batch. Missing files are empty tables."""
    batches = _whole_batches(folder / f"{table}.arrows")
    # A process that is killed, or read, after a window is complete and before its tail is gone has both.
    last = max(map(_last_window, batches), default=-1)
    batches += [each for each in _whole_batches(folder / f"{table}.tail.arrow") if _last_window(each) > last]
    columns: dict[str, NDArray[np.int64]] = {}
    for each in SCHEMAS[table]:
        # A column that an earlier version did not have yet counts as zero.
        parts = [_numbers(batch.column(each.name)) for batch in batches if each.name in batch.schema.names]
        rows = sum(batch.num_rows for batch in batches)
        columns[each.name] = np.concatenate(parts) if parts else np.zeros(rows, np.int64)
    return columns


def _last_window(batch: pa.RecordBatch) -> int:
    rows = batch.num_rows if "window" in batch.schema.names else 0
    return int(_numbers(batch.column("window"))[rows - 1]) if rows else -1


def _numbers(column: pa.Array) -> NDArray[np.int64]:
    """Return a column of integers; `to_numpy` would import pandas."""
    data = column.buffers()[1]
    if data is None or not pa.types.is_integer(column.type) or column.null_count:
        return column.to_numpy(zero_copy_only=False)
    every = np.frombuffer(data, np.dtype(f"i{column.type.bit_width // 8}"))
    return every[column.offset : column.offset + len(column)]


def read_totals(folder: Path) -> list[dict[str, Any]]:
    """Read the totals table as rows."""
    return [row for batch in _whole_batches(folder / "totals.arrow") for row in batch.to_pylist()]


def _whole_batches(path: Path) -> list[pa.RecordBatch]:
    found: list[pa.RecordBatch] = []
    try:
        if not path.stat().st_size:
            return found
        with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as reader:
            while True:
                found.append(reader.read_next_batch())
    except (StopIteration, pa.ArrowInvalid, OSError):
        pass
    return found


def read_names(folder: Path) -> list[dict[str, Any]]:
    """Read the names, up to the last whole line."""
    path = folder / "names.jsonl"
    if not path.exists():
        return []
    entries = []
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]:
        try:
            entries.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return entries
