"""Worker processes: started so that they end with the process that started them, and leave signals to it.

Linux kills a worker when its parent dies (PR_SET_PDEATHSIG), even in the middle of a C function or stopped. That is
bound to the parent's thread that started it, so it is used only where that is the main thread. `end_with_parent`, a
thread that sees the socket to the parent close, works in any case, but only while Python runs. A stopped worker is in a
process group of its own, and when such a group has lost its parent, Linux continues what is stopped in it.

Ctrl-C, a closed terminal or a service manager signal all processes at once. The parent decides when a worker ends, so
workers ignore these signals, from their first moment: they start with them blocked.
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
"""What asks a training to save and end."""
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

    Args:
        program: What it runs; before anything that takes time it is bound to this process.
        options: Of `subprocess.Popen`.
    """
    bound = sys.platform == "linux" and threading.current_thread() is threading.main_thread()
    # A parent that has ended before it was asked to be bound to is another one by now.
    alone = f"if os.getppid() != {os.getpid()}: os._exit(1)\n"
    text = IGNORE + (DIE_WITH_PARENT if bound else "") + alone + program
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        return subprocess.Popen([sys.executable, "-c", text], process_group=0, **options)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with_parent(descriptor: int) -> None:
    """End this process when the other end of a socket or pipe, which the parent holds, is closed."""
    threading.Thread(target=_end_with_socket, args=(descriptor,), daemon=True, name="hotloop-lifeline").start()


def _end_with_socket(descriptor: int) -> None:
    poll = select.poll()
    poll.register(descriptor, HUNG_UP)
    # Anything else means that this process has closed it itself, on its way out.
    if any(events & HUNG_UP for _, events in poll.poll()):
        os._exit(1)
