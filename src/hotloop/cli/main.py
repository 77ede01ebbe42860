"""`hotloop`: finds the subcommand, loads only that one, and turns mistakes into one line and an exit code.

Exit codes: 0 done, 1 the answer is bad news, 2 the call was wrong, 130 interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from hotloop.errors import HotloopError

COMMANDS = {
    "demo": "a minute: train Snake, see where the time goes",
    "train": "train one of the pipelines",
    "play": "watch a trained agent, or film it",
    "evaluate": "play greedy episodes on held-out seeds",
    "run": "record an unmodified training script",
    "explain": "say where the time goes and what to change",
    "export": "write a run for Perfetto, speedscope, TensorBoard, or as CSV",
    "ls": "list the runs kept here",
    "prune": "clear old runs",
    "doctor": "check whether this machine is set up for training",
}
WRONG_CALL = 2
INTERRUPTED = 130
BROKEN_PIPE = 141
"""What a shell reports for a program that was writing into a pipe when its reader went away."""


class OneLineParser(argparse.ArgumentParser):
    """An argument parser whose complaint is one line."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and where to read more."""
        self.exit(WRONG_CALL, f"hotloop: {message}: see `{self.prog} --help`\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _dispatch(words)
        sys.stdout.flush()
        return code
    except HotloopError as error:
        print(f"hotloop: {error}", file=sys.stderr)
        return WRONG_CALL
    except (KeyboardInterrupt, SystemError) as error:
        # A Ctrl-C that comes while compiled code runs is the cause of a SystemError.
        if isinstance(error, SystemError) and not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        print("hotloop: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The interpreter would flush, and complain, once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except OSError as error:
        if error.filename is None:
            raise
        print(f"hotloop: {error.filename}: {error.strerror}: check the path and its rights", file=sys.stderr)
        return WRONG_CALL


def _dispatch(words: list[str]) -> int:
    _tolerate_encodings()
    if not words or words[0] in ("-h", "--help", "help"):
        print(_overview())
        return 0
    if words[0] in ("--version", "-V", "version"):
        print(f"hotloop {_version()}")
        return 0
    command = words[0]
    if command not in COMMANDS:
        kind = "option" if command.startswith("-") else "command"
        known = ", ".join(COMMANDS)
        raise HotloopError(f"unknown {kind} {command!r}: use one of {known}, or see `hotloop --help`")
    module = importlib.import_module(f"hotloop.cli.{command}")
    summary = COMMANDS[command]
    parser = OneLineParser(
        prog=f"hotloop {command}",
        description=summary[0].upper() + summary[1:] + ".",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_arguments(parser)
    split = getattr(module, "split", None)
    own, rest = split(parser, words[1:]) if split else (words[1:], [])
    arguments = parser.parse_args(own)
    arguments.rest = rest
    return module.run(arguments)


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = ["hotloop: why is this training slow, and what would make it fast?", ""]
    lines += [f"  hotloop {name:<{width}}   {summary}" for name, summary in COMMANDS.items()]
    lines += ["", "Each command has --help, and each but run, whose output is the script's, --json for programs."]
    return "\n".join([*lines, "", f"Next: {_next_step()}"])


def _next_step() -> str:
    # A glance that imports nothing: `ls` knows better, but takes longer.
    if any(os.path.isfile(os.path.join("runs", name, "run.json")) for name in _listing("runs")):
        return "hotloop explain            (reads the newest run in runs/)"
    return "hotloop run train.py       (records your script as it is)"


def _listing(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("hotloop")
    except PackageNotFoundError:
        return "(not installed)"


def _tolerate_encodings() -> None:
    """Let a terminal that cannot show a character show a question mark."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")


if __name__ == "__main__":
    sys.exit(main())
