"""The report as plain text without colour, for a file or a bug report, or as an SVG image of the terminal."""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console

from hotloop.profiling.report import terminal
from hotloop.profiling.report.view import Report

WIDTH = 110


def as_text(report: Report) -> str:
    """Return the report as text of at most `WIDTH` columns."""
    buffer = io.StringIO()
    console = Console(file=buffer, width=WIDTH, color_system=None, force_terminal=False, highlight=False, emoji=False)
    terminal.show(report, console)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


def write(report: Report, path: Path) -> None:
    """Write the report to a file: as an image of the terminal if its name ends in .svg, else as text."""
    if path.suffix != ".svg":
        path.write_text(as_text(report), encoding="utf-8", errors="backslashreplace")
        return
    console = Console(file=io.StringIO(), width=WIDTH, record=True, force_terminal=True, highlight=False, emoji=False)
    terminal.show(report, console)
    # Remove the fonts that the image would load from the web.
    picture = re.sub(r"@font-face \{.*?\}", "", console.export_svg(title="hotloop explain"), flags=re.DOTALL)
    path.write_text(picture, encoding="utf-8", errors="backslashreplace")
