"""Make a puzzle bank from the command line: `python -m hotloop.training.envs.ricochet DIRECTORY`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import cast

from hotloop.errors import HotloopError
from hotloop.escaping import json_text, printable
from hotloop.json_types import Json
from hotloop.training.envs.ricochet.puzzle_bank import Plan, make


def main(arguments: Sequence[str] | None = None) -> int:
    """Make a bank; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m hotloop.training.envs.ricochet", description="Make a puzzle bank.")
    default = Plan()
    parser.add_argument("directory", help="where to; it must not exist yet")
    parser.add_argument("--seed", type=int, default=default.seed)
    parser.add_argument("--per-level", type=int, default=default.per_level, help="boards of each level")
    parser.add_argument("--size", type=int, default=default.size)
    parser.add_argument("--robots", type=int, default=default.robots)
    parser.add_argument("--levels", type=int, nargs="+", default=default.levels)
    parser.add_argument("--held-out", type=float, default=default.held_out, help="share kept for evaluation")
    options = vars(parser.parse_args(arguments))
    directory = options.pop("directory")
    options["levels"] = tuple(options["levels"])
    try:
        manifest = make(directory, Plan(**options))
    except HotloopError as error:
        print(f"error: {printable(str(error))}", file=sys.stderr)
        return 2
    except OSError as error:
        reason = error.strerror or error
        name = printable(str(directory))
        print(f"error: cannot write {name} ({reason}): give a directory that can be written", file=sys.stderr)
        return 2
    print(json_text(cast("Json", manifest)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
