"""`hotloop explain [RUN]`: reports what makes a run slow."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from hotloop.cli.arguments import file_ending_in, whole_number
from hotloop.cli.output import print_rich, writing

if TYPE_CHECKING:
    from hotloop.profiling.report.view import Report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    parser.add_argument("RUN", nargs="?", help="run directory, or its name in runs/ (default: the newest in runs/)")
    parser.add_argument("--top", type=whole_number, metavar="N", help="show only the N best findings")
    parser.add_argument("--brief", action="store_true", help="print only the verdict")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument(
        "--output", type=Path, metavar="F.txt", help="also write the report as text (F.svg: as a picture)"
    )
    parser.add_argument("--charts", type=file_ending_in(".png"), metavar="F.png", help="also draw the charts")
    parser.add_argument("--detailed", type=Path, metavar="F.json", help="also write all details")


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
        _print(report, arguments.brief)
    if arguments.output:
        from hotloop.profiling.report import text

        with writing(arguments.output):
            text.write(report, arguments.output)
    if arguments.charts:
        from hotloop.profiling.report import charts

        with writing(arguments.charts):
            charts.write(report, arguments.charts)
    if arguments.detailed:
        with writing(arguments.detailed):
            json.write(json.detailed(report, trace), arguments.detailed)
    return 0


def _print(report: Report, brief: bool) -> None:
    from hotloop.profiling.report import terminal

    shown = terminal.render_brief(report) if brief else terminal.render(report)
    print_rich(*shown, most_width=terminal.MAX_WIDTH)
