"""The report as plain text: what the terminal shows, without colour, for a file or a bug report."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from hotloop.report import terminal
from hotloop.report.view import Report

WIDTH = 110


def as_text(report: Report) -> str:
    """Return the report as text of at most `WIDTH` columns."""
    buffer = io.StringIO()
    console = Console(file=buffer, width=WIDTH, color_system=None, force_terminal=False, highlight=False, emoji=False)
    terminal.show(report, console)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


def write(report: Report, path: Path) -> None:
    """Write the report to a file."""
    path.write_text(as_text(report), encoding="utf-8")
