"""One worker process as seen by the learner: start it, read its messages, detect that it ended or hangs, stop it."""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import subprocess

from hotloop.clock import now_ns
from hotloop.spans import registry
from hotloop.training.collect.interface import Episode
from hotloop.training.collect.worker_main import SIZE_BYTES, WorkerConfig
from hotloop.training.worker_process import ONE_THREAD, start_worker

NS = 1_000_000_000
CONFIRM_NS = 1 * NS
"""Extra time before a silent worker counts as hung. After the whole machine was suspended, it can show life in it."""


class HangDetector:
    """Decides from a worker's heartbeat whether it hangs."""

    def __init__(self, started_ns: int) -> None:
        self._started_ns = started_ns
        self._suspected: tuple[int, int] | None = None
        """The heartbeat that was too old, and when that was first noticed."""

    def is_hung(self, heartbeat_ns: int, timeout_ns: int, now: int) -> bool:
        """Return whether the last heartbeat is older than the timeout, and did not change since that was noticed."""
        if now - max(heartbeat_ns, self._started_ns) < timeout_ns:
            self._suspected = None
            return False
        if self._suspected is None or self._suspected[0] != heartbeat_ns:
            self._suspected = (heartbeat_ns, now)
        return now - self._suspected[1] >= CONFIRM_NS


class WorkerHandle:
    """A worker process.

    Attributes:
        ready: Whether it has built its environments and policy.
        failure: The error it reported, if any.
        usage_error: Whether that error was a `HotloopError`, which a restart does not fix.
        hang_detector: Watches its heartbeat.
    """

    def __init__(self, config: WorkerConfig) -> None:
        self.ready = False
        self._killed = False
        self.failure: str | None = None
        self.usage_error = False
        self.hang_detector = HangDetector(now_ns())
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = start_worker(
                f"{registry.child_program}from hotloop.training.collect import worker_main\n"
                f"worker_main.serve({theirs.fileno()})",
                pass_fds=[theirs.fileno(), config.go, config.wake],
                env=os.environ | ONE_THREAD,
            )
        self.connection = ours
        self._received = b""
        message = pickle.dumps(config)
        try:
            ours.sendall(len(message).to_bytes(SIZE_BYTES, "big") + message)
        except OSError:
            pass  # it died already; `ended` reports that
        ours.setblocking(False)

    def receive(self) -> list[Episode]:
        """Read its messages without blocking; return the episodes in them and update the attributes."""
        try:
            while chunk := self.connection.recv(1 << 16):
                self._received += chunk
        except OSError:
            pass  # nothing more to read, now or ever
        # The last line may be incomplete. If the worker was killed, the rest never comes: do not wait for it.
        *lines, self._received = self._received.split(b"\n")
        episodes: list[Episode] = []
        for line in lines:
            message = json.loads(line)
            self.ready |= bool(message.get("ready"))
            self.failure = message.get("failure", self.failure)
            self.usage_error |= bool(message.get("usage_error"))
            episodes += [Episode(**each) for each in message.get("episodes", ())]
        return episodes

    def ended(self) -> str | None:
        """Return why it ended, or None while it runs."""
        code = self.process.poll()
        if code is None:
            return None
        if self.failure is not None:
            return self.failure
        if code < 0:
            return f"it was killed by {signal.Signals(-code).name}"
        return f"it ended by itself with exit code {code}"

    def kill(self) -> None:
        """Kill it and everything it started: its whole process group."""
        if self._killed:
            return  # its process id may have been reused
        self._killed = True
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # the group is empty
        self.process.kill()
        self.process.wait()
        self.connection.close()

    def finish(self, seconds: float) -> None:
        """Wait for it to exit, then kill whatever is left."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
        self.kill()
