"""Read untrusted Arrow streams: with bounded memory, and validated before a value is used.

Arrow allocates what a stream declares, so 90 kB can claim gigabytes. Therefore the size of a batch is first read from
its header: the number of rows, and the uncompressed length of each compressed buffer. The decoded batch is then
validated fully, because Arrow otherwise trusts the offsets of lists.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hotloop.profiling.trace.reading import limits
from hotloop.profiling.trace.reading.open_files import Budget, Malformed, read_bytes

FAILURES = (pa.ArrowException, OSError, MemoryError, UnicodeDecodeError)
"""Raised by pyarrow for an invalid stream; the last one for column names that are not UTF-8."""
END = b"\xff\xff\xff\xff\0\0\0\0"
"""End of a stream that was closed."""
RECORD_BATCH = 3
"""Type of a message, in Arrow's `Message.fbs`; the numbers of fields below are from there, too."""


@dataclass(frozen=True)
class Stream:
    """The batches of a file, up to the first that is not whole or not valid."""

    batches: tuple[pa.RecordBatch, ...] = ()
    closed: bool = True
    """Whether its writer ended it."""
    damage: str = ""
    """Why it is not read to its end."""


def read_stream(
    path: Path, schema: pa.Schema, optional: frozenset[str] = frozenset(), budget: Budget | None = None
) -> Stream:
    """Read a stream up to its last valid batch; a missing or empty file has none. `optional` columns may be missing."""
    batches: list[pa.RecordBatch] = []
    closed = False
    try:
        data = read_bytes(path, limits.STREAM_BYTES)
        if not data:
            return Stream(closed=data is None)
        closed = data.endswith(END)
        messages = pa.ipc.MessageReader.open_stream(pa.BufferReader(data))
        found = pa.ipc.read_schema(messages.read_next_message())
        _check_schema(found, schema, optional)
        left = _Left(limits.TABLE_ROWS, Budget(limits.TABLE_BYTES), budget or Budget())
        for _ in range(limits.BATCHES):
            message = messages.read_next_message()
            left.take(*_declared(message))
            batches.append(_valid_batch(message, found))
        raise Malformed(f"it has more than {limits.BATCHES} batches")
    except StopIteration:
        return Stream(tuple(batches), closed)
    except Malformed as error:
        return Stream(tuple(batches), closed, str(error))
    except FAILURES as error:
        return Stream(tuple(batches), closed, str(error).partition("\n")[0])


@dataclass
class _Left:
    """What may still be read of a table."""

    rows: int
    table: Budget
    run: Budget

    def take(self, rows: int, size: int) -> None:
        if rows > self.rows:
            raise Malformed(f"it has more than {limits.TABLE_ROWS} rows")
        self.rows -= rows
        self.table.take(size)
        self.run.take(size)


def _check_schema(found: pa.Schema, wanted: pa.Schema, optional: frozenset[str]) -> None:
    names = list(found.names)
    missing = [name for name in wanted.names if name not in names and name not in optional]
    if missing or len(names) != len(set(names)) or not set(names) <= set(wanted.names):
        raise Malformed(f"its columns are not those of this table ({', '.join(wanted.names)})")
    for name in names:
        if not found.field(name).type.equals(wanted.field(name).type):
            raise Malformed(f"column {name} is {found.field(name).type}, not {wanted.field(name).type}")


def _valid_batch(message: pa.Message, schema: pa.Schema) -> pa.RecordBatch:
    batch = pa.ipc.read_record_batch(message, schema)
    batch.validate(full=True)
    for column in batch.columns:
        values = column.values if pa.types.is_list(column.type) else column
        if column.null_count or values.null_count:
            raise Malformed("a value is missing in it")
    return batch


def _declared(message: pa.Message) -> tuple[int, int]:
    """Return the rows of a batch, and the bytes that its buffers will take uncompressed.

    Raises:
        Malformed: The message is no batch, or its header points outside of it.
    """
    try:
        header = _Table.root(message.metadata.to_pybytes())
        if header.number(1, "<B") != RECORD_BATCH:
            raise Malformed("it holds something else than rows")
        batch = header.table(2)
        rows = batch.number(0, "<q")
        compressed = batch.place(3) != 0
        size = sum(_buffer_bytes(message.body, *each, compressed) for each in batch.pairs(2))
    except (struct.error, IndexError) as error:
        raise Malformed("the header of a batch is damaged") from error
    if rows < 0 or size < 0:
        raise Malformed("the header of a batch is damaged")
    return rows, size + 8 * rows


def _buffer_bytes(body: pa.Buffer, offset: int, length: int, compressed: bool) -> int:
    """Return the bytes that a buffer takes: of a compressed one, the number in front of it says."""
    if offset < 0 or length < 0 or offset + length > body.size:
        raise Malformed("a buffer lies outside of its batch")
    if not compressed or not length:
        return length
    return max(struct.unpack("<q", body.slice(offset, min(length, 8)).to_pybytes())[0], length)


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of a FlatBuffer: https://flatbuffers.dev/internals. Reading outside of the data raises struct.error."""

    data: bytes
    at: int

    @staticmethod
    def root(data: bytes) -> _Table:
        return _Table(data, _read(data, 0, "<I"))

    def place(self, field: int) -> int:
        """Return where a field is; 0 if it is not there."""
        layout = self.at - _read(self.data, self.at, "<i")
        entry = 4 + 2 * field
        offset = _read(self.data, layout + entry, "<H") if entry < _read(self.data, layout, "<H") else 0
        return self.at + offset if offset else 0

    def number(self, field: int, form: str) -> int:
        place = self.place(field)
        return _read(self.data, place, form) if place else 0

    def table(self, field: int) -> _Table:
        place = self.place(field)
        if not place:
            raise struct.error("a table is missing")
        return _Table(self.data, place + _read(self.data, place, "<I"))

    def pairs(self, field: int) -> list[tuple[int, int]]:
        """Return a vector of structures of two 64-bit numbers."""
        place = self.place(field)
        if not place:
            return []
        start = place + _read(self.data, place, "<I")
        n = _read(self.data, start, "<I")
        if start + 4 + 16 * n > len(self.data):
            raise struct.error("a vector is longer than its message")
        return list(struct.iter_unpack("<qq", self.data[start + 4 : start + 4 + 16 * n]))


def _read(data: bytes, at: int, form: str) -> int:
    if at < 0:
        raise struct.error("a place before the data")
    return struct.unpack_from(form, data, at)[0]


def column_numbers(column: pa.Array) -> NDArray[np.integer]:
    """Return a valid column of whole numbers without copying it; `to_numpy` would import pandas."""
    data = column.buffers()[1]
    kind = np.dtype(f"i{column.type.bit_width // 8}")
    if data is None or not len(column):
        return np.zeros(0, kind)
    return np.frombuffer(data, kind, len(column), column.offset * kind.itemsize)
