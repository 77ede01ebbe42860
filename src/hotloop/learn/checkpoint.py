"""Checkpoints: what a run needs to go on, as safetensors and JSON. Nothing in them is ever unpickled.

A checkpoint is a directory: `checkpoint.json` (pipeline, configuration, counters, random states, digests) and
one `<group>.safetensors` a group of arrays, so that playing an agent need not read its replay. It is written
under another name, flushed to the disk and renamed: under its own name it is whole, or not there.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hotloop.errors import HotloopError

FORMAT = 1
META = "checkpoint.json"
FOLDER = "checkpoints"
BEST = "best"
STEP = "step-"
UNFINISHED = ".unfinished-"

Groups = Mapping[str, Mapping[str, np.ndarray]]


class CheckpointUnreadable(HotloopError):
    """There is no checkpoint, it is damaged, or another version or pipeline wrote it."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint that was read."""

    path: Path
    meta: Mapping[str, Any]
    """What the pipeline put in."""
    groups: Groups
    """Arrays by group and name."""


def write(path: Path, groups: Groups, meta: Mapping[str, Any]) -> None:
    """Write a checkpoint whole, or not at all.

    Args:
        path: The directory to make; one that is there already is replaced.
        groups: Arrays by group and name.
        meta: What JSON can hold: configuration, counters, states of random generators.
    """
    from safetensors.numpy import save_file

    path.parent.mkdir(parents=True, exist_ok=True)
    making = path.parent / f"{UNFINISHED}{path.name}"
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir()
    digests = {}
    for name, arrays in groups.items():
        file = making / f"{name}.safetensors"
        save_file({key: np.asarray(value, order="C") for key, value in arrays.items()}, file)
        digests[file.name] = _digest(file)
        _flush(file)
    file = making / META
    file.write_text(json.dumps({"format": FORMAT, "digests": digests, "meta": dict(meta)}, indent=1), encoding="utf-8")
    _flush(file)
    _flush(making)
    if path.exists():
        shutil.rmtree(path)
    making.rename(path)
    _flush(path.parent)


def read(path: Path, only: Collection[str] | None = None) -> Checkpoint:
    """Read a checkpoint and check that it is whole.

    Args:
        path: A checkpoint's directory.
        only: The groups to read; all if not given.

    Raises:
        CheckpointUnreadable: It is not there, is damaged, or is of a newer format.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    outer = _read_meta(path)
    groups = {}
    for name, digest in outer["digests"].items():
        file, group = path / name, name.removesuffix(".safetensors")
        if only is not None and group not in only:
            continue
        if not file.is_file() or _digest(file) != digest:
            raise CheckpointUnreadable(f"{file} is damaged or missing: use another checkpoint of {path.parent}")
        try:
            groups[group] = load_file(file)
        except SafetensorError as error:
            raise CheckpointUnreadable(f"{file} cannot be read ({error}): use another checkpoint") from error
    return Checkpoint(path, outer["meta"], groups)


def step_path(run: Path, env_steps: int) -> Path:
    """Where a run keeps its checkpoint of so many environment steps."""
    return run / FOLDER / f"{STEP}{env_steps:012d}"


def mark_best(checkpoint: Path) -> None:
    """Let `best` beside a checkpoint name it, in one move."""
    link = checkpoint.parent / f"{UNFINISHED}{BEST}"
    link.unlink(missing_ok=True)
    link.symlink_to(checkpoint.name, target_is_directory=True)
    os.replace(link, checkpoint.parent / BEST)


def keep_last(run: Path, most: int) -> None:
    """Remove a run's older checkpoints, but never its best."""
    folder = run / FOLDER
    best = (folder / BEST).resolve()
    for path in _steps(folder)[:-most]:
        if path.resolve() != best:
            shutil.rmtree(path)


def find(path: Path, best: bool = False) -> Path:
    """Return the checkpoint that a user means.

    Args:
        path: A checkpoint's directory, or a file in it, or a run directory.
        best: Of a run directory take the best, not the last, if it has one.
    """
    if not path.exists():
        raise CheckpointUnreadable(f"no checkpoint at {path}: name a run directory, or one of its {FOLDER}/*")
    path = path.parent if path.is_file() else path
    if (path / META).exists():
        return path
    folder = path if path.name == FOLDER else path / FOLDER
    if best and (folder / BEST / META).exists():
        return folder / BEST
    steps = _steps(folder)
    if not steps:
        raise CheckpointUnreadable(f"{path} holds no checkpoint: name a run directory of `hotloop train`")
    return steps[-1]


def _steps(folder: Path) -> list[Path]:
    return sorted(each for each in folder.glob(f"{STEP}*") if (each / META).is_file())


def _read_meta(path: Path) -> dict[str, Any]:
    file = path / META
    try:
        outer = json.loads(file.read_text(encoding="utf-8"))
        written, _, _ = outer["format"], outer["digests"].items(), outer["meta"].items()
    except FileNotFoundError as error:
        raise CheckpointUnreadable(f"{path} is not a checkpoint (it has no {META}): name one of {FOLDER}/*") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointUnreadable(f"{file} is damaged ({error}): use another checkpoint") from error
    if written != FORMAT:
        raise CheckpointUnreadable(f"{path} has format {written}, this hotloop reads {FORMAT}: upgrade hotloop")
    return outer


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _flush(path: Path) -> None:
    """Wait until the disk has it. Directories too: a rename is only as lasting as the directory that holds it."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
