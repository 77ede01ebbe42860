"""Checkpoints: everything a run needs to continue, as safetensors and JSON. Nothing in them is ever unpickled.

A checkpoint is a directory; see `checkpoint_files`. It is written under another name, flushed to the disk and renamed,
so under its own name it is complete. One of the same name is first moved aside: whenever the process is killed, either
the new or the old one is there and is found. Leftovers are removed by the next write.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from hotloop.files import resolved
from hotloop.json_types import Json
from hotloop.training.run.checkpoint_files import (
    META,
    CheckpointUnreadable,
    Groups,
    flush_directory,
    read_arrays,
    read_description,
    write_files,
)

FOLDER = "checkpoints"
BEST = "best"
STEP = "step-"
UNFINISHED, REPLACED, REMOVING = ".unfinished-", ".replaced-", ".removing-"
"""Prefixes of a checkpoint that is being written, replaced or removed."""
NO_LINKS = (errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint that was read."""

    path: Path
    meta: Mapping[str, Json]
    """JSON values of the run and its pipeline."""
    groups: Groups
    """Arrays by group and name."""


def write(path: Path, groups: Groups, meta: Mapping[str, Json]) -> None:
    """Write a checkpoint completely, or not at all; an existing one is replaced.

    Raises:
        OSError: It could not be written. Nothing of it remains, and an existing checkpoint is unchanged.
    """
    _make(path, lambda folder: write_files(folder, groups, meta))


def bring(source: Path, path: Path) -> None:
    """Copy a checkpoint to another directory. Files are hard-linked where possible.

    Raises:
        OSError: It could not be written; nothing of it remains.
        CheckpointUnreadable: The source is not a checkpoint.
    """
    names = [META, *read_description(source)[0]]

    def fill(folder: Path) -> None:
        for name in names:
            try:
                os.link(source / name, folder / name, follow_symlinks=False)
            except OSError as error:
                if error.errno not in NO_LINKS:
                    raise
                shutil.copyfile(source / name, folder / name, follow_symlinks=False)
        flush_directory(folder)

    _make(path, fill)


def read(path: Path, only: Collection[str] | None = None) -> Checkpoint:
    """Read a checkpoint, or only some groups of it, and check that it is complete and undamaged."""
    digests, meta = read_description(path)
    wanted = {name: digest for name, digest in digests.items() if only is None or _group(name) in only}
    return Checkpoint(path, meta, {_group(name): read_arrays(path / name, each) for name, each in wanted.items()})


def step_path(run: Path, env_steps: int) -> Path:
    """Return the path of a run's checkpoint after this many environment steps."""
    return run / FOLDER / f"{STEP}{env_steps:012d}"


def step_of(path: Path) -> int | None:
    """Return the environment steps in the name of a checkpoint; None if there are none."""
    number = path.name.removeprefix(REPLACED).removeprefix(STEP)
    return int(number) if number.isdecimal() else None


def mark_best(checkpoint: Path) -> None:
    """Make the link `best` point to a checkpoint, atomically."""
    link = checkpoint.parent / f"{UNFINISHED}{BEST}"
    link.unlink(missing_ok=True)
    link.symlink_to(checkpoint.name, target_is_directory=True)
    os.replace(link, checkpoint.parent / BEST)


def keep_last(run: Path, most: int) -> None:
    """Remove the older checkpoints of a run, but never the best one.

    Raises:
        OSError: One cannot be removed, or it is unknown which one is the best.
    """
    folder = run / FOLDER
    best = resolved(folder / BEST)
    for path in _steps(folder)[:-most]:
        if resolved(path) != best:
            _remove(path)


def check_best(folder: Path) -> None:
    """Reject a folder of checkpoints whose link `best` leads in a circle."""
    try:
        resolved(folder / BEST)
    except OSError as error:
        reason = error.strerror or error
        raise CheckpointUnreadable(f"{folder / BEST} cannot be followed ({reason}): remove this link") from error


def find(path: Path, best: bool = False) -> Path:
    """Return the directory of a checkpoint, given that, a file in it, or a run directory.

    Of a run directory it is the last checkpoint, or the `best`, if it has one.
    """
    named = _present(path.parent if path.is_file() else path)
    if named is not None:
        return named
    if not path.exists():
        raise CheckpointUnreadable(f"no checkpoint at {path}: name a run directory, or one of its {FOLDER}/*")
    folder = path if path.name == FOLDER else path / FOLDER
    chosen = _present(folder / BEST) if best else None
    if chosen is not None:
        return chosen
    steps = _steps(folder)
    if not steps:
        raise CheckpointUnreadable(f"{path} holds no checkpoint: name a run directory of `hotloop train`")
    return steps[-1]


def _group(file: str) -> str:
    return file.rpartition(".")[0]


def _present(path: Path) -> Path | None:
    """Return the directory of a checkpoint, or of the old one if a process was killed while replacing it."""
    if (path / META).exists():
        return path
    target = path.parent / os.readlink(path) if path.is_symlink() else path
    aside = target.with_name(f"{REPLACED}{target.name}") if target.name else target
    return aside if (aside / META).exists() else None


def _steps(folder: Path) -> list[Path]:
    """Return the checkpoints of a run, ordered by their steps."""
    names = {
        each.name.removeprefix(REPLACED) for each in (*folder.glob(f"{STEP}*"), *folder.glob(f"{REPLACED}{STEP}*"))
    }
    present = [found for name in names if (found := _present(folder / name)) is not None]
    numbered = [(number, each) for each in present if (number := step_of(each)) is not None]
    return [each for _, each in sorted(numbered)]


def _make(path: Path, fill: Callable[[Path], None]) -> None:
    """Let `fill` write a directory under a temporary name, then rename it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _tidy(path)
    making = path.with_name(f"{UNFINISHED}{path.name}")
    try:
        making.mkdir()
        fill(making)
        _put(making, path)
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise


def _put(making: Path, path: Path) -> None:
    """Rename a complete directory to `path`. If killed in between, `_present` finds the old one."""
    aside = path.with_name(f"{REPLACED}{path.name}")
    replaces = path.exists()
    if replaces:
        path.rename(aside)
    try:
        making.rename(path)
    except BaseException:
        if replaces:
            aside.rename(path)
        raise
    flush_directory(path.parent)
    if replaces:
        _remove(aside)


def _remove(path: Path) -> None:
    """Remove a checkpoint. If interrupted, the remains no longer count as a checkpoint."""
    going = path.with_name(f"{REMOVING}{path.name.removeprefix(REPLACED)}")
    shutil.rmtree(going, ignore_errors=True)
    path.rename(going)
    shutil.rmtree(going)


def _tidy(path: Path) -> None:
    """Remove what killed processes left behind in a run, or elsewhere of this checkpoint."""
    for prefix in (UNFINISHED, REMOVING, REPLACED):
        for each in path.parent.glob(f"{prefix}*"):
            name = each.name.removeprefix(prefix)
            if name != path.name and not (name.startswith(STEP) and path.name.startswith(STEP)):
                continue
            if prefix != REPLACED:
                shutil.rmtree(each)
            elif each.with_name(name).exists():
                _remove(each)
            else:
                each.rename(each.with_name(name))
