"""`hotloop explain [RUN]`: reads a run, finds what makes it slow, and reports it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from hotloop.cli.arguments import file_ending_in
from hotloop.cli.output import note, print_rich
from hotloop.errors import HotloopError

if TYPE_CHECKING:
    from hotloop.profiling.report.view import Report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    parser.add_argument("RUN", nargs="?", help="run directory, or its name in runs/ (default: the newest in runs/)")
    parser.add_argument("--top", type=_top, metavar="N", help="show only the N best findings")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument(
        "--output", type=Path, metavar="F.txt", help="write the report as text, too (F.svg: as a picture)"
    )
    parser.add_argument("--charts", type=file_ending_in(".png"), metavar="F.png", help="draw the charts, too")
    parser.add_argument("--detailed", type=Path, metavar="F.json", help="write everything there is, too")


def run(arguments: argparse.Namespace) -> int:
    """Report on the run; return the exit code."""
    from hotloop.profiling.diagnosis import explain
    from hotloop.profiling.report import json, view
    from hotloop.profiling.trace.load import load
    from hotloop.profiling.trace.run_list import find

    trace = load(find(arguments.RUN))
    report = view.build(trace, explain(trace, top=arguments.top))
    if arguments.json:
        print(json.dumps(json.as_dict(report)))
    else:
        _print(report)
    if arguments.output:
        from hotloop.profiling.report import text

        _write(arguments.output, lambda path: text.write(report, path))
    if arguments.charts:
        from hotloop.profiling.report import charts

        _write(arguments.charts, lambda path: charts.write(report, path))
    if arguments.detailed:
        _write(arguments.detailed, lambda path: json.write(json.detailed(report, trace), path))
    return 0


def _top(value: str) -> int:
    if not value.isdigit() or int(value) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 on, not {value!r}")
    return int(value)


def _print(report: Report) -> None:
    from hotloop.profiling.report import terminal

    print_rich(*terminal.render(report), most_width=terminal.MAX_WIDTH)


def _write(path: Path, write: Callable[[Path], None]) -> None:
    try:
        write(path)
    except OSError as error:
        raise HotloopError(f"cannot write {path} ({error.strerror or error}): choose another file") from error
    note(f"wrote {path}")
