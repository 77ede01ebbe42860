"""Processes that step the cars of a board in shared memory. Nothing is pickled: a step is one byte each way.

A worker is a new Python that is told its part as JSON over a socket, so that neither a fork of a process with threads
nor a guard around the user's program is needed. It ends when its socket does.
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
from hotloop.training.envs.carracing.config import build
from hotloop.training.envs.carracing.env_batch import Board, Group, board_fields
from hotloop.training.shared_memory import attach
from hotloop.training.worker_process import start_worker

STEP, DONE, FAILED = b"s", b"d", b"f"
END_S = 5.0
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class WorkerDied(HotloopError):
    """A process that steps cars has ended by itself."""


class Worker:
    """One such process, seen from the one that started it.

    Args:
        part: What it steps: `options`, `path` of the board, `count` of cars on it, `first`, `last`, `autoreset`.
        recorded: Whether it records itself into the run of this process, if there is one.
    """

    def __init__(self, part: dict[str, Any], recorded: bool = False) -> None:
        self.part = part
        self.recorded = recorded
        ours, theirs = socket.socketpair()
        with theirs:
            program = f"from {__name__} import serve; serve({theirs.fileno()})"
            if recorded:
                program = registry.child_program + program
            self._process = start_worker(program, pass_fds=[theirs.fileno()], env=os.environ | ONE_THREAD)
        self._line = Connection(ours.detach())
        self.send(json.dumps(part).encode())

    def send(self, message: bytes) -> None:
        """Tell it something; its answer is waited for by `receive`."""
        try:
            self._line.send_bytes(message)
        except (BrokenPipeError, ConnectionResetError):
            pass  # `receive` finds out too, and says so

    def reset(self, seeds: list[int | None], mask: list[bool], options: dict[str, Any] | None) -> None:
        """Let it reset its cars."""
        self.send(json.dumps({"seeds": seeds, "mask": mask, "options": options}).encode())

    def receive(self) -> None:
        """Wait until it has done what it was told."""
        try:
            answer = self._line.recv_bytes()
        except (EOFError, ConnectionResetError):
            code = self._process.wait()
            raise WorkerDied(
                f"the worker of cars {self.part['first']} to {self.part['last'] - 1} ended ({code})"
            ) from None
        if answer[:1] == FAILED:
            raise HotloopError(answer[1:].decode())

    def close(self) -> None:
        """End it."""
        self._line.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def serve(number: int) -> None:
    """Be a worker, whose socket has this number, until it is closed."""
    line = Connection(number)
    try:
        part = json.loads(line.recv_bytes())
        group, waiting = _take_part(part), span("worker.wait", Phase.WAIT)
        line.send_bytes(DONE)
        while True:
            with waiting:
                message = line.recv_bytes()
            line.send_bytes(_obey(group, message))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # the other side has ended or wants no more
    except HotloopError as error:
        line.send_bytes(FAILED + str(error).encode())


def _take_part(part: dict[str, Any]) -> Group:
    block = attach(Path(part["path"]), board_fields(build(part["options"]), part["count"]))
    autoreset = AutoresetMode(part["autoreset"])
    return Group(part["options"], Board(**block.arrays), part["first"], part["last"], autoreset, part["render_mode"])


def _obey(group: Group, message: bytes) -> bytes:
    if message == STEP:
        group.step()
    else:
        group.reset(**json.loads(message))
    return DONE
