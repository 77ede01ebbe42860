"""`hotloop prune`: removes old runs, but never a running one, and nothing that hotloop did not write."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hotloop import clock
from hotloop.cli.arguments import whole_number
from hotloop.cli.output import note, say
from hotloop.errors import HotloopError
from hotloop.escaping import json_text

if TYPE_CHECKING:
    from hotloop.profiling.trace.run_list import RunInfo

SCHEMA = 1
KEEP = 10
UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    add = parser.add_argument
    add("--keep", type=_count, metavar="N", help=f"keep the N newest (default {KEEP} without --older-than)")
    add("--older-than", type=_age_s, metavar="AGE", help="remove only runs older than this: 30m, 12h, 7d, 2w")
    add("--dir", type=Path, default=Path("runs"), metavar="DIR", help="where the runs are (default: runs)")
    add("--yes", action="store_true", help="do not ask for confirmation")
    add("--force", action="store_true", help="also remove runs that may be running: elsewhere, or just written to")
    add("--dry-run", action="store_true", help="only list what would be removed")
    add("--json", action="store_true", help="print the result as JSON (needs --yes or --dry-run)")


def run(arguments: argparse.Namespace) -> int:
    """Remove the runs; return the exit code."""
    from hotloop.profiling.trace.liveness import why_kept
    from hotloop.profiling.trace.removal import TRAINED_NAMES, remove
    from hotloop.profiling.trace.run_list import list_runs, size_of

    if arguments.json and not (arguments.yes or arguments.dry_run):
        raise HotloopError("--json does not ask, so it needs --yes to remove runs or --dry-run to list them")
    chosen = choose(list_runs(arguments.dir), arguments.keep, arguments.older_than)
    if not arguments.force:
        reasons = {each.path: why_kept(each.path, each.manifest, each.state) for each in chosen}
        chosen = [each for each in chosen if not reasons[each.path]]
        for path, reason in reasons.items():
            if reason:
                note(f"kept {path}: {reason}")
    if not arguments.json:
        _list(chosen, arguments.dir)
    removed = bool(chosen) and not arguments.dry_run and (arguments.yes or _is_confirmed())
    left: list[Path] = []
    for each in chosen if removed else []:
        try:
            left += remove(each, force=arguments.force)
        except OSError as error:
            raise HotloopError(f"cannot clear {each.path} ({error.strerror or error})") from error
    if arguments.json:
        paths = [str(each.path) for each in chosen]
        freed = sum(each.size_bytes for each in chosen) - sum(map(size_of, left))
        print(json_text({"schema": SCHEMA, "runs": paths, "size_bytes": freed, "removed": removed}))
    for folder in dict.fromkeys(path.parent for path in left if path.name in TRAINED_NAMES):
        note(f"kept the agent in {folder}: remove the folder if you do not want it")
    for path in left:
        if path.name not in TRAINED_NAMES:
            note(f"left {path}, which hotloop did not write")
    return 0


def choose(runs: list[RunInfo], keep: int | None, older_than_s: float | None) -> list[RunInfo]:
    """Return the runs to remove. The list has the newest first."""
    if keep is None:
        keep = 0 if older_than_s is not None else KEEP
    now = clock.wall_ns()
    return [
        each
        for each in runs[keep:]
        if each.state != "running" and (older_than_s is None or (now - each.started_unix_ns) / 1e9 > older_than_s)
    ]


def _list(chosen: list[RunInfo], root: Path) -> None:
    from hotloop import numbers

    if not chosen:
        say(f"Nothing to clear in {root}.")
        return
    for each in chosen:
        say(f"{each.path}  {numbers.ending(each.state, each.exit_code)}  {numbers.size(each.size_bytes)}")
    freed = numbers.size(sum(each.size_bytes for each in chosen))
    print(f"{len(chosen)} run{'s' if len(chosen) > 1 else ''}, {freed}")


def _is_confirmed() -> bool:
    if not sys.stdin.isatty():
        raise HotloopError("cannot ask for confirmation: stdin is not a terminal: use --yes or --dry-run")
    return input("Clear them? [y/N] ").strip().lower() in ("y", "yes")


def _count(value: str) -> int:
    return whole_number(value, least=0)


def _age_s(value: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", value)
    if not match:
        raise argparse.ArgumentTypeError(f"must be a number and a unit such as 12h or 7d, not {value!r}")
    return float(match[1]) * UNITS_S[match[2]]
