"""A run in other tools' formats: a timeline for Perfetto, flame graphs for speedscope, tables as CSV, TensorBoard.

Each writer is a function of a `Report`, its `Trace` and a path: the report has the numbers that other reports show as
well, the trace everything else. `export` writes completely or not at all. Writers are imported when they are needed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hotloop.errors import HotloopError
from hotloop.profiling.report import view
from hotloop.profiling.report.export.target import check, place
from hotloop.profiling.report.view import Report
from hotloop.profiling.trace.model import Trace
from hotloop.profiling.trace.run_list import size_of


@dataclass(frozen=True, slots=True)
class Format:
    """An export format."""

    about: str
    ending: str
    """End of the default file name."""
    folder: bool
    """Whether the export is a folder of files."""
    writer: str
    """Module with a function `write(report, trace, path)`."""


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
        force: Whether to replace an existing export. In a folder, only files of the same name are replaced.

    Returns:
        Bytes written.

    Raises:
        HotloopError: The format is unknown, or the path exists or cannot be written.
    """
    kind = _format(to)
    check(path, kind.folder, force)
    write: Callable[[Report, Trace, Path], None] = importlib.import_module(
        f"hotloop.profiling.report.export.{kind.writer}"
    ).write
    report = view.build(trace, ())
    try:
        place(path, lambda temporary: write(report, trace, temporary))
    except OSError as error:
        raise HotloopError(f"cannot write {path} ({error.strerror or error}): choose another with --output") from error
    return size_of(path)


def _format(to: str) -> Format:
    found = FORMATS.get(ALIASES.get(to, to))
    if found is None:
        raise HotloopError(f"cannot export to {to!r}: use one of {', '.join([*FORMATS, *ALIASES])}")
    return found
