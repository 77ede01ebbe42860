"""Summaries while a run goes on, printed by a process of their own.

Reading the run takes a moment of Python; inside the training process that moment would be stolen from the
training (one interpreter lock) and would show up in the very times that are being recorded.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

POLL_S = 0.5
END_S = 5.0


@contextmanager
def printing_every(every_s: float, path: Path) -> Iterator[None]:
    """Print a summary of the run at `path` to stderr every so many seconds; never, for 0."""
    if not every_s:
        yield
        return
    words = [
        sys.executable,
        "-m",
        "hotloop.cli.summaries",
        str(path),
        str(every_s),
        str(psutil.Process().pid),
    ]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def watch(path: Path, every_s: float, parent_pid: int) -> None:
    """Print until the parent is gone."""
    from hotloop.errors import HotloopError
    from hotloop.report.running import periodic
    from hotloop.trace.load import load

    while _waited(every_s, parent_pid):
        try:
            print(periodic(load(path)), file=sys.stderr, flush=True)
        except HotloopError:
            continue  # nothing is written yet


def _waited(seconds: float, parent_pid: int) -> bool:
    """Wait; return whether the parent is still there, which may end without a word (kill -9)."""
    while seconds > 0:
        time.sleep(min(seconds, POLL_S))
        seconds -= POLL_S
        if not psutil.pid_exists(parent_pid):
            return False
    return True


if __name__ == "__main__":
    try:
        watch(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
    except KeyboardInterrupt:
        pass  # Ctrl-C is meant for the training, and reaches the whole group
