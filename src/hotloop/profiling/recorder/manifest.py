"""A run's manifest, `run.json`: written when the run directory is claimed, completed when the run ends.

If two recordings claim the same directory, only one gets it. The file is padded with spaces, so that the final version
can be written in place even if the disk is full by then.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import psutil

from hotloop.clock import wall_ns
from hotloop.default_run_path import default_path
from hotloop.errors import HotloopError
from hotloop.files import make_private, open_private
from hotloop.profiling.recorder.machine import describe_host, describe_machine, library_versions
from hotloop.profiling.recorder.privacy.redact_text import redacted, redacted_command
from hotloop.profiling.recorder.record_options import RecordOptions
from hotloop.profiling.trace.liveness import state_of_exit
from hotloop.profiling.trace.model import FORMAT_VERSION

MANIFEST = "run.json"
SPARE_BYTES = 2048
"""Size of the padding: more than completing the manifest adds."""
EXIT_CODE_WIDTH = 11
"""Columns reserved for the exit code: any 32-bit number fits."""
_PLACEHOLDER = -(1 << 31)


def describe_run(
    command: Sequence[str], options: RecordOptions, config: Mapping[str, object] | None = None, hooks: bool = False
) -> dict[str, object]:
    """Return the manifest of a run that starts now in this process."""
    return {
        "format": FORMAT_VERSION,
        "state": "running",
        "started_unix_ns": wall_ns(),
        "pid": os.getpid(),
        "process_create_time": psutil.Process().create_time(),
        "host": describe_host(),
        "command": redacted_command(list(command)),
        "config": redacted(dict(config or {})),
        "options": asdict(options),
        "machine": describe_machine(),
        "versions": library_versions(),
        "hooks": hooks,
    }


def claim(path: str | os.PathLike[str] | None, manifest: Mapping[str, object], command: Sequence[str]) -> Path:
    """Create the run directory with its manifest; return its absolute path.

    Args:
        path: The directory, which must be new or empty; None: `runs/<time>-<name>`.
        manifest: The content of `run.json`.
        command: The command line. Its first word is the name of the run if `path` is None.

    Raises:
        HotloopError: The path exists and is not an empty directory.
        OSError: The directory cannot be created.
    """
    if path is not None:
        if not os.fspath(path) or "\0" in os.fspath(path):
            raise HotloopError(f"the run directory is {os.fspath(path)!r}: give a path (--out DIR)")
        return _claim(Path(path), manifest)
    while True:
        try:
            return _claim(default_path(command), manifest)
        except HotloopError:
            continue  # Another recording took it in the meantime.


def _claim(target: Path, manifest: Mapping[str, object]) -> Path:
    taken = HotloopError(
        f"{target} is not an empty directory: choose another (--out DIR, or the path given to record), or remove it"
    )
    if os.path.lexists(target) and (not target.is_dir() or any(target.iterdir())):
        raise taken
    is_new = not os.path.lexists(target)
    make_private(target)
    text = json.dumps(dict(manifest) | {"name": target.name}, indent=1)
    try:
        with open(target / MANIFEST, "xb", buffering=0, opener=open_private) as file:
            file.write(text.encode() + b" " * SPARE_BYTES)
    except FileExistsError:
        raise taken from None
    except OSError:
        (target / MANIFEST).unlink(missing_ok=True)
        if is_new:
            target.rmdir()
        raise
    return target.absolute()


def finish(folder: Path, exit_code: int, changes: Mapping[str, object]) -> tuple[Path, int]:
    """Complete the manifest of a run that has ended.

    Args:
        folder: The run directory.
        exit_code: The exit code, as far as it is known now.
        changes: Other fields to add or replace.

    Returns:
        The file, and the position of the exit code in it, which is `EXIT_CODE_WIDTH` characters wide.

    Raises:
        OSError: The manifest cannot be read or written.
        ValueError: It is not valid JSON any more.
    """
    path = folder / MANIFEST
    manifest = json.loads(path.read_text(encoding="utf-8"))
    for name, value in changes.items():
        manifest[name] = manifest[name] | value if isinstance(manifest.get(name), dict) else value
    manifest |= {"state": state_of_exit(exit_code), "exit_code": _PLACEHOLDER, "ended_unix_ns": wall_ns()}
    content = json.dumps(manifest, indent=1).encode()
    position = content.rindex(str(_PLACEHOLDER).encode())
    content = content.replace(str(_PLACEHOLDER).encode(), f"{exit_code:{EXIT_CODE_WIDTH}d}".encode())
    temporary = f"{path}.part"
    try:
        with open(temporary, "wb", buffering=0, opener=open_private) as file:
            if file.write(content) != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), temporary)
        os.replace(temporary, path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        _write_in_place(path, content)
    return path, position


def _write_in_place(path: Path, content: bytes) -> None:
    """Overwrite the padded file. On a full disk this works, because it needs no new block."""
    with open(path, "r+b", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        file.write(content.ljust(size))
