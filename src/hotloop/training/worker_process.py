"""Worker processes that end with their parent and leave signals to it.

Linux kills a worker when its parent dies (PR_SET_PDEATHSIG), even inside a C function or while stopped. This applies to
the parent's thread that started it, so it is used only if that is the main thread. Otherwise `end_with_parent`, a
thread that notices when the socket to the parent closes, ends the worker. It needs Python to run, which it does even in
a stopped worker: workers have their own process group, and Linux resumes a stopped group when it is orphaned.

Ctrl-C, a closed terminal and service managers signal all processes at once. The parent decides when a worker ends, so
workers ignore these signals. They start with them blocked, so none gets through before that.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from typing import Any

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals on which a training saves and ends."""
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
)
"""Environment variables of a worker whose libraries start no threads."""
PR_SET_PDEATHSIG = 1
HUNG_UP = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)
IGNORE = (
    "import os, signal\n"
    f"for each in {tuple(map(int, STOPPING))}: signal.signal(each, signal.SIG_IGN)\n"
    f"signal.pthread_sigmask(signal.SIG_UNBLOCK, {tuple(map(int, STOPPING))})\n"
)
DIE_WITH_PARENT = f"import ctypes; ctypes.CDLL(None).prctl({PR_SET_PDEATHSIG}, {int(signal.SIGKILL)}, 0, 0, 0)\n"


def start_worker(program: str, **options: Any) -> subprocess.Popen[Any]:
    """Start a Python process that ends with this one and ignores the signals that stop a training.

    It runs the program, Python source, after a prelude that ties it to this process.
    """
    bound = sys.platform == "linux" and threading.current_thread() is threading.main_thread()
    # If the parent ended before the prelude ran, the worker has been given another parent.
    check_parent = f"if os.getppid() != {os.getpid()}: os._exit(1)\n"
    text = IGNORE + (DIE_WITH_PARENT if bound else "") + check_parent + program
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        return subprocess.Popen([sys.executable, "-c", text], process_group=0, **options)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def without_recording() -> dict[str, str]:
    """Return the environment of a worker that a recording must not count as a part of the training."""
    return {name: value for name, value in os.environ.items() if not name.startswith("HOTLOOP_")}


def end_with_parent(descriptor: int) -> None:
    """Exit when the parent closes its end of this socket or pipe."""
    threading.Thread(target=_end_with_socket, args=(descriptor,), daemon=True, name="hotloop-lifeline").start()


def _end_with_socket(descriptor: int) -> None:
    poll = select.poll()
    poll.register(descriptor, HUNG_UP)
    # Any other event means that this process closed it itself while exiting.
    if any(events & HUNG_UP for _, events in poll.poll()):
        os._exit(1)
