"""A device that does its work in order, in a thread of its own: a call returns before its result is there.

So does a GPU. A clock that is read after a call shows how long it took to ask for the work, not to do it.
"""

import threading
import time
from queue import SimpleQueue

import torch


class Pending:
    """A result that is there once its lock is free."""

    def __init__(self):
        self.done = threading.Lock()
        self.done.acquire()
        self.value = None


class Device:
    def __init__(self):
        self.work = SimpleQueue()
        threading.Thread(target=self._serve, daemon=True).start()

    def run(self, layer, *inputs) -> Pending:
        """Ask for a layer's output. Inputs may be results that are not there yet."""
        pending = Pending()
        self.work.put((pending, layer, inputs, torch.is_grad_enabled()))
        return pending

    def wait(self, pending):
        """Return a result once it is there."""
        with pending.done:
            return pending.value

    def synchronised_clock(self) -> float:
        """Read the clock when all work asked for so far is done."""
        self.wait(self.run(lambda: None))
        return time.perf_counter()

    def _serve(self):
        while True:
            pending, layer, inputs, grad = self.work.get()
            try:
                with torch.set_grad_enabled(grad):
                    pending.value = layer(*(each.value if isinstance(each, Pending) else each for each in inputs))
            finally:
                pending.done.release()
