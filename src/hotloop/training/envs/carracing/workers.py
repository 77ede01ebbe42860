"""Worker processes that step cars in shared memory. Nothing is pickled: a step sends one byte in each direction.

A worker is a new Python process that receives its job as JSON over a socket. Unlike `multiprocessing`, this neither
forks a process with threads nor needs a `__main__` guard in the user's program. A worker exits when its socket closes.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from gymnasium.vector import AutoresetMode

from hotloop.errors import HotloopError
from hotloop.phases import Phase
from hotloop.spans import registry, span
from hotloop.training.envs.carracing.config import CarRacingConfig
from hotloop.training.envs.carracing.env_batch import EnvBatch, SharedArrays, shared_fields
from hotloop.training.shared_memory import attach
from hotloop.training.worker_process import start_worker

STEP, DONE, FAILED = b"s", b"d", b"f"
EXIT_TIMEOUT_S = 5.0
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class WorkerDied(HotloopError):
    """A worker process ended unexpectedly."""


class Worker:
    """Handle of a worker process, for the process that started it.

    Args:
        job: The cars to step: `options`, `path` of the shared memory, `count` of all cars, `first`, `last`,
            `autoreset`, `render_mode`.
        recorded: Whether it records itself into this process's run, if there is one.
    """

    def __init__(self, job: dict[str, Any], recorded: bool = False) -> None:
        self.job = job
        self.recorded = recorded
        ours, theirs = socket.socketpair()
        with theirs:
            program = f"from {__name__} import serve; serve({theirs.fileno()})"
            if recorded:
                program = registry.child_program + program
            self._process = start_worker(program, pass_fds=[theirs.fileno()], env=os.environ | ONE_THREAD)
        self._connection = Connection(ours.detach())
        self.send(json.dumps(job).encode())

    def send(self, message: bytes) -> None:
        """Send a message. `receive` waits for the reply."""
        try:
            self._connection.send_bytes(message)
        except (BrokenPipeError, ConnectionResetError):
            pass  # `receive` will raise WorkerDied.

    def reset(self, seeds: list[int | None], mask: list[bool], options: dict[str, Any] | None) -> None:
        """Send a request to reset its cars."""
        self.send(json.dumps({"seeds": seeds, "mask": mask, "options": options}).encode())

    def receive(self) -> None:
        """Wait for the reply to the last message."""
        try:
            reply = self._connection.recv_bytes()
        except (EOFError, ConnectionResetError):
            code = self._process.wait()
            raise WorkerDied(
                f"the worker of cars {self.job['first']} to {self.job['last'] - 1} ended ({code})"
            ) from None
        if reply[:1] == FAILED:
            raise HotloopError(reply[1:].decode())

    def close(self) -> None:
        """Stop the process."""
        self._connection.close()
        try:
            self._process.wait(EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def serve(fd: int) -> None:
    """Run as a worker until the socket with this file descriptor is closed."""
    connection = Connection(fd)
    try:
        job = json.loads(connection.recv_bytes())
        batch, waiting = _make_batch(job), span("worker.wait", Phase.WAIT)
        connection.send_bytes(DONE)
        while True:
            with waiting:
                message = connection.recv_bytes()
            connection.send_bytes(_handle(batch, message))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # The parent has exited or closed the worker.
    except HotloopError as error:
        connection.send_bytes(FAILED + str(error).encode())


def _make_batch(job: dict[str, Any]) -> EnvBatch:
    block = attach(Path(job["path"]), shared_fields(CarRacingConfig(**job["options"]), job["count"]))
    autoreset = AutoresetMode(job["autoreset"])
    return EnvBatch(
        job["options"], SharedArrays(**block.arrays), job["first"], job["last"], autoreset, job["render_mode"]
    )


def _handle(batch: EnvBatch, message: bytes) -> bytes:
    if message == STEP:
        batch.step()
    else:
        batch.reset(**json.loads(message))
    return DONE
