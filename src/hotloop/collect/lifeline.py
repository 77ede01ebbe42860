"""How a worker ends with the one who started it, however that ended.

Linux kills it when its parent dies (PR_SET_PDEATHSIG), be it in the middle of a C function or stopped. That is bound to
the parent's thread that started it, so it is asked for only where that was the main thread; a thread that sees the
socket to the parent close works in any case, but only while Python runs. A worker that was stopped before it could ask
is in a process group of its own, and when such a group has lost its parent, Linux hangs up on what is stopped in it.
"""

from __future__ import annotations

import os
import select
import signal
import threading

PR_SET_PDEATHSIG = 1
ASK = f"import ctypes; ctypes.CDLL(None).prctl({PR_SET_PDEATHSIG}, {int(signal.SIGKILL)}, 0, 0, 0); "
"""A program that begins with this is killed when its parent dies: before it imports anything that takes time."""
HUNG_UP = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)


def end_with_parent(parent: int, descriptor: int) -> None:
    """End this process when its parent has ended.

    Args:
        parent: Its process id.
        descriptor: Of the socket to it.
    """
    if os.getppid() != parent:  # it died before this process asked to be killed then
        os._exit(1)
    threading.Thread(target=_end_with_socket, args=(descriptor,), daemon=True, name="hotloop-lifeline").start()


def _end_with_socket(descriptor: int) -> None:
    poll = select.poll()
    poll.register(descriptor, HUNG_UP)
    # Anything else means that this process has closed it itself, on its way out.
    if any(events & HUNG_UP for _, events in poll.poll()):
        os._exit(1)
