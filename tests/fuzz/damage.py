"""Ways to damage a run directory: bytes, JSON values, Arrow columns, and files replaced by something else.

Every choice is made by a `Chooser`, which can be a random generator or a fuzzer.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa

T = TypeVar("T")
DEEP = 5_000
HUGE_FILE = 10 << 30
HOSTILE_TEXTS = ("", "\x00", "\x1b[2J\r\n", "$\\frac{", "\udcff\udc80", "\ud800", "é→■", "[bold]x[/]", "/" * 5_000)
HOSTILE_JSON: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 7, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 10**30, 0.0, -0.5, 1e-320, 1e18,
    1e308, float("nan"), float("inf"), float("-inf"), [], {}, [[]], [None], {"a": None}, "running", "finished",
    "killed", "span", "gap", "root", "env", "evaluate", *HOSTILE_TEXTS, "x" * 100_000,
)  # fmt: skip
HOSTILE_WHOLE = (
    0, 1, -1, 2, 4_999, 5_000, 2**31 - 1, -(2**31), 2**40, 2**55, 2**56, 2**56 + 1, 2**62, 2**63 - 1, -(2**63),
)  # fmt: skip


class Chooser(Protocol):
    """Makes the choices."""

    def randrange(self, n: int, /) -> int:
        """Return a number from 0 to n - 1."""
        ...

    def choice(self, options: Sequence[T], /) -> T:
        """Return one of the options."""
        ...


def damage(run: Path, choose: Chooser) -> str:
    """Damage one file of a run; return a description of the damage."""
    files = sorted(path for path in run.rglob("*") if _is_ordinary(path))
    if not files:
        return "nothing is left to be damaged"
    path = choose.choice(files)
    ways = [*BYTES, *FILES]
    if path.suffix in (".json", ".jsonl"):
        ways += JSON * 4
    elif path.suffix in (".arrow", ".arrows"):
        ways += ARROW * 4
    way = choose.choice(ways)
    way(path, choose)
    return f"{way.__name__} {path.relative_to(run)}"


def _is_ordinary(path: Path) -> bool:
    """Return whether it is a regular file: earlier damage may have replaced it by something endless."""
    return path.is_file() and not path.is_symlink() and path.stat().st_size < HUGE_FILE


def flip_bits(path: Path, choose: Chooser) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(1 + choose.randrange(8)) if data else ():
        data[choose.randrange(len(data))] ^= 1 << choose.randrange(8)
    path.write_bytes(data)


def truncate(path: Path, choose: Chooser) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: choose.randrange(len(data) + 1)])


def zero(path: Path, choose: Chooser) -> None:
    data = bytearray(path.read_bytes())
    start = choose.randrange(len(data) + 1)
    end = min(start + 1 + choose.randrange(64), len(data))
    data[start:end] = bytes(end - start)
    path.write_bytes(data)


def overwrite_number(path: Path, choose: Chooser) -> None:
    """Write a hostile length or offset where one may be stored."""
    data = bytearray(path.read_bytes())
    if len(data) >= 8:
        at = choose.randrange(len(data) // 4 - 1) * 4
        data[at : at + 8] = choose.choice(HOSTILE_WHOLE).to_bytes(8, "little", signed=True)
    path.write_bytes(data)


def repeat_part(path: Path, choose: Chooser) -> None:
    data = path.read_bytes()
    start = choose.randrange(len(data) + 1)
    end = start + choose.randrange(len(data) - start + 1)
    path.write_bytes(data[:end] + data[start:end] * (1 + choose.randrange(3)) + data[end:])


def append_garbage(path: Path, choose: Chooser) -> None:
    with open(path, "ab") as file:
        file.write(bytes(choose.randrange(256) for _ in range(1 + choose.randrange(40))))


def swap(path: Path, choose: Chooser) -> None:
    other = choose.choice(sorted(each for each in path.parent.iterdir() if _is_ordinary(each)))
    mine, theirs = path.read_bytes(), other.read_bytes()
    path.write_bytes(theirs)
    other.write_bytes(mine)


def delete(path: Path, _choose: Chooser) -> None:
    path.unlink()


def make_other_kind(path: Path, choose: Chooser) -> None:
    """Replace a file by something that is not a file, or is endless."""
    path.unlink()
    kind = choose.randrange(7)
    if kind == 0:
        os.mkfifo(path)
    elif kind == 1:
        path.mkdir()
    elif kind == 2:
        path.symlink_to(path)
    elif kind == 3:
        path.symlink_to("/dev/zero")
    elif kind == 4:
        here = os.getcwd()
        os.chdir(path.parent)  # socket paths must be short
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
        os.chdir(here)
    elif kind == 5:
        path.symlink_to("/proc/self/mem")
    else:
        with open(path, "wb") as file:
            file.truncate(HUGE_FILE)


def copy_folder(path: Path, choose: Chooser) -> None:
    """Duplicate a process folder: two main processes with the same id."""
    if path.parent.parent.joinpath("run.json").exists():
        copy = path.parent.with_name(f"9{choose.randrange(9)}-123456789")
        copy.mkdir(exist_ok=True)
        for each in path.parent.iterdir():
            if _is_ordinary(each):
                shutil.copy(each, copy)


def _places(content: Any) -> list[tuple[Any, Any]]:
    """Return all containers, at any depth, with the keys of their items."""
    found: list[tuple[Any, Any]] = []
    waiting = [content]
    for each in waiting:
        keys = list(each) if isinstance(each, dict) else range(len(each)) if isinstance(each, list) else ()
        found += [(each, key) for key in keys]
        waiting += [each[key] for key in keys if isinstance(each[key], dict | list)]
    return found


def _change(text: str, choose: Chooser, value: Callable[[Any], Any]) -> str:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return text
    places = _places(content)
    if not places:
        return text
    for _ in range(1 + choose.randrange(2)):
        container, key = choose.choice(places)
        if isinstance(container, dict) or key < len(container):
            container[key] = value(container[key] if isinstance(container, list) else container.get(key))
    return json.dumps(content)


def _change_file(path: Path, choose: Chooser, value: Callable[[Any], Any]) -> None:
    """Change values of a JSON file, or of some lines of a JSON-lines file."""
    text = path.read_bytes().decode("utf-8", "replace")
    if path.suffix == ".json":
        path.write_text(_change(text, choose, value), encoding="utf-8", errors="surrogatepass")
        return
    lines = text.split("\n")
    for _ in range(1 + choose.randrange(4)):
        at = choose.randrange(len(lines))
        lines[at] = _change(lines[at], choose, value)
    path.write_text("\n".join(lines), encoding="utf-8", errors="surrogatepass")


def replace_value(path: Path, choose: Chooser) -> None:
    _change_file(path, choose, lambda _: choose.choice(HOSTILE_JSON))


def move_number(path: Path, choose: Chooser) -> None:
    """Change a number to a nearby or hostile one of the same type, which still looks valid."""

    def other(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return value
        return choose.choice((value + 1, value - 1, 0, -value, value * 1_000, choose.choice(HOSTILE_WHOLE), value / 3))

    _change_file(path, choose, other)


def drop_key(path: Path, choose: Chooser) -> None:
    lines = (
        path.read_bytes().decode("utf-8", "replace").split("\n")
        if path.suffix == ".jsonl"
        else [path.read_text(errors="replace")]
    )
    at = choose.randrange(len(lines))
    try:
        content = json.loads(lines[at])
    except (ValueError, RecursionError):
        return
    if isinstance(content, dict) and content:
        del content[choose.choice(sorted(content))]
    lines[at] = json.dumps(content)
    path.write_text("\n".join(lines))


def nest_deep(path: Path, choose: Chooser) -> None:
    marker = "hotloop-deep"
    _change_file(path, choose, lambda _: marker)
    deep = "[" * DEEP + "]" * DEEP if choose.randrange(2) else '{"a":' * DEEP + "1" + "}" * DEEP
    path.write_text(path.read_text(errors="replace").replace(f'"{marker}"', deep, 1))


def _batches(path: Path) -> list[pa.RecordBatch]:
    found: list[pa.RecordBatch] = []
    try:
        with pa.ipc.open_stream(path.read_bytes()) as reader:
            found.extend(reader)
    except (pa.ArrowException, OSError):
        pass
    return found


def _write(path: Path, batches: Sequence[pa.RecordBatch], compression: str | None = "zstd") -> None:
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with open(path, "wb") as file, pa.ipc.new_stream(file, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _flat(column: pa.Array) -> pa.Array:
    return column.values if pa.types.is_list(column.type) else column


def change_column(path: Path, choose: Chooser) -> None:
    """Write hostile numbers into a column; the file stays a valid Arrow stream."""
    batches = _batches(path)
    if not batches:
        return
    at = choose.randrange(len(batches))
    batch = batches[at]
    name = choose.choice(batch.schema.names)
    column = batch.column(name)
    kind = _flat(column).type
    bits = kind.bit_width
    values = np.array(_flat(column).to_pylist(), np.int64)
    if len(values):
        hostile = max(min(choose.choice(HOSTILE_WHOLE), 2 ** (bits - 1) - 1), -(2 ** (bits - 1)))
        if choose.randrange(2):
            values[:] = hostile
        else:
            values[choose.randrange(len(values))] = hostile
    made = pa.array(values.tolist(), kind)
    if pa.types.is_list(column.type):
        made = pa.ListArray.from_arrays(column.offsets, made, type=column.type)
    columns = [made if each == name else batch.column(each) for each in batch.schema.names]
    batches[at] = pa.RecordBatch.from_arrays(columns, schema=batch.schema)
    _write(path, batches, choose.choice(("zstd", "lz4", None)))


def change_schema(path: Path, choose: Chooser) -> None:
    """Change a column's type, duplicate its name, add nulls, or remove it."""
    batches = _batches(path)
    if not batches:
        return
    table = pa.Table.from_batches(batches)
    at = choose.randrange(table.num_columns)
    name, column = table.schema.names[at], table.column(at).combine_chunks()
    way = choose.randrange(7)
    if way == 0 and not pa.types.is_list(column.type):
        table = table.set_column(at, name, column.cast(choose.choice((pa.float64(), pa.string(), pa.int64()))))
    elif way == 1 and not pa.types.is_list(column.type):
        table = table.set_column(at, name, column.dictionary_encode())
    elif way == 2:
        table = table.append_column(name, column)
    elif way == 3:
        table = table.drop_columns([name])
    elif way == 4 and not pa.types.is_list(column.type):
        table = table.set_column(at, name, pa.array([None, *column.to_pylist()[1:]], column.type))
    elif way == 5:
        table = table.set_column(at, name, pa.nulls(table.num_rows))
    else:
        table = table.append_column("more", pa.array([[1]] * table.num_rows))
    _write(path, table.to_batches() or batches)


