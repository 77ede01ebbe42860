"""Runs an unmodified script or module with recording on.

`hotloop run` claims the run directory, then replaces itself with `python script.py`. In that interpreter
`startup/sitecustomize.py` calls `begin`, which starts the recorder just before Python runs the script.
"""

from __future__ import annotations

import json
import os
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, NoReturn

import hotloop
from hotloop.errors import ScriptNotFound
from hotloop.notice import keep_to_descriptor, notice
from hotloop.profiling.recorder import companion
from hotloop.profiling.recorder.record_options import RecordOptions
from hotloop.spans import hot_path

START_VARIABLE = "HOTLOOP_START"
STARTUP = Path(__file__).with_name("startup")
PACKAGE = Path(hotloop.__file__).parents[1]
ISOLATING = frozenset("IESPs")
"""Flags with which an installer may isolate the interpreter of `hotloop`. They must not reach the script."""


@dataclass(frozen=True, slots=True)
class ScriptOptions:
    """What to run and how to record it."""

    target: str
    args: tuple[str, ...] = ()
    is_module: bool = False
    out: str | None = None
    modules: int = 1
    record: RecordOptions = field(default_factory=RecordOptions)


def claim_run(options: ScriptOptions) -> Path | None:
    """Create the run directory of a script and return it. If it cannot be written, print a message and return None.

    Raises:
        ScriptNotFound: There is no such script or module.
        HotloopError: The directory is not empty.
    """
    from hotloop.default_run_path import default_path
    from hotloop.profiling.recorder.manifest import claim, describe_run

    _require_module(options.target) if options.is_module else _require_script(options.target)
    name = options.target.rpartition(".")[2] if options.is_module else options.target
    manifest = describe_run([options.target, *options.args], options.record, hooks=True)
    try:
        return claim(options.out, manifest, [name])
    except OSError as error:
        notice(f"cannot write to {options.out or default_path([name])} ({error}): the script runs without recording")
        return None


def run_script(options: ScriptOptions, path: Path | None) -> NoReturn:
    """Replace this process with Python running the script, recorded into `path` if that is not None."""
    before_target = ["-m"] if options.is_module else ["--"] if options.target.startswith("-") else []
    words = [*before_target, options.target, *options.args]
    environment = dict(os.environ)
    if path is not None:
        before = environment.get("PYTHONPATH")
        settings = {
            "out": str(path),
            "shown": options.out or os.path.relpath(path),
            "modules": options.modules,
            "options": asdict(options.record),
            "script": None if options.is_module else options.target,
            "pythonpath": before,
            "package": str(PACKAGE),
        }
        environment[START_VARIABLE] = json.dumps(settings)
        if hot_path.ACCELERATED:
            companion.fork(path)
        environment["PYTHONPATH"] = os.pathsep.join([str(STARTUP), *([before] if before else [])])
    os.execve(sys.executable, [sys.executable, *_interpreter_flags(), *words], environment)


def _interpreter_flags() -> list[str]:
    """Return the flags that this interpreter was started with: `python -X dev -m hotloop run script.py`."""
    flags: list[str] = []
    words = iter(sys.orig_argv[1:])
    for word in words:
        if word in ("-X", "-W"):
            flags += [word, next(words)]
        elif word.startswith(("-X", "-W", "--check-hash-based-pycs=")):
            flags.append(word)
        elif not word.startswith("-") or word[-1] in "mc-":
            break
        elif kept := "".join(each for each in word[1:] if each not in ISOLATING):
            flags.append(f"-{kept}")
    return flags


def begin(settings: dict[str, Any], before: set[str]) -> None:
    """Start the recorder of a script that Python is about to run.

    Args:
        settings: From `run_script`, through the environment variable START_VARIABLE.
        before: Names of the modules that were imported before the recorder.
    """
    keep_to_descriptor()
    script = settings["script"]
    with _silent_warnings():
        from hotloop.profiling.recorder.session import Session

        session = Session(Path(settings["out"]), RecordOptions(**settings["options"]), settings["modules"])
        session.announced_as = settings["shown"]
        session.start(companion_runs=True)
    _give_way(set(sys.modules) - before, os.getcwd() if script is None else _folder_of(script))


@contextmanager
def _silent_warnings() -> Iterator[None]:
    """Ignore warnings, even if they are set to raise errors. Keep filters that imports add, as in a script."""
    import warnings

    ignore = ("ignore", None, Warning, None, 0)
    warnings.filters.insert(0, ignore)  # type: ignore[attr-defined]
    warnings._filters_mutated()  # type: ignore[attr-defined]
    try:
        yield
    finally:
        warnings.filters.remove(ignore)  # type: ignore[attr-defined]
        warnings._filters_mutated()  # type: ignore[attr-defined]


def _give_way(imported: set[str], folder: str) -> None:
    """Unload modules that the script's folder has, too, so that the script imports its own and not the recorder's."""
    for name in {each.partition(".")[0] for each in imported} - {"hotloop"}:
        spec = PathFinder.find_spec(name, [folder])
        if spec is not None and spec.origin is not None:
            for each in [each for each in sys.modules if each == name or each.startswith(f"{name}.")]:
                del sys.modules[each]


def _folder_of(script: str) -> str:
    """Return the first entry of `sys.path` under which Python will run the script."""
    # Do not open a pipe: Python could not read its content again.
    archive = os.path.isdir(script) or (os.path.isfile(script) and zipfile.is_zipfile(script))
    return script if archive else os.path.dirname(os.path.realpath(script))


def _require_module(name: str) -> None:
    top = name.partition(".")[0]
    places = [os.getcwd(), *sys.path]
    if not top or (top not in sys.builtin_module_names and PathFinder.find_spec(top, places) is None):
        raise ScriptNotFound(f"there is no module {name!r}: give the name as for `python -m`, or a path to a script")


def _require_script(target: str) -> None:
    if os.path.isdir(target) and not os.path.exists(os.path.join(target, "__main__.py")):
        raise ScriptNotFound(f"{target} is a directory without a __main__.py: give a script, or -m and a module")
    if not os.path.exists(target):
        raise ScriptNotFound(f"there is no script {target}: check the path, or give -m for a module")
