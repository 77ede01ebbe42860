"""`hotloop ls`: the runs kept here, newest first."""

from __future__ import annotations

import argparse
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hotloop import numbers
from hotloop.cli.output import note, print_rich, say
from hotloop.errors import HotloopError
from hotloop.escaping import json_text, printable

if TYPE_CHECKING:
    from hotloop.profiling.trace.run_list import RunInfo

SCHEMA = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    parser.add_argument("--dir", type=Path, default=Path("runs"), metavar="DIR", help="where to look (default: runs)")
    parser.add_argument("--json", action="store_true", help="print the list as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the runs; return the exit code."""
    from hotloop.profiling.trace.run_list import survey

    runs, unreadable = survey(arguments.dir)
    found = [_row(each) for each in runs]
    for reason in unreadable:
        note(f"left out: {reason}")
    if arguments.json:
        print(json_text({"schema": SCHEMA, "runs": found, "unreadable": unreadable}))
    elif found:
        _print(found)
    else:
        say(f"No runs in {arguments.dir}. Record one: hotloop run train.py")
    return 0


def _row(each: RunInfo) -> dict[str, Any]:
    seconds, env_steps_per_s = _measured(each)
    return {
        "name": each.name,
        "path": str(each.path),
        "state": each.state,
        "complete": each.complete,
        "exit_code": each.exit_code,
        "started_unix_s": each.started_unix_ns / 1e9,
        "seconds": seconds,
        "size_bytes": each.size_bytes,
        "env_steps_per_s": env_steps_per_s,
    }


def _measured(each: RunInfo) -> tuple[float | None, float | None]:
    """Return the length (s) and the environment steps per second, each None if the recording does not have it."""
    from hotloop.profiling.trace import summary
    from hotloop.profiling.trace.load import load

    try:
        trace = load(each.path)
    except HotloopError:
        return each.seconds, None
    seconds = each.seconds if each.seconds is not None else (trace.startup_ns / 1e9 + trace.wall_s)
    return seconds, summary.rates(trace)["env_steps_per_s"].median or None


def _ending(row: dict[str, Any]) -> str:
    ending = numbers.ending(row["state"], row["exit_code"])
    return ending if row["complete"] else f"{ending}, incomplete"


def _print(rows: list[dict[str, Any]]) -> None:
    from rich.table import Table
    from rich.text import Text

    from hotloop.profiling.report.terminal import STATE_STYLES

    table = Table(box=None, padding=(0, 2), pad_edge=False, header_style="dim")
    for title in ("run", "started", "state"):
        table.add_column(title, no_wrap=True)
    for title in ("length", "env steps/s", "size"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            Text(printable(row["path"])),
            f"{datetime.fromtimestamp(row['started_unix_s']):%Y-%m-%d %H:%M:%S}",
            Text(_ending(row), STATE_STYLES[row["state"]]),
            numbers.seconds(row["seconds"]) if row["seconds"] is not None else "?",
            numbers.rate(row["env_steps_per_s"]) if row["env_steps_per_s"] else "-",
            numbers.size(row["size_bytes"]),
        )
    whole = sum(row["size_bytes"] for row in rows)
    print_rich(table, f"{len(rows)} run{'s' if len(rows) > 1 else ''}, {numbers.size(whole)}")
