"""Worker processes that step cars in shared memory. Nothing is pickled: a step sends one byte in each direction.

A worker is a new Python process that receives its job as JSON over a socket. Unlike `multiprocessing`, this neither
forks a process with threads nor needs a `__main__` guard in the user's program. A worker exits when its socket closes.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from gymnasium.vector import AutoresetMode

from hotloop.errors import HotloopError
from hotloop.phases import Phase
from hotloop.spans import registry, span
from hotloop.training.envs.carracing.config import CarRacingConfig
from hotloop.training.envs.carracing.env_batch import EnvBatch, SharedArrays, shared_fields
from hotloop.training.envs.gym_types import Info
from hotloop.training.shared_memory import attach
from hotloop.training.worker_process import ONE_THREAD, start_worker

STEP, DONE, FAILED = b"s", b"d", b"f"
EXIT_TIMEOUT_S = 5.0


class WorkerDied(HotloopError):
    """A worker process ended unexpectedly."""


@dataclass(frozen=True, slots=True)
class Job:
    """The cars that a worker steps."""

    config: CarRacingConfig
    path: str
    """File of the shared memory."""
    count: int
    """Number of all cars."""
    first: int
    last: int
    """Its cars are number `first` up to `last`."""
    autoreset: str
    """Value of Gymnasium's `AutoresetMode`."""


class Worker:
    """Handle of a worker process.

    If `recorded`, it records itself into this process's run, if there is one.
    """

    def __init__(self, job: Job, recorded: bool = False) -> None:
        self.job = job
        self.recorded = recorded
        ours, theirs = socket.socketpair()
        with theirs:
            program = f"from {__name__} import serve; serve({theirs.fileno()})"
            if recorded:
                program = registry.child_program + program
            self._process = start_worker(program, pass_fds=[theirs.fileno()], env=os.environ | ONE_THREAD)
        self._connection = Connection(ours.detach())
        self.send(json.dumps(asdict(job)).encode())

    def send(self, message: bytes) -> None:
        """Send a message. `receive` waits for the reply."""
        try:
            self._connection.send_bytes(message)
        except (BrokenPipeError, ConnectionResetError):
            pass  # `receive` will raise WorkerDied.

    def reset(self, seeds: list[int | None], mask: list[bool], options: Info | None) -> None:
        """Send a request to reset its cars."""
        self.send(json.dumps({"seeds": seeds, "mask": mask, "options": options}).encode())

    def receive(self) -> None:
        """Wait for the reply to the last message."""
        try:
            reply = self._connection.recv_bytes()
        except (EOFError, ConnectionResetError):
            code = self._process.wait()
            raise WorkerDied(f"the worker of cars {self.job.first} to {self.job.last - 1} ended ({code})") from None
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
        message = json.loads(connection.recv_bytes())
        job = Job(CarRacingConfig(**message.pop("config")), **message)
        block = attach(Path(job.path), shared_fields(job.config, job.count))
        arrays, mode = SharedArrays(**block.arrays), AutoresetMode(job.autoreset)
        batch, waiting = EnvBatch(job.config, arrays, job.first, job.last, mode), span("worker.wait", Phase.WAIT)
        connection.send_bytes(DONE)
        while True:
            with waiting:
                message = connection.recv_bytes()
            if message == STEP:
                batch.step()
            else:
                batch.reset(**json.loads(message))
            connection.send_bytes(DONE)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # The parent has exited or closed the worker.
    except HotloopError as error:
        connection.send_bytes(FAILED + str(error).encode())
