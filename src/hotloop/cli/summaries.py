"""Summaries while a run goes on, printed by a process of their own.

Reading the run takes a moment of Python; inside the training process that moment would be stolen from the
training (one interpreter lock) and would show up in the very times that are being recorded.
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
    """Print a summary of the run at `path` to stderr every so many seconds, for as long as this process lives.

    The printing process is not a child of this one: a script that waits for its children must not meet it.
    """
    program = f"from pathlib import Path; from {__name__} import watch; "
    program += f"watch(Path({str(path)!r}), {every_s!r}, {os.getpid()})"
    words = [sys.executable, "-c", program]
    starter = f"import subprocess; subprocess.Popen({words!r}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)"
    subprocess.run([sys.executable, "-c", starter], check=False)


def watch(path: Path, every_s: float, parent_pid: int) -> None:
    """Print until the parent is gone."""
    from hotloop.errors import HotloopError
    from hotloop.profiling.report.progress_summary import periodic
    from hotloop.profiling.trace.load import load

    while _waited(every_s, parent_pid):
        try:
            print(periodic(load(path)), file=sys.stderr, flush=True)
        except HotloopError:
            continue  # nothing is written yet
        except OSError:
            return  # nobody reads it any more


def _waited(seconds: float, parent_pid: int) -> bool:
    """Wait; return whether the recorded process is still there."""
    while seconds > 0:
        time.sleep(min(seconds, POLL_S))
        seconds -= POLL_S
        try:
            if psutil.Process(parent_pid).status() == psutil.STATUS_ZOMBIE:
                return False
        except psutil.Error:
            return False
    return True
