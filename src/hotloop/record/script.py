"""Run somebody's script or module, unmodified, with recording on. Its arguments and exit code stay its own."""

from __future__ import annotations

import importlib.util
import os
import runpy
import sys
import threading
import types
from dataclasses import dataclass, field
from pathlib import Path

from hotloop.errors import ScriptNotFound
from hotloop.record.options import RecordOptions
from hotloop.record.session import HOOKS_VARIABLE, Session, exit_code_of, record


@dataclass(frozen=True, slots=True)
class ScriptOptions:
    """What to run and how to record it."""

    target: str
    args: tuple[str, ...] = ()
    is_module: bool = False
    out: str | None = None
    modules: int = 1
    record: RecordOptions = field(default_factory=RecordOptions)


@dataclass(frozen=True, slots=True)
class ScriptResult:
    """How it ended."""

    exit_code: int
    path: Path
    recorded: bool
    """Whether the recording went on to the end."""


def run_script(options: ScriptOptions) -> ScriptResult:
    """Run the script to its end, recorded.

    An error of the script is printed as Python prints it and gives exit code 1, `sys.exit(n)` gives n; the run
    is complete in either case.

    Raises:
        ScriptNotFound: There is no such script or module.
    """
    code = None
    if options.is_module:
        _require_module(options.target)
    else:
        code = _compiled(options.target)
    os.environ[HOOKS_VARIABLE] = str(options.modules)
    words = [options.target, *options.args]
    session = record(options.out, options=options.record, hooks=True, command=words)
    recorder = session.recorder
    exit_code = 1
    try:
        exit_code = _run_main(options, code)
    finally:
        session.stop(exit_code)
    return ScriptResult(exit_code, session.path, recorder is not None and not recorder.failure)


def _require_module(name: str) -> None:
    sys.path.insert(0, os.getcwd())
    found: object = None
    try:
        found = importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        # Looking for a module of a package imports the package. What that misses is the script's to tell, when it runs.
        found = error if error.name and not f"{name}.".startswith(f"{error.name}.") else None
    except (ImportError, ValueError):
        pass
    if found is None:
        raise ScriptNotFound(f"there is no module {name!r}: give the name as for `python -m`, or a path to a script")


def _compiled(target: str) -> types.CodeType:
    path = Path(target)
    if path.is_dir():
        raise ScriptNotFound(f"{target} is a directory: give the script in it, or -m and the name of a module")
    if not path.is_file():
        raise ScriptNotFound(f"there is no script {target}: check the path, or give -m for a module")
    try:
        return compile(path.read_bytes(), str(path.absolute()), "exec")
    except (SyntaxError, ValueError) as error:
        raise ScriptNotFound(f"{target} is not Python: {error}; give a Python script") from None


def _run_main(options: ScriptOptions, code: types.CodeType | None) -> int:
    saved = sys.argv, list(sys.path)
    try:
        exit_code = _execute(options, code)
        _join_threads()
        return exit_code
    except KeyboardInterrupt as error:
        return exit_code_of(error)
    finally:
        sys.argv, sys.path[:] = saved


def _execute(options: ScriptOptions, code: types.CodeType | None) -> int:
    sys.argv = [options.target, *options.args]
    try:
        if code is None:
            runpy.run_module(options.target, run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = str(Path(options.target).absolute().parent)
            main = types.ModuleType("__main__")
            # What `python script.py` sets, so that pickling, spawning and inspect find the script.
            main.__dict__.update(
                __file__=str(Path(options.target).absolute()), __builtins__=__builtins__, __spec__=None
            )
            sys.modules["__main__"] = main
            exec(code, main.__dict__)
    except SystemExit as leaving:
        if leaving.code is not None and not isinstance(leaving.code, int):
            print(leaving.code, file=sys.stderr)
        return exit_code_of(leaving)
    except KeyboardInterrupt as error:
        return exit_code_of(error)
    except BaseException as error:
        _print_as_python_does(error)
        return 1
    return 0


def _join_threads() -> None:
    """Wait for the script's threads, as Python does before it ends: what they do belongs to the run."""
    # Those of an executor wait for ever until Python's own end tells them to go.
    executors = getattr(sys.modules.get("concurrent.futures.thread"), "_threads_queues", {})
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon and thread not in executors:
            thread.join()


def _print_as_python_does(error: BaseException) -> None:
    trace = error.__traceback__
    here = os.path.dirname(os.path.abspath(__file__))
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(
        (here, os.path.dirname(runpy.__file__) + "/runpy")
    ):
        trace = trace.tb_next
    sys.excepthook(type(error), error.with_traceback(trace), trace)


__all__ = ["ScriptOptions", "ScriptResult", "Session", "run_script"]
