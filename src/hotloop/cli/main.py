"""`hotloop`: imports and runs the subcommand, and turns errors into one line and an exit code.

Exit codes: 0 done, 1 bad result (such as a failed gate), 2 wrong call, 130 interrupted.
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
from typing import TYPE_CHECKING, NoReturn

from hotloop.cli.output import note
from hotloop.errors import INTERRUPTED, HotloopError, Interrupted, interrupt_in
from hotloop.escaping import printable
from hotloop.files import silence

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

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
"""Exit code that a shell reports for a program that wrote into a closed pipe."""


class OneLineParser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Print the error and where to read more; exit."""
        self.exit(WRONG_CALL, f"hotloop: {printable(message)}: see `{self.prog} --help`\n")

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        """Print the help. The base class would ignore a failed write."""
        print(self.format_help(), end="", file=file)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; return its exit code.

    Args:
        argv: Its words; None for those of this process, which then ends with the command.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if words[:1] == ["run"]:
            return _code_of(words, argv is None)  # a recorded script keeps its streams and warnings
        _prepare_streams()
        with warnings.catch_warnings():
            if not sys.warnoptions:
                warnings.simplefilter("ignore")  # libraries warn about things that users cannot change
            return _code_of(words, argv is None)
    finally:
        _finish_streams()


def _code_of(words: list[str], owns_process: bool) -> int:
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
        interrupt = interrupt_in(error)
        if interrupt is None:
            raise
        if owns_process:
            _ignore_signals()
        _complain("interrupted")
        return interrupt.exit_code if isinstance(interrupt, Interrupted) else INTERRUPTED
    except MemoryError as error:
        return _complain(f"out of memory ({str(error) or 'no more could be allocated'}): give smaller settings")
    except BrokenPipeError:
        silence(sys.stdout)
        return BROKEN_PIPE
    except OSError as error:
        if error.filename is not None:
            return _complain(f"{error.filename}: {error.strerror}: check the path and its permissions")
        if error.errno not in DISK_TROUBLE:
            raise
        silence(sys.stdout)
        return _complain(f"cannot write the output: {error.strerror}: make room on its disk")


def _ignore_signals() -> None:
    """Prevent later signals from changing the exit code."""
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
    lines += ["", "Every command has --help. Every command except run has --json, for programs."]
    return "\n".join([*lines, "", f"Next: {_next_step()}"])


def _next_step() -> str:
    # A quick check without imports; `ls` is more precise but slower.
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
    """Discard output to a closed stream; escape characters that a terminal cannot show."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _finish_streams() -> None:
    """Flush the streams. A failed write must not change the exit code."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            silence(stream)


if __name__ == "__main__":
    sys.exit(main())
