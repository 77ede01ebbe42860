"""Writes the curves of a run to `progress.csv` and optionally to TensorBoard and Weights & Biases."""

from __future__ import annotations

import csv
import importlib
import io
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Protocol

from hotloop.clock import wall_ns
from hotloop.errors import HotloopError
from hotloop.files import Appender, UnfitFile, read_regular, replacing
from hotloop.json_types import Json

if TYPE_CHECKING:
    from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[attr-defined]

CSV = "progress.csv"
MOST_BYTES = 64 << 20
MOST_ROWS = 1 << 20
MOST_COLUMNS = 256
"""Limits of a curve that is continued. One row per second with 250 bytes makes about three days."""
COLUMN = re.compile(r"[A-Za-z][\w.-]{0,99}", re.ASCII)
Row = Mapping[str, float | None]


class WandbRun(Protocol):
    """What is used of a run of Weights & Biases."""

    def log(self, data: dict[str, float], step: int) -> None: ...  # noqa: D102

    def finish(self) -> None: ...  # noqa: D102


class Scalars:
    """Writes rows of named numbers. A new name adds a column to the CSV file.

    A row that cannot be written is skipped with a warning, and the next one is tried. `wandb` has the options of a run
    of Weights & Biases, or is None.
    """

    def __init__(
        self, folder: Path, *, tensorboard: bool, wandb: Mapping[str, Json] | None, warn: Callable[[str], None]
    ) -> None:
        self._path = folder / CSV
        self._columns: list[str] = []
        self._file = Appender(self._path)
        self._events = Events(folder / "tensorboard") if tensorboard else None
        self._wandb: WandbRun | None = None
        if wandb is not None:
            self._wandb = check_wandb().init(dir=str(folder), name=folder.name, **wandb)
        self._warn = warn
        self._failing: set[str] = set()

    def write(self, env_steps: int, row: Row) -> None:
        """Append a row; values that are None are skipped."""
        known = {name: value for name, value in row.items() if value is not None}
        short = {"env_steps": env_steps, **{name: _short(value) for name, value in known.items()}}
        with self._tolerating(CSV):
            self._add(["env_steps", *row], [short])
        if self._events is not None:
            with self._tolerating("the curves for TensorBoard"):
                self._events.write(env_steps, known)
        if self._wandb is not None:
            self._wandb.log(known, step=env_steps)

    def carry_on(self, before: Path, env_steps: int) -> None:
        """Copy the rows of the earlier run up to the point where it is resumed."""
        try:
            names, rows = _read_of_others(before)
        except FileNotFoundError:
            return  # for example a checkpoint that was copied alone
        except (UnfitFile, OSError, ValueError, csv.Error) as error:
            reason = getattr(error, "strerror", None) or error
            self._warn(f"cannot continue the curve in {before} ({reason}): starting a new one")
            return
        at = names.index("env_steps")
        known = [dict(zip(names, row, strict=True)) for row in rows if float(row[at]) <= env_steps]
        if known:
            with self._tolerating(CSV):
                self._add(names, known)

    def close(self) -> None:
        """Close the files."""
        self._file.close()
        if self._events is not None:
            self._events.close()
        if self._wandb is not None:
            self._wandb.finish()

    @contextmanager
    def _tolerating(self, what: str) -> Iterator[None]:
        """Turn a failed write into a warning, shown once until a write succeeds again."""
        try:
            yield
            self._failing.discard(what)
        except OSError as error:
            if what not in self._failing:
                self._failing.add(what)
                self._warn(f"cannot write {what} ({error.strerror or error}): rows are skipped until it works again")

    def _add(self, names: Sequence[str], rows: Sequence[Mapping[str, float | str]]) -> None:
        columns = self._columns + [name for name in names if name not in self._columns]
        if columns != self._columns:
            self._widen(columns)
        self._file.append(_as_csv(columns, rows))

    def _widen(self, columns: list[str]) -> None:
        """Rewrite the file with more columns. This happens a few times in the first seconds of a run."""
        head = ",".join(columns).encode() + b"\r\n"
        with replacing(self._path) as temporary:
            wider = Appender(temporary)
            try:
                wider.append(head + _as_csv(columns, _read(self._path) if self._columns else ()))
            except OSError:
                wider.close()
                raise
        self._file.close()
        self._file, self._columns = wider, columns


class Events:
    """Writes a TensorBoard file. TensorBoard's own writer has a thread that dies with a traceback on a full disk."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._file = Appender(folder / f"events.out.tfevents.{wall_ns() // 10**9:010d}.{os.getpid()}")
        self._append(file_version="brain.Event:2")

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Append the numbers of a step."""
        from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[attr-defined]

        values = [Summary.Value(tag=name.replace(".", "/", 1), simple_value=each) for name, each in numbers.items()]
        self._append(step=step, summary=Summary(value=values))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _append(self, **content: int | str | Summary) -> None:
        from tensorboard.compat.proto.event_pb2 import Event  # type: ignore[attr-defined]
        from tensorboard.summary.writer.record_writer import RecordWriter

        record = io.BytesIO()
        RecordWriter(record).write(Event(wall_time=wall_ns() / 1e9, **content).SerializeToString())
        self._file.append(record.getvalue())


def check_tensorboard() -> None:
    """Raise an error if tensorboard is not installed."""
    if find_spec("tensorboard") is None:
        raise HotloopError('tensorboard is not installed: `pip install "hotloop[train]"`, or give --no-tensorboard')


def check_wandb() -> ModuleType:
    """Return the module wandb; raise an error if it is not installed."""
    try:
        return importlib.import_module("wandb")
    except ImportError as error:
        raise HotloopError("--wandb: wandb is not installed: `pip install wandb`, or leave the flag out") from error


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def _read_of_others(path: Path) -> tuple[list[str], list[list[str]]]:
    """Return the names and the rows of a curve of unknown origin. Any `ValueError` says what is wrong with it."""
    text = read_regular(path, MOST_BYTES).decode("utf-8")
    table = csv.reader(io.StringIO(text, newline=""))
    names = next(table, [])
    if not 0 < len(names) <= MOST_COLUMNS or len(set(names)) < len(names) or "env_steps" not in names:
        raise ValueError("its first line does not name the columns of a curve")
    if not all(COLUMN.fullmatch(name) for name in names):
        raise ValueError("a column has a name that no curve has")
    rows = list(itertools.islice(table, MOST_ROWS + 1))
    if len(rows) > MOST_ROWS:
        raise ValueError(f"it has more than {MOST_ROWS:,} rows")
    if rows and not _is_row(rows[-1], names):
        del rows[-1]  # incomplete: the machine crashed while it was written
    for number, row in enumerate(rows, 2):
        if not _is_row(row, names):
            raise ValueError(f"line {number} is not a row of {len(names)} numbers")
    return names, rows


def _is_row(row: Sequence[str], names: Sequence[str]) -> bool:
    return len(row) == len(names) and bool(row[names.index("env_steps")]) and all(map(_is_number, filter(None, row)))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _as_csv(columns: Sequence[str], rows: Iterable[Mapping[str, float | str]]) -> bytes:
    text = io.StringIO()
    csv.DictWriter(text, columns, extrasaction="ignore").writerows(rows)
    return text.getvalue().encode()


def _short(value: float) -> float | str:
    return value if isinstance(value, int) else f"{value:.6g}"
