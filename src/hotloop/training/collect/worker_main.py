"""The main loop of a worker process, which plays some lanes of a shared replay.

Steps go directly into the lanes; orders and counts go through the control block. A socket carries the configuration at
the start, and one message for the episodes that ended in a fragment. Between fragments the worker loads new weights,
reports episodes and checks how far it may go. It waits for the learner only to keep the ratio of updates to steps.
"""

from __future__ import annotations

import json
import os
import pickle
import select
import socket
import sys
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path

from hotloop.clock import now_ns
from hotloop.errors import HotloopError
from hotloop.json_types import Json
from hotloop.spans import span
from hotloop.training.collect import control_block as control
from hotloop.training.collect.control_block import ControlBlock, ControlHandle
from hotloop.training.collect.interface import Episode, Job, Recipe
from hotloop.training.collect.player import Player
from hotloop.training.collect.weights import Subscriber, WeightsHandle
from hotloop.training.replay.ring_layout import Handle, Ring
from hotloop.training.worker_process import end_with_parent

HEARTBEAT_MS = 200
"""Interval of heartbeats while a worker waits."""
SIZE_BYTES = 8
"""Size of the length field before the pickled `WorkerConfig`. Messages from the worker are lines of JSON."""
EPISODES_PER_MESSAGE = 32
"""Small enough that a message fits whenever the socket is writable."""
MAX_UNSENT = 10_000
"""Episodes kept while the learner does not read the socket; beyond that, the oldest are dropped."""


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """What a worker receives when it starts."""

    number: int
    life: int
    """Number of earlier starts of this worker or of the whole collector."""
    job: Job
    replay: Handle
    weights: WeightsHandle
    control: ControlHandle
    lockstep: bool
    go: int
    """Descriptor of the event that signals new orders to the worker."""
    wake: int
    """Descriptor of the event that wakes the learner."""
    path: tuple[str, ...]
    """`sys.path` of the learner."""
    first: str = ""
    """Function called before anything else, `module:name`; empty for none."""


def serve(descriptor: int) -> None:
    """Run a worker, connected to the learner by the socket `descriptor`, until it is ordered to stop."""
    connection = socket.socket(fileno=descriptor)
    config = read_config(connection)
    end_with_parent(descriptor)
    try:
        sys.path[:] = config.path
        if config.first:
            Recipe(config.first).build()
        WorkerLoop(config, connection).run()
    except Exception as error:
        try:
            Outbox(connection).send(failure=describe(error), usage_error=isinstance(error, HotloopError))
        except OSError:
            pass  # the learner ended
        sys.exit(1)


def read_config(connection: socket.socket) -> WorkerConfig:
    """Wait for the configuration."""
    with connection.makefile("rb") as stream:
        message = stream.read(int.from_bytes(stream.read(SIZE_BYTES), "big"))
    if not message:
        sys.exit(1)  # the learner ended
    return pickle.loads(message)


def describe(error: Exception) -> str:
    """Return a one-line description of an error, with its location unless it is a `HotloopError`."""
    if isinstance(error, HotloopError):
        return str(error)
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"