def break_offsets(path: Path, choose: Chooser) -> None:
    """Make list offsets point outside the values."""
    batches = _batches(path)
    fields = batches[0].schema if batches else []
    # By position: earlier damage may have duplicated a name.
    lists = [at for at, field in enumerate(fields) if pa.types.is_list(field.type)]
    if not lists:
        return
    offsets = np.array(batches[0].column(choose.choice(lists)).offsets.to_pylist(), np.int32)
    broken = offsets.copy()
    broken[choose.randrange(len(broken))] = choose.choice((-1, 2**31 - 1, 1_000_000, -(2**31)))
    _write(path, batches, None)
    before, _, after = path.read_bytes().rpartition(offsets.tobytes())
    path.write_bytes(before + broken.tobytes() + after)


def inflate(path: Path, choose: Chooser) -> None:
    """Write millions of rows that compress to a few kilobytes."""
    batches = _batches(path)
    if not batches:
        return
    rows = choose.choice((10_000, 100_000, 3_000_000))
    schema, columns = batches[0].schema, []
    for field in schema:
        if pa.types.is_list(field.type):
            offsets = pa.Array.from_buffers(pa.int32(), rows + 1, [None, pa.py_buffer(bytes(4 * rows + 4))])
            columns.append(pa.ListArray.from_arrays(offsets, pa.array([], field.type.value_type), type=field.type))
        else:
            data = np.full(rows, choose.choice((0, 1)), f"i{field.type.bit_width // 8}")
            if choose.randrange(3) == 0:
                data = np.arange(rows, dtype=data.dtype)
            columns.append(pa.Array.from_buffers(field.type, rows, [None, pa.py_buffer(data)]))
    _write(path, [pa.RecordBatch.from_arrays(columns, schema=schema)])


def shuffle_batches(path: Path, choose: Chooser) -> None:
    batches = _batches(path)
    if batches:
        _write(path, [choose.choice(batches) for _ in range(1 + choose.randrange(2 * len(batches)))])


BYTES = [flip_bits, truncate, zero, overwrite_number, repeat_part, append_garbage]
FILES = [swap, delete, make_other_kind, copy_folder]
JSON = [replace_value, move_number, drop_key, nest_deep]
ARROW = [change_column, change_column, change_schema, break_offsets, inflate, shuffle_batches]
