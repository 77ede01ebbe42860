"""Prints summaries during a run, from another process.

Reading the run takes time. In the training process it would hold the interpreter lock, and would show up in the
recorded times.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil

POLL_S = 0.5


def start_printing(every_s: float, path: Path) -> None:
    """Print a summary of the run at `path` to stderr every `every_s` seconds until this process ends.

    The printing process is not a child of this one, because a script may wait for all its children.
    """
    program = f"from pathlib import Path; from {__name__} import watch; "
    program += f"watch(Path({str(path)!r}), {every_s!r}, {os.getpid()})"
    words = [sys.executable, "-c", program]
    starter = f"import subprocess; subprocess.Popen({words!r}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)"
    subprocess.run([sys.executable, "-c", starter], check=False)


def watch(path: Path, every_s: float, parent_pid: int) -> None:
    """Print until the recorded process ends."""
    from hotloop.errors import HotloopError
    from hotloop.profiling.report.progress_summary import periodic
    from hotloop.profiling.trace.load import load

    while _waited(every_s, parent_pid):
        try:
            print(periodic(load(path)), file=sys.stderr, flush=True)
        except HotloopError:
            continue  # nothing written yet
        except OSError:
            return  # stderr was closed


def _waited(seconds: float, parent_pid: int) -> bool:
    """Wait; return whether the recorded process still runs."""
    while seconds > 0:
        time.sleep(min(seconds, POLL_S))
        seconds -= POLL_S
        try:
            if psutil.Process(parent_pid).status() == psutil.STATUS_ZOMBIE:
                return False
        except psutil.Error:
            return False
    return True
