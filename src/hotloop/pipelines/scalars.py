"""A run's curves: `progress.csv` for everybody, TensorBoard and Weights & Biases for those who use them."""

from __future__ import annotations

import csv
import importlib
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hotloop.errors import HotloopError

CSV = "progress.csv"
Row = Mapping[str, float | None]


class Scalars:
    """Writes rows of named numbers. A name that is new becomes a new column of the CSV file."""

    def __init__(self, folder: Path, *, tensorboard: bool, wandb: Mapping[str, Any] | None) -> None:
        self._path = folder / CSV
        self._columns: list[str] = []
        self._file = self._path.open("w", newline="", encoding="utf-8")
        self._board = _open_tensorboard(folder) if tensorboard else None
        self._wandb = _open_wandb(folder, wandb) if wandb is not None else None

    def write(self, env_steps: int, row: Row) -> None:
        """Append a row; what is None is left out."""
        known = {name: value for name, value in row.items() if value is not None}
        if not {"env_steps", *row} <= set(self._columns):
            self._widen(["env_steps", *row])
        self._append([{"env_steps": env_steps, **{name: _short(value) for name, value in known.items()}}])
        if self._board is not None:
            for name, value in known.items():
                self._board.add_scalar(name.replace(".", "/", 1), value, env_steps)
        if self._wandb is not None:
            self._wandb.log(known, step=env_steps)

    def carry_on(self, before: Path, env_steps: int) -> None:
        """Begin with the rows of an earlier run, up to where it is resumed, so that the curve is whole."""
        try:
            rows = [row for row in _read(before) if int(row["env_steps"]) <= env_steps]
        except (OSError, ValueError, KeyError, TypeError):
            return  # the curve of a run whose file is gone begins here
        if rows:
            self._widen(list(rows[0]))
            self._append(rows)

    def _append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        csv.DictWriter(self._file, self._columns).writerows(rows)
        self._file.flush()

    def _widen(self, names: Sequence[str]) -> None:
        """Write the file anew with more columns: that happens a few times, in a run's first seconds."""
        self._columns += [name for name in names if name not in self._columns]
        rows = _read(self._path)
        self._file.close()
        self._file = self._path.open("w", newline="", encoding="utf-8")
        csv.DictWriter(self._file, self._columns).writeheader()
        self._append(rows)

    def close(self) -> None:
        """Close the files."""
        self._file.close()
        if self._board is not None:
            self._board.close()
        if self._wandb is not None:
            self._wandb.finish()


def check_tensorboard() -> None:
    """Look whether tensorboard can be written for.

    Raises:
        HotloopError: It is not installed.
    """
    if find_spec("tensorboard") is None:
        raise HotloopError('tensorboard is not installed: `pip install "hotloop[train]"`, or give --no-tensorboard')


def check_wandb() -> Any:
    """Return the wandb module.

    Raises:
        HotloopError: It is not installed.
    """
    try:
        return importlib.import_module("wandb")
    except ImportError as error:
        raise HotloopError("--wandb: wandb is not installed: `pip install wandb`, or leave the flag out") from error


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def _short(value: float) -> float | str:
    return value if isinstance(value, int) else f"{value:.6g}"


def _open_tensorboard(folder: Path) -> Any:
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder / "tensorboard"))


def _open_wandb(folder: Path, settings: Mapping[str, Any]) -> Any:
    return check_wandb().init(dir=str(folder), name=folder.name, **settings)
