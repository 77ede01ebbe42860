"""`hotloop`: finds the subcommand, loads only that one, and turns mistakes into one line and an exit code.

Exit codes: 0 done, 1 the answer is bad news, 2 the call was wrong, 130 interrupted.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

from hotloop.cli.output import note
from hotloop.errors import INTERRUPTED, HotloopError, Interrupted
from hotloop.escaping import printable
from hotloop.files import silence

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
DISK_TROUBLE = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG}
BROKEN_PIPE = 141
"""What a shell reports for a program that was writing into a pipe when its reader went away."""


class OneLineParser(argparse.ArgumentParser):
    """An argument parser whose complaint is one line."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and where to read more."""
        self.exit(WRONG_CALL, f"hotloop: {printable(message)}: see `{self.prog} --help`\n")

    def print_help(self, file: Any = None) -> None:
        """Print the help. The base class says nothing where that cannot be written."""
        print(self.format_help(), end="", file=file)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; return its exit code.

    Args:
        argv: Its words; without them those of this process, which then ends with the command.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if words[:1] == ["run"]:
            return _code_of(words, argv is None)  # Streams and warnings of a recorded script are its own.
        _prepare_streams()
        with warnings.catch_warnings():
            if not sys.warnoptions:
                warnings.simplefilter("ignore")  # they show source lines, and libraries give them for what is no fault
            return _code_of(words, argv is None)
    finally:
        _finish_streams()


def _code_of(words: list[str], owns_process: bool) -> int:
    """Do what a command line says, and turn what may go wrong into an exit code."""
    try:
        try:
            code = _dispatch(words, owns_process)
        except SystemExit:  # such as of --help
            sys.stdout.flush()
            raise
        sys.stdout.flush()
        return code
    except HotloopError as error:
        return _complain(str(error))
    except (KeyboardInterrupt, SystemError) as error:
        # A Ctrl-C that comes while compiled code runs is the cause of a SystemError.
        cause = error.__cause__ if isinstance(error, SystemError) else error
        if not isinstance(cause, KeyboardInterrupt):
            raise
        if owns_process:
            _ignore_signals()
        _complain("interrupted")
        return cause.exit_code if isinstance(cause, Interrupted) else INTERRUPTED
    except MemoryError as error:
        return _complain(f"out of memory ({str(error) or 'no more could be allocated'}): give smaller settings")
    except BrokenPipeError:
        silence(sys.stdout)
        return BROKEN_PIPE
    except OSError as error:
        if error.filename is not None:
            return _complain(f"{error.filename}: {error.strerror}: check the path and its rights")
        if error.errno not in DISK_TROUBLE:
            raise
        silence(sys.stdout)
        return _complain(f"cannot write the output: {error.strerror}: make room on its disk")


def _ignore_signals() -> None:
    """Let no second signal change the exit code that the first one has decided."""
    if threading.current_thread() is threading.main_thread():
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, signal.SIG_IGN)


def _complain(text: str) -> int:
    note(text)
    return WRONG_CALL


def _dispatch(words: list[str], owns_process: bool) -> int:
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
    arguments.rest, arguments.owns_process = rest, owns_process
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


def _prepare_streams() -> None:
    """Print into nothing where a stream is closed; print an escape where a terminal cannot show a character."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _finish_streams() -> None:
    """Write what is left; what cannot be written must not change the exit code."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            silence(stream)


if __name__ == "__main__":
    sys.exit(main())
