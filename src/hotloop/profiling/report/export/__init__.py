"""A run in other tools' formats: a timeline for Perfetto, flame graphs for speedscope, tables as CSV, TensorBoard.

Each writer is a function of a `Trace` and a path. `export` chooses it, and puts what it wrote in place whole or not
at all. Writers are imported when asked for.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hotloop.errors import HotloopError
from hotloop.profiling.report.export.target import check, place, size_of
from hotloop.profiling.trace.model import Trace


@dataclass(frozen=True, slots=True)
class Format:
    """What a run can be exported to."""

    about: str
    ending: str
    """Of the default name."""
    folder: bool
    """Whether it is a folder of files."""
    writer: str
    """Module with a function `write(trace, path)`."""


FORMATS = {
    "perfetto": Format("a timeline for ui.perfetto.dev and chrome://tracing", ".perfetto.json", False, "perfetto"),
    "speedscope": Format("flame graphs for speedscope.app", ".speedscope.json", False, "speedscope"),
    "csv": Format("a folder of tables for pandas, polars or a spreadsheet", "-csv", True, "tables"),
    "tensorboard": Format("a folder of curves for TensorBoard", "-tensorboard", True, "scalars"),
}
ALIASES = {"chrome": "perfetto"}


def default_path(trace: Trace, to: str) -> Path:
    """Return the name of an export in the current directory."""
    return Path(Path(trace.path).resolve().name + _format(to).ending)


def export(trace: Trace, to: str, path: Path, force: bool = False) -> int:
    """Write a run in another format.

    Args:
        trace: The run.
        to: One of `FORMATS`, or `chrome`.
        path: The file, or for csv and tensorboard the folder. A file whose name ends in .gz is compressed.
        force: Whether to replace what is there. Of a folder only the files of the same names are replaced.

    Returns:
        Bytes written.

    Raises:
        HotloopError: The format is unknown, the place is taken or cannot be written.
    """
    kind = _format(to)
    check(path, kind.folder, force)
    write: Callable[[Trace, Path], None] = importlib.import_module(
        f"hotloop.profiling.report.export.{kind.writer}"
    ).write
    try:
        place(path, lambda temporary: write(trace, temporary))
    except OSError as error:
        raise HotloopError(f"cannot write {path} ({error.strerror or error}): choose another with --output") from error
    return size_of(path)


def _format(to: str) -> Format:
    found = FORMATS.get(ALIASES.get(to, to))
    if found is None:
        raise HotloopError(f"cannot export to {to!r}: use one of {', '.join([*FORMATS, *ALIASES])}")
    return found
