"""Where runs are kept: find the newest, list them, say whether one is still going, remove one.

A run is a directory with hotloop's `run.json`. Only files that hotloop wrote are ever removed, so a run that
was recorded into somebody's project directory costs them nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from hotloop.errors import RunNotFound, RunUnreadable
from hotloop.trace.model import FORMAT_VERSION, State

DEFAULT_ROOT = Path("runs")
MANIFEST = "run.json"
PROCESS = "process.json"
REQUIRED = ("format", "started_unix_ns")
SAME_PROCESS_S = 1.0
"""A process id whose process began later than this after the recorded one belongs to another program."""

OWN_NAMES = frozenset(
    {PROCESS, "names.jsonl", "state.json", "claims.json", "functions.json", "operators.json", "layers.json"}
)
OWN_ENDINGS = (".arrows", ".arrow", ".part")
TRAINED_NAMES = frozenset({"checkpoints", "config.toml", "progress.csv", "result.json", "tensorboard"})
"""What `hotloop train` keeps of an agent. Minutes or hours went into it: clearing recordings leaves it."""


@dataclass(frozen=True, slots=True)
class RunInfo:
    """A run as its manifest tells it, without reading its streams."""

    path: Path
    name: str
    state: State
    started_unix_ns: int
    seconds: float | None
    """Length of the recording; None while it runs and after it was killed, where nobody wrote it down."""
    exit_code: int | None
    """Of the script; None where nobody wrote it down."""
    size_bytes: int
    manifest: Mapping[str, Any]


def read_manifest(path: Path) -> dict[str, Any]:
    """Return a run's manifest.

    Raises:
        RunNotFound: There is nothing at the path.
        RunUnreadable: What is there is not a run, or was written by a newer hotloop.
    """
    if not path.exists():
        raise RunNotFound(f"no run at {path}: see what there is with `hotloop ls`")
    file = path / MANIFEST
    if not file.is_file():
        raise RunUnreadable(f"{path} is not a run of hotloop (it has no {MANIFEST}): see `hotloop ls`")
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunUnreadable(f"{file} cannot be read ({error}): record the run again") from error
    if not isinstance(manifest, dict) or not all(isinstance(manifest.get(key), int) for key in REQUIRED):
        raise RunUnreadable(f"{file} was not written by hotloop: see `hotloop ls`")
    if manifest["format"] > FORMAT_VERSION:
        raise RunUnreadable(
            f"{path} has format {manifest['format']}, this hotloop reads up to {FORMAT_VERSION}: "
            "upgrade hotloop to read it"
        )
    return manifest


def state_of(manifest: Mapping[str, Any]) -> State:
    """Return the state of a run: one that says "running" but whose process is gone was killed."""
    state = manifest.get("state")
    if state != "running":
        return state if state in ("failed", "interrupted") else "finished"
    try:
        process = psutil.Process(int(manifest.get("pid", -1)))
        created = manifest.get("process_create_time")
        same = created is None or abs(process.create_time() - float(created)) < SAME_PROCESS_S
        alive = same and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, ValueError, TypeError):
        alive = False
    return "running" if alive else "killed"


def exit_code_of(manifest: Mapping[str, Any]) -> int | None:
    """Return the exit code of a run's script, if it is known."""
    code = manifest.get("exit_code")
    return code if isinstance(code, int) else None


def info(path: Path) -> RunInfo:
    """Return what is known of one run."""
    manifest = read_manifest(path)
    seconds = manifest.get("seconds")
    return RunInfo(
        path=path,
        name=str(manifest.get("name") or path.name),
        state=state_of(manifest),
        started_unix_ns=manifest["started_unix_ns"],
        seconds=float(seconds) if isinstance(seconds, int | float) else None,
        exit_code=exit_code_of(manifest),
        size_bytes=size_of(path),
        manifest=manifest,
    )


def list_runs(root: Path = DEFAULT_ROOT) -> list[RunInfo]:
    """Return the runs directly below a directory, newest first. What is not a readable run is left out."""
    if not root.is_dir():
        return []
    found = []
    for path in root.iterdir():
        if path.is_symlink() or not (path / MANIFEST).is_file():
            continue
        try:
            found.append(info(path))
        except RunUnreadable:
            continue
    return sorted(found, key=lambda run: (-run.started_unix_ns, run.path.name))


def newest(root: Path = DEFAULT_ROOT) -> Path:
    """Return the run that was started last.

    Raises:
        RunNotFound: There is none.
    """
    found = list_runs(root)
    if not found:
        raise RunNotFound(f"no run in {root}: record one with `hotloop run script.py`, or name a directory")
    return found[0].path


def find(name: str | None, root: Path = DEFAULT_ROOT) -> Path:
    """Return the run that a user means: a directory, a report on one, a name below `root`, or if None the newest."""
    if name is None:
        return newest(root)
    path = Path(name)
    if path.is_file():
        path = _reported(path)
    if not path.exists() and (root / name).exists():
        return root / name
    read_manifest(path)
    return path


def _reported(file: Path) -> Path:
    """Return the run that a JSON report (`--profile-report`, `explain --detailed`) was made from."""
    try:
        run = json.loads(file.read_text(encoding="utf-8"))["run"]
    except (OSError, ValueError, KeyError, TypeError):
        raise RunUnreadable(f"{file} is no report of hotloop: give a run directory, see `hotloop ls`") from None
    if not Path(run).is_dir():
        raise RunNotFound(f"{file} reports on {run}, which is not there any more: give a run directory")
    return Path(run)


def remove(run: RunInfo) -> list[Path]:
    """Delete what hotloop wrote of a run; return what is left of it, which others put there."""
    for folder in [each for each in run.path.iterdir() if (each / PROCESS).is_file()]:
        for file in folder.iterdir():
            if file.name in OWN_NAMES or file.name.endswith(OWN_ENDINGS):
                file.unlink()
        if not any(folder.iterdir()):
            folder.rmdir()
    (run.path / f"{MANIFEST}.part").unlink(missing_ok=True)
    (run.path / MANIFEST).unlink()
    left = sorted(run.path.iterdir())
    if not left:
        run.path.rmdir()
    return left


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder."""
    total = 0
    for file in [path] if path.is_file() else path.rglob("*"):
        try:
            total += 0 if file.is_symlink() or not file.is_file() else file.stat().st_size
        except OSError:
            continue  # replaced or removed meanwhile by the run itself
    return total
