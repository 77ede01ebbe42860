"""Runs a script under `python` and under `hotloop run`, and reports the differences.

A case is a file `name.py`, or a folder `name/` with `main.py` and what it needs. `name.json` or `name/case.json` may
hold settings; `Case` lists them. Both run in a fresh copy of the case at the same path, so that even tracebacks can be
compared exactly.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
TIMEOUT_S = 100
OWN_LINES = re.compile(rb"^hotloop: .*\n", re.MULTILINE)
ADDRESS = re.compile(rb"0x[0-9a-f]{8,}")
HOTLOOP = [str(Path(sys.executable).with_name("hotloop")), "run", "--out", "{out}"]


@dataclass(frozen=True)
class Case:
    """What to run."""

    name: str
    source: Path
    args: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    module: str | None = None
    """Run as `-m module` in the case's folder."""
    script: str = "main.py"
    """May be a symlink, a folder or a zip."""
    cwd: str = "."
    stdin: str = ""
    close: list[str] = field(default_factory=list)
    """Streams to close before the start, like `>&-` in a shell."""
    links: dict[str, str] = field(default_factory=dict)
    """Symlinks to create, path to target: not every copy of a repository keeps them."""
    files: list[str] = field(default_factory=list)
    """Files written by the script, whose content is also compared."""
    recorded: bool = True
    """Whether the run directory exists at the end."""
    signal: dict[str, str] | None = None
    """`send`: a signal to send after the line `after_output` is printed."""


@dataclass(frozen=True)
class Outcome:
    """Exit code, output and files of a run."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    files: dict[str, bytes | None]


def find_cases(folder: Path) -> list[Case]:
    """Return the cases in a folder, by name."""
    found = []
    for path in sorted(folder.iterdir()):
        if path.is_dir() and path.name != "__pycache__":
            found.append(_read(path.name, path, path / "case.json", {}))
        elif path.suffix == ".py":
            found.append(_read(path.stem, path, path.with_suffix(".json"), {"script": path.name}))
    return found


def _read(name: str, source: Path, settings: Path, known: dict[str, Any]) -> Case:
    given = json.loads(settings.read_text(encoding="utf-8")) if settings.is_file() else {}
    return Case(name, source, **known | given)


def differences(case: Case, place: Path) -> list[str]:
    """Run a case both ways; return a line for each thing that differs."""
    plain = _outcome(case, place / "case", [sys.executable], place)
    recorded = _outcome(case, place / "case", [word.format(out=place / "run") for word in HOTLOOP], place)
    found = []
    if plain.exit_code != recorded.exit_code:
        found.append(f"exit code {plain.exit_code} under python, {recorded.exit_code} recorded")
    for name in ("stdout", "stderr"):
        if getattr(plain, name) != getattr(recorded, name):
            found.append(
                f"{name}:\n--- python\n{_text(getattr(plain, name))}\n--- recorded\n{_text(getattr(recorded, name))}"
            )
    found += [f"file {name} differs" for name in case.files if plain.files[name] != recorded.files[name]]
    if case.recorded != (place / "run" / "run.json").is_file():
        found.append("not recorded")
    return found


def _outcome(case: Case, place: Path, command: list[str], home: Path) -> Outcome:
    if place.exists():
        shutil.rmtree(place)
    if case.source.is_dir():
        shutil.copytree(case.source, place)
    else:
        place.mkdir()
        shutil.copy(case.source, place)
    for path, target in case.links.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).symlink_to(target)
    cwd = place / case.cwd
    script = case.script if os.path.isabs(case.script) else os.path.relpath(place / case.script, cwd)
    target = ["-m", case.module] if case.module else [script]
    process = subprocess.Popen(
        [*command, *target, *case.args],
        cwd=cwd,
        env=os.environ | {"PYTHONHASHSEED": "0"} | case.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: _prepare(case.close),
    )
    output = b""
    if case.signal is not None:
        assert process.stdout is not None
        for line in process.stdout:
            output += line
            if line.strip().decode() == case.signal["after_output"]:
                break
        process.send_signal(getattr(signal, case.signal["send"]))
    try:
        stdout, stderr = process.communicate(case.stdin.encode(), timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        stdout, stderr = process.communicate()
        stderr += b"(hangs)\n"
    files = {name: _content(cwd / name) for name in case.files}
    stderr = ADDRESS.sub(b"0x...", OWN_LINES.sub(b"", stderr))
    return Outcome(process.returncode, ADDRESS.sub(b"0x...", output + stdout), stderr, files)


def _prepare(close: list[str]) -> None:
    """In the new process: reset signals as in an interactive shell, and close streams."""
    for each in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(each, signal.SIG_DFL)
    for name in close:
        os.close(("stdin", "stdout", "stderr").index(name))


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _text(data: bytes) -> str:
    return data.decode(errors="backslashreplace")[-6000:]


def main(folder: str, *names: str) -> int:
    """Compare the cases of a folder, all or some; return how many differ."""
    import tempfile

    differing = 0
    cases = [case for case in find_cases(Path(folder)) if not names or case.name in names]
    for case in cases:
        with tempfile.TemporaryDirectory() as place:
            found = differences(case, Path(place))
        differing += bool(found)
        print(f"{'DIFFERS' if found else 'same   '} {case.name}", *found, sep="\n        ", flush=True)
    print(f"{len(cases) - differing} passed, {differing} failed")
    return differing


if __name__ == "__main__":
    sys.exit(bool(main(*sys.argv[1:])))
