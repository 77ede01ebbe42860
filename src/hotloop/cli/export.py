"""`hotloop export [RUN] --to FORMAT`: a run for other tools."""

from __future__ import annotations

import argparse
from pathlib import Path

from hotloop.cli.output import say
from hotloop.escaping import json_text
from hotloop.profiling.report.export import ALIASES, FORMATS

SCHEMA = 1
OPENING = {
    "perfetto": "open it in https://ui.perfetto.dev (drag it there; nothing is uploaded) or chrome://tracing",
    "speedscope": "open it in https://www.speedscope.app (nothing is uploaded), view Left Heavy",
    "csv": "pandas.read_csv, one file per table",
    "tensorboard": "tensorboard --logdir {path}",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    known = "\n".join(f"  {name:<12} {each.about}" for name, each in FORMATS.items())
    parser.epilog = f"formats:\n{known}\n  chrome       the same as perfetto\n\nEach is described in docs/export.md."
    parser.add_argument("RUN", nargs="?", help="run directory, or its name in runs/ (default: the newest in runs/)")
    parser.add_argument("--to", required=True, choices=[*FORMATS, *ALIASES], metavar="FORMAT", help="see below")
    output = "file to write, or folder for csv and tensorboard; F.json.gz compresses (default: named after the run)"
    parser.add_argument("--output", type=Path, metavar="PATH", help=output)
    parser.add_argument("--force", action="store_true", help="overwrite existing files")
    parser.add_argument("--json", action="store_true", help="print what was written as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Write the run; return the exit code."""
    from hotloop import numbers
    from hotloop.profiling.report.export import default_path, export
    from hotloop.profiling.trace.load import load
    from hotloop.profiling.trace.run_list import find

    trace = load(find(arguments.RUN))
    path = arguments.output or default_path(trace, arguments.to)
    size = export(trace, arguments.to, path, force=arguments.force)
    if arguments.json:
        print(json_text({"schema": SCHEMA, "to": arguments.to, "path": str(path), "bytes": size}))
    else:
        to: str = arguments.to
        opening = OPENING[ALIASES.get(to, to)].format(path=path)
        say(f"wrote {path} ({numbers.size(size)}): {opening}")
    return 0
