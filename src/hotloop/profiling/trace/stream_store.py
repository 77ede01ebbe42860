"""A run's files: one folder per process with append-only Arrow streams, readable at any time, even after a kill.

    run.json                    what was run, on what machine: written once, updated at the end
    <pid>/process.json          the process: parent, clock, name
    <pid>/names.jsonl           numbers to names: threads, nodes, frames, stacks, counters (append-only)
    <pid>/<table>.arrows        Arrow IPC streams (append-only): windows, counters, samples, memory, raw
    <pid>/<table>.tail.arrow    the rows of the window that is not complete yet (replaced)
    <pid>/totals.arrow          shortest, longest, histogram, memory of each node so far (replaced)
    <pid>/state.json            how far it got, what recording cost, warnings (replaced)

A stream that ends in the middle of a batch is read up to the batch before. Replaced files are renamed into place, so
that a reader never sees a partial one. Long runs stay small, because windows grow longer over time.

Only the owner may read the files, because a run contains the command, paths and lines of code.
"""

from __future__ import annotations

import errno
import json
import operator
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hotloop.files import make_private, open_private
from hotloop.json_types import Json, JsonObject
from hotloop.profiling.trace.reading import limits
from hotloop.profiling.trace.reading.arrow import Stream, column_numbers, read_stream
from hotloop.profiling.trace.reading.open_files import Budget, Malformed, read_bytes
from hotloop.profiling.trace.reading.plain_json import parse_object


def _schema(ids: str, amounts: str, *more: tuple[str, pa.DataType]) -> pa.Schema:
    """Return a schema from the names of its 32-bit and 64-bit columns, and from further columns."""
    narrow = [(name, pa.int32()) for name in ids.split()]
    return pa.schema([*narrow, *((name, pa.int64()) for name in amounts.split()), *more])


SCHEMAS: dict[str, pa.Schema] = {
    "windows": _schema("window thread node", "calls total_ns self_ns"),
    "spans": _schema("window code", "timed counted device_ns"),
    "counters": _schema("window thread node counter", "amount"),
    "samples": _schema("window thread node stack n", "wall_ns cpu_ns gc_ns wait_ns io_ns starved_ns"),
    "memory": _schema(
        "window",
        "start_ns end_ns rss_bytes gpu_bytes gpu_busy_percent cpu_ns minor_faults major_faults "
        "gc_pauses gc_pause_ns background_ns reserved_bytes starved_ns",
    ),
    "raw": _schema("thread node", "start_ns end_ns"),
    "totals": _schema(
        "thread node",
        "min_ns max_ns grown_bytes peak_bytes gpu_bytes",
        ("buckets", pa.list_(pa.int16())),
        ("counts", pa.list_(pa.int64())),
    ),
}
LATER_COLUMNS = {
    "memory": frozenset({"reserved_bytes", "starved_ns"}),
    "samples": frozenset({"gc_ns", "wait_ns", "io_ns", "starved_ns"}),
}
"""Columns that recordings of an earlier version do not have: they count as zero."""
Ints = NDArray[np.integer]
Column = Ints | Sequence[int | Sequence[int]]
Columns = Mapping[str, Column]


class ProcessFiles:
    """The files of one process, for appending.

    No file is kept open: a script may close descriptors that are not its own and reuse their numbers.

    Args:
        folder: The folder of the process.
        process: Content of `process.json`. If given, nothing is created before `create` is called.
    """

    def __init__(self, folder: Path, process: JsonObject | None = None) -> None:
        self.folder = folder
        self.created = False
        """Whether there is anything on disk."""
        self._process = process
        self._streams: dict[str, tuple[_Appender, pa.ipc.RecordBatchStreamWriter]] = {}
        # Small tables are written every second, so fast compression matters more than a high ratio.
        self._quick = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
        self._small = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
        if process is None:
            self.create()

    def create(self) -> None:
        """Create the folder and `process.json`, if not done yet."""
        if not self.created:
            make_private(self.folder)
            if self._process is not None:
                write_json(self.folder / "process.json", self._process)
            self.created = True

    def append(self, table: str, columns: Columns) -> None:
        """Append rows to a stream. They are in the file when this returns."""
        batch = _batch(table, columns)
        if not batch.num_rows:
            return
        if table not in self._streams:
            file = _Appender(self.folder / f"{table}.arrows")
            options = self._small if table == "raw" else self._quick
            self._streams[table] = file, pa.ipc.new_stream(file, SCHEMAS[table], options=options)
        file, stream = self._streams[table]
        stream.write_batch(batch)
        file.flush()

    def replace(self, name: str, table: str, columns: Columns) -> None:
        """Replace a small table."""
        temporary = self.folder / f"{name}.part"
        with (
            open(temporary, "wb", opener=open_private) as file,
            pa.ipc.new_stream(file, SCHEMAS[table], options=self._quick) as writer,
        ):
            writer.write_batch(_batch(table, columns))
        os.replace(temporary, self.folder / name)

    def drop(self, name: str) -> None:
        """Remove a replaced file that is no longer valid."""
        (self.folder / name).unlink(missing_ok=True)

    def add_names(self, entries: Sequence[JsonObject]) -> None:
        """Append names. Must be called before rows that refer to them are written."""
        if entries:
            file = _Appender(self.folder / "names.jsonl")
            file.write("".join(to_json(entry) + "\n" for entry in entries).encode())
            file.flush()

    def size_of(self, table: str) -> int:
        """Bytes in a stream so far."""
        return self._streams[table][0].size if table in self._streams else 0

    def close(self) -> None:
        """End all streams properly."""
        for file, stream in self._streams.values():
            stream.close()
            file.flush()


