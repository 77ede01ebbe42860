"""`hotloop doctor`: is this machine set up for training? Works without torch."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from hotloop.escaping import json_text, printable

if TYPE_CHECKING:
    from hotloop.cli.doctor_checks import Check

SCHEMA = 1
MARKS = {"ok": ("OK", "green"), "note": ("note", "yellow"), "problem": ("problem", "bold red")}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    parser.add_argument("--json", action="store_true", help="print the checks as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the checks; return the exit code."""
    from hotloop.cli.doctor_checks import all_checks
    from hotloop.profiling.recorder.machine import describe_machine, library_versions

    machine, versions = describe_machine(), library_versions()
    checks = all_checks(machine, versions)
    if arguments.json:
        content = {
            "schema": SCHEMA,
            "healthy": not any(check.verdict == "problem" for check in checks),
            "checks": [asdict(check) for check in checks],
            "machine": machine,
            "versions": versions,
        }
        print(json_text(content))
    else:
        _print(checks)
    return 0


def _print(checks: list[Check]) -> None:
    from rich.table import Table
    from rich.text import Text

    from hotloop.cli.output import print_rich

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    for check in checks:
        mark, style = MARKS[check.verdict]
        says = Text(printable(check.value))
        if check.remedy:
            says.append(f"\n→ {printable(check.remedy)}", style)
        table.add_row(Text(mark, style), Text(check.name), says)
    print_rich(table, _verdict(checks))


def _verdict(checks: list[Check]) -> str:
    problems = sum(check.verdict == "problem" for check in checks)
    if problems:
        return f"\n{problems} problem{'s' if problems > 1 else ''} to solve before training here."
    return "\nThis machine is set up for training."
