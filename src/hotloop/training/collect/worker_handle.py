"""One worker process, seen from the one who started it: starting it, hearing it, noticing its end, ending it."""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import subprocess
from typing import Any

from hotloop.clock import now_ns
from hotloop.spans import registry
from hotloop.training.collect.worker_main import SIZE_BYTES, Part
from hotloop.training.worker_process import start_worker

NS = 1_000_000_000
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
)
SECOND_LOOK_NS = 1 * NS
"""A worker is hung only if it did not move in this time either: after a suspension of all it gets the chance to."""


class Pulse:
    """Tells from when a worker last moved whether it hangs.

    Args:
        started_ns: When it was started.
    """

    def __init__(self, started_ns: int) -> None:
        self._started_ns = started_ns
        self._suspect: tuple[int, int] | None = None

    def lost(self, beat_ns: int, most_ns: int, now: int) -> bool:
        """Say whether it has not moved for too long, and not for a while after that was first seen either.

        Args:
            beat_ns: When it last moved.
            most_ns: How long that may take.
            now: The time, ns.
        """
        if now - max(beat_ns, self._started_ns) < most_ns:
            self._suspect = None
            return False
        if self._suspect is None or self._suspect[0] != beat_ns:
            self._suspect = (beat_ns, now)
        return now - self._suspect[1] >= SECOND_LOOK_NS


class Hired:
    """A worker process.

    Attributes:
        ready: Whether it can play.
        failed: What it said that went wrong, if it did.
        mistake: Whether that was a mistake of the call, which no second try mends.
        pulse: Whether it moves.

    Args:
        part: What it plays.
    """

    def __init__(self, part: Part) -> None:
        self.ready = False
        self._ended = False
        self.failed: str | None = None
        self.mistake = False
        self.pulse = Pulse(now_ns())
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = start_worker(
                f"{registry.child_program}from hotloop.training.collect import worker_main\n"
                f"worker_main.serve({theirs.fileno()})",
                pass_fds=[theirs.fileno(), part.go, part.wake],
                env=os.environ | ONE_THREAD,
            )
        self.line = ours
        self._heard = b""
        told = pickle.dumps(part)
        try:
            ours.sendall(len(told).to_bytes(SIZE_BYTES, "big") + told)
        except OSError:
            pass  # it has died already, which `ended` finds out
        ours.setblocking(False)

    def hear(self) -> list[dict[str, Any]]:
        """Return the episodes it has told of; take note of everything else it said."""
        try:
            while chunk := self.line.recv(1 << 16):
                self._heard += chunk
        except OSError:
            pass  # there is no more now, or never will be
        # Of one that was stopped or killed while it spoke, the last message is not whole: it must not be waited for.
        *lines, self._heard = self._heard.split(b"\n")
        episodes: list[dict[str, Any]] = []
        for line in lines:
            message = json.loads(line)
            self.ready |= bool(message.get("ready"))
            self.failed = message.get("failed", self.failed)
            self.mistake |= bool(message.get("mistake"))
            episodes += message.get("episodes", ())
        return episodes

    def ended(self) -> str | None:
        """Say how it ended, or None while it runs."""
        code = self.process.poll()
        if code is None:
            return None
        if self.failed is not None:
            return self.failed
        if code < 0:
            return f"it was killed by {signal.Signals(-code).name}"
        return f"it ended by itself with exit code {code}"

    def kill(self) -> None:
        """End it at once, whatever it does, and what it has started: all that is in its process group."""
        if self._ended:
            return  # its number may be another's by now
        self._ended = True
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # nobody is left in it
        self.process.kill()
        self.process.wait()
        self.line.close()

    def finish(self, seconds: float) -> None:
        """Give it time to end by itself, then end it."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
        self.kill()