class Outbox:
    """Messages to the learner. Episodes are kept until the socket has room, so that the worker never blocks."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._poll = select.poll()
        self._poll.register(connection.fileno(), select.POLLOUT)
        self._unsent: list[Episode] = []

    @property
    def has_unsent(self) -> bool:
        """Whether any episode is not sent yet."""
        return bool(self._unsent)

    def send(self, **message: Json) -> None:
        """Send a message; blocks until there is room."""
        self._connection.sendall(json.dumps(message).encode() + b"\n")

    def put(self, ended: list[Episode]) -> None:
        """Add episodes, and send as many as there is room for."""
        self._unsent = [*self._unsent, *ended][-MAX_UNSENT:]
        while self._unsent and self._poll.poll(0):
            self._send_some()

    def flush(self) -> None:
        """Send all episodes; blocks until there is room."""
        while self._unsent:
            self._send_some()

    def _send_some(self) -> None:
        self.send(episodes=[asdict(each) for each in self._unsent[:EPISODES_PER_MESSAGE]])
        del self._unsent[:EPISODES_PER_MESSAGE]


class WorkerLoop:
    """Plays the lanes of one worker."""

    def __init__(self, config: WorkerConfig, connection: socket.socket) -> None:
        self._config, self._outbox = config, Outbox(connection)
        self._control = ControlBlock.attach(config.control)
        self._row = self._control.rows[config.number]
        self._spent_before = self._row[control.ACT : control.RATIO + 1].tolist()
        self._report_ns = self._ratio_ns = self._read_ns = 0
        self._beat()
        self._weights = Subscriber(config.weights)
        lanes = range(config.replay.first, config.replay.first + config.replay.count)
        self._player = Player(config.job, Ring.attach(config.replay), lanes, config.life, self._beat)
        self._player.rounds = int(self._row[control.STEPS]) // len(lanes)
        self._steps = int(self._row[control.STEPS])
        self._lanes = len(lanes)
        self._go = select.poll()
        self._go.register(config.go, select.POLLIN)

    def run(self) -> None:
        """Play until ordered to stop."""
        self._outbox.send(ready=True)
        try:
            while not self._control.orders[control.STOP]:
                limit = self._limit()
                rounds = min(self._rounds_left(limit), self._player.fragment)
                if rounds <= 0:
                    self._wait(limit)
                    continue
                self._load_weights()
                ended: list[Episode] = []
                for _ in range(rounds):
                    ended += self._player.step()
                    self._steps += self._lanes
                    self._write_progress()
                self._report(ended)
        finally:
            self._flush()
            self._player.close()

    def _flush(self) -> None:
        self._player.flush()
        self._write_progress()

    def _write_progress(self) -> None:
        """Write the steps made and stored. Done after every step, so that losses are known if the worker is killed."""
        self._row[control.STEPS] = self._steps
        self._row[control.STORED] = self._steps - self._player.unpublished

    def _beat(self) -> None:
        self._row[control.HEARTBEAT] = now_ns()

    def _limit(self) -> int:
        """Return the allowed number of steps: of this worker in lock-step, else of all workers together."""
        if self._config.lockstep:
            return int(self._control.limits[self._config.number])
        return int(self._control.orders[control.LIMIT])

    def _rounds_left(self, limit: int) -> int:
        """Return how many steps each environment may make now."""
        if self._config.lockstep:
            return (limit - self._steps) // self._lanes
        left = limit - int(self._control.rows[:, control.STEPS].sum())
        # Divided among all lanes of all workers: near the limit, fragments become short.
        return -(-left // self._config.replay.layout.shape.lanes)

    def _load_weights(self) -> None:
        begin = now_ns()
        weights = self._weights.read()
        self._read_ns += now_ns() - begin
        if weights is not None:
            self._player.load(weights, self._weights.version)
            self._row[control.VERSION] = self._weights.version

    def _report(self, ended: list[Episode]) -> None:
        begin, player = now_ns(), self._player
        if ended or self._outbox.has_unsent:
            self._outbox.put(ended)
        if self._control.orders[control.WAITING]:
            os.eventfd_write(self._config.wake, 1)
        self._report_ns += now_ns() - begin
        weights_ns = player.weights_ns + self._read_ns
        spent = (player.act_ns, player.env_ns, player.store_ns, weights_ns, self._report_ns, self._ratio_ns)
        self._row[control.ACT : control.RATIO + 1] = [a + b for a, b in zip(spent, self._spent_before, strict=True)]

    def _wait(self, limit: int) -> None:
        """Publish everything, report that the limit is reached, and wait until the learner raises it."""
        self._flush()
        if self._config.lockstep:
            self._outbox.flush()
        self._report([])
        self._row[control.REACHED] = limit
        os.eventfd_write(self._config.wake, 1)
        begin = now_ns()
        with span("collect.wait"):
            while self._rounds_left(self._limit()) <= 0 and not self._control.orders[control.STOP]:
                self._beat()
                if self._go.poll(HEARTBEAT_MS):
                    os.eventfd_read(self._config.go)
        if limit:  # before the first order, workers wait for each other and not for the learner
            self._ratio_ns += now_ns() - begin
        self._beat()
