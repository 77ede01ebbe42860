"""Where the processes of a run and their recorder find each other: a folder of small files in the run directory.

A process offers its shared memory as a file descriptor that the recorder opens through /proc. The memory has no name in
any file system, so nothing of it is left behind when processes are killed.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from hotloop.files import make_private, open_private
from hotloop.profiling.recorder.messages import Message

FOLDER = ".processes"


def prepare(run: Path) -> None:
    """Create the folder. While it exists, a recorder reads it."""
    make_private(run / FOLDER)


def offer(run: Path, content: Message) -> None:
    """Offer this process's shared memory.

    Raises:
        OSError: If the run has no recorder any more.
    """
    place = run / FOLDER / f"{content['folder']}.json"
    temporary = place.with_suffix(".part")
    with open(temporary, "w", encoding="utf-8", opener=open_private) as opened:
        json.dump(content, opened)
    os.replace(temporary, place)


def take_offers(run: Path) -> Iterator[Message]:
    """Yield and remove the offers of processes."""
    for place in sorted((run / FOLDER).glob("*.json")):
        content = json.loads(place.read_text(encoding="utf-8"))
        place.unlink()
        yield content


def close(run: Path) -> None:
    """Remove the folder: from now on nobody is recorded."""
    shutil.rmtree(run / FOLDER, ignore_errors=True)


def is_open(run: Path) -> bool:
    """Return whether the run has a recorder."""
    return (run / FOLDER).is_dir()