class _Appender:
    """A file to append to that is open only while `flush` writes the collected data."""

    closed = False

    def __init__(self, path: Path) -> None:
        self.size = 0
        self._path = path
        self._waiting: list[bytes] = []

    def write(self, data: bytes) -> int:
        """Collect bytes for the next flush."""
        self._waiting.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Append the collected bytes to the file."""
        content = b"".join(self._waiting)
        with open(self._path, "ab", buffering=0, opener=open_private) as file:
            written = file.write(content)
        if written != len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        self.size += written
        self._waiting.clear()

    def close(self) -> None:
        """Do nothing: the file is not open."""


def _batch(table: str, columns: Columns) -> pa.RecordBatch:
    schema = SCHEMAS[table]
    return pa.RecordBatch.from_arrays([_array(columns[each.name], each.type) for each in schema], schema=schema)


def _array(values: Column, kind: pa.DataType) -> pa.Array:
    """Make an Arrow array of integers, or of lists of them.

    `pa.array` would import pandas, if installed, into the training process; at interpreter exit, that import fails.
    """
    if isinstance(kind, pa.ListType):
        lists = [np.asarray(each, np.int64) for each in values]
        ends = np.cumsum([0, *map(len, lists)])
        flat = np.concatenate([np.zeros(0, np.int64), *lists])
        return pa.ListArray.from_arrays(_array(ends, pa.int32()), _array(flat, kind.value_type), type=kind)
    whole = np.ascontiguousarray(values, dtype=np.dtype(f"i{kind.bit_width // 8}"))
    return pa.Array.from_buffers(kind, len(whole), [None, pa.py_buffer(whole)])


def write_json(path: Path, content: JsonObject, indent: int | None = 1) -> None:
    """Write a JSON file atomically. Without indent it is several times faster."""
    temporary = f"{path}.part"
    data = to_json(content, indent).encode()
    with open(temporary, "wb", buffering=0, opener=open_private) as file:
        if file.write(data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    os.replace(temporary, path)


def to_json(content: Json, indent: int | None = None) -> str:
    """Return JSON. Numbers of other libraries, such as `np.int64`, become plain ones."""
    return json.dumps(content, indent=indent, default=_plain)


def _plain(value: object) -> int | float | str:
    """Convert `np.int64`, `np.float32`, 0-d arrays and the like to a number; anything else to the name of its type."""
    for convert in (operator.index, float):
        try:
            return convert(value)  # type: ignore[arg-type]
        except Exception:  # Conversions of a script's own types may raise anything.
            continue
    return type(value).__name__


@dataclass(frozen=True)
class TableFile:
    """A table as read. Its values are not checked yet."""

    columns: dict[str, Ints]
    closed: bool
    """Whether its writer closed it."""
    damage: str = ""
    """Why it is not read to its end."""


def read_file(folder: Path, table: str, budget: Budget | None = None) -> TableFile:
    """Read a stream with its tail, up to the last valid batch. Missing files are empty tables."""
    optional = LATER_COLUMNS.get(table, frozenset())
    stream = read_stream(folder / f"{table}.arrows", SCHEMAS[table], optional, budget)
    tail = read_stream(folder / f"{table}.tail.arrow", SCHEMAS[table], optional, budget)
    # Between completing a window and removing its tail, a killed or running process has the window in both.
    last = max(map(_last_window, stream.batches), default=-1)
    batches = [*stream.batches, *(each for each in tail.batches if _last_window(each) > last)]
    columns: dict[str, Ints] = {}
    for name in SCHEMAS[table].names:
        parts = [
            column_numbers(each.column(name)) if name in each.schema.names else np.zeros(each.num_rows, np.int64)
            for each in batches
        ]
        columns[name] = np.concatenate(parts) if parts else np.zeros(0, np.int64)
    return TableFile(columns, stream.closed, stream.damage or tail.damage)


def _last_window(batch: pa.RecordBatch) -> int:
    rows = batch.num_rows if "window" in batch.schema.names else 0
    return int(column_numbers(batch.column("window"))[rows - 1]) if rows else -1


def read_totals(folder: Path, budget: Budget | None = None) -> Stream:
    """Return the batches of the totals table."""
    return read_stream(folder / "totals.arrow", SCHEMAS["totals"], budget=budget)


def read_names(folder: Path, budget: Budget | None = None) -> tuple[list[JsonObject], str]:
    """Return the lines of the names, up to the last whole and valid one, and why there are not more."""
    entries: list[JsonObject] = []
    try:
        data = read_bytes(folder / "names.jsonl", limits.NAMES_BYTES) or b""
        if budget is not None:
            budget.take(len(data))
        *lines, rest = data.split(b"\n")
        for line in lines:
            if len(line) > limits.LINE_BYTES:
                raise Malformed(f"a line is longer than {limits.LINE_BYTES >> 20} MiB")
            entries.append(parse_object(line))
    except Malformed as error:
        return entries, str(error)
    return entries, "its last line is cut" if rest else ""
