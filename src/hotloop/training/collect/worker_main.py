"""A worker: the process that plays some lanes of a shared replay. A new Python, told its part over a socket.

Between fragments it takes over weights that were published, tells which episodes ended, and looks how far it may go.
Steps go straight into its stripes, orders and counts over the board; the socket carries one message at the start and
one for the episodes of a fragment. It never waits for the learner but to keep the ratio of updates to steps.
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
from typing import Any

from hotloop.clock import now_ns
from hotloop.errors import HotloopError
from hotloop.spans import span
from hotloop.training.collect import control_block as on
from hotloop.training.collect.control_block import Board, BoardHandle
from hotloop.training.collect.interface import Episode, Job, Recipe
from hotloop.training.collect.player import Player
from hotloop.training.collect.weights import Subscriber, WeightsHandle
from hotloop.training.replay.ring import Handle, Ring
from hotloop.training.worker_process import end_with_parent

PATIENCE_MS = 200
"""A worker that waits looks up so often, and shows that it lives."""
SIZE_BYTES = 8
"""Of the length that stands before the part of a worker. What it says itself is lines of JSON."""
AT_ONCE = 32
"""Episodes in a message: a socket that has room at all has room for these."""
MOST_UNSENT = 10_000
"""Episodes that are kept for a learner that does not listen; of more, the oldest are forgotten."""


@dataclass(frozen=True, slots=True)
class Part:
    """What a worker is told when it starts."""

    number: int
    life: int
    """How often it, or the whole collector, has been begun before."""
    job: Job
    replay: Handle
    weights: WeightsHandle
    board: BoardHandle
    lockstep: bool
    go: int
    """Descriptor of the event that orders have changed."""
    wake: int
    """Descriptor of the event that wakes the learner."""
    path: tuple[str, ...]
    """Where Python looks for modules."""
    first: str = ""
    """What is called before anything else: `module:name`, or nothing."""


def serve(descriptor: int) -> None:
    """Be a worker, whose socket has this number, until told to stop."""
    line = socket.socket(fileno=descriptor)
    part = read_part(line)
    end_with_parent(descriptor)
    try:
        sys.path[:] = part.path
        if part.first:
            Recipe(part.first).build()
        Work(part, line).run()
    except Exception as error:
        try:
            Outbox(line).send(failed=describe(error), mistake=isinstance(error, HotloopError))
        except OSError:
            pass  # there is nobody to tell
        sys.exit(1)


def read_part(line: socket.socket) -> Part:
    """Wait until told what to do."""
    with line.makefile("rb") as stream:
        told = stream.read(int.from_bytes(stream.read(SIZE_BYTES), "big"))
    if not told:
        sys.exit(1)  # the one who started this has ended
    return pickle.loads(told)


def describe(error: Exception) -> str:
    """Say in one line what went wrong, and where if it was nobody's call."""
    if isinstance(error, HotloopError):
        return str(error)
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"


class Outbox:
    """Messages to the learner, which are sent when there is room for them: nobody waits."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._poll = select.poll()
        self._poll.register(line.fileno(), select.POLLOUT)
        self._unsent: list[Episode] = []

    @property
    def waiting(self) -> bool:
        """Whether there is something that was not sent."""
        return bool(self._unsent)

    def send(self, **message: Any) -> None:
        """Send a message, waiting for room."""
        self._line.sendall(json.dumps(message).encode() + b"\n")

    def put(self, ended: list[Episode]) -> None:
        """Keep episodes, and send of all that are kept what there is room for."""
        self._unsent = [*self._unsent, *ended][-MOST_UNSENT:]
        while self._unsent and self._poll.poll(0):
            self._send_some()

    def flush(self) -> None:
        """Send all that are kept, waiting for room."""
        while self._unsent:
            self._send_some()

    def _send_some(self) -> None:
        self.send(episodes=[asdict(each) for each in self._unsent[:AT_ONCE]])
        del self._unsent[:AT_ONCE]


class Work:
    """A worker at work.

    Args:
        part: Its part.
        line: To the learner.
    """

    def __init__(self, part: Part, line: socket.socket) -> None:
        self._part, self._outbox = part, Outbox(line)
        self._board = Board.attach(part.board)
        self._row = self._board.rows[part.number]
        self._spent_before = self._row[on.ACT : on.RATIO + 1].tolist()
        self._told_ns = self._ratio_ns = self._read_ns = 0
        self._beat()
        self._weights = Subscriber(part.weights)
        lanes = range(part.replay.first, part.replay.first + part.replay.count)
        self._player = Player(part.job, Ring.attach(part.replay), lanes, part.life, self._beat)
        self._player.rounds = int(self._row[on.STEPS]) // len(lanes)
        self._steps = int(self._row[on.STEPS])
        self._lanes = len(lanes)
        self._go = select.poll()
        self._go.register(part.go, select.POLLIN)

    def run(self) -> None:
        """Play until told to stop."""
        self._outbox.send(ready=True)
        try:
            while not self._board.orders[on.STOP]:
                limit = self._limit()
                rounds = min(self._room(limit), self._player.fragment)
                if rounds <= 0:
                    self._wait(limit)
                    continue
                self._take_weights()
                ended: list[Episode] = []
                for _ in range(rounds):
                    ended += self._player.step()
                    self._steps += self._lanes
                    self._note_steps()
                self._tell(ended)
        finally:
            self._flush()
            self._player.close()

    def _flush(self) -> None:
        self._player.flush()
        self._note_steps()

    def _note_steps(self) -> None:
        """Say after every step how many were made and stored: of one that is killed it is known what went with it."""
        self._row[on.STEPS] = self._steps
        self._row[on.STORED] = self._steps - self._player.unpublished

    def _beat(self) -> None:
        self._row[on.BEAT] = now_ns()

    def _limit(self) -> int:
        """Return how many steps may have been made: in lock-step here, else by all together."""
        return int(self._board.limits[self._part.number] if self._part.lockstep else self._board.orders[on.LIMIT])

    def _room(self, limit: int) -> int:
        """Return how many steps of each environment may be made now."""
        if self._part.lockstep:
            return (limit - self._steps) // self._lanes
        left = limit - int(self._board.rows[:, on.STEPS].sum())
        # As if all lanes of all workers went on alike: near the limit the fragments get short.
        return -(-left // self._part.replay.layout.shape.lanes)

    def _take_weights(self) -> None:
        begin = now_ns()
        found = self._weights.read()
        self._read_ns += now_ns() - begin
        if found is not None:
            self._player.load(found, self._weights.version)
            self._row[on.VERSION] = self._weights.version

    def _tell(self, ended: list[Episode]) -> None:
        begin, player = now_ns(), self._player
        if ended or self._outbox.waiting:
            self._outbox.put(ended)
        if self._board.orders[on.WAITING]:
            os.eventfd_write(self._part.wake, 1)
        self._told_ns += now_ns() - begin
        weights_ns = player.weights_ns + self._read_ns
        now = (player.act_ns, player.env_ns, player.store_ns, weights_ns, self._told_ns, self._ratio_ns)
        self._row[on.ACT : on.RATIO + 1] = [a + b for a, b in zip(now, self._spent_before, strict=True)]

    def _wait(self, limit: int) -> None:
        """Publish everything, say that this limit was reached, and wait until the learner allows more."""
        self._flush()
        if self._part.lockstep:
            self._outbox.flush()
        self._tell([])
        self._row[on.IDLE] = limit
        os.eventfd_write(self._part.wake, 1)
        begin = now_ns()
        with span("collect.wait"):
            while self._room(self._limit()) <= 0 and not self._board.orders[on.STOP]:
                self._beat()
                if self._go.poll(PATIENCE_MS):
                    os.eventfd_read(self._part.go)
        if limit:  # before the first order nobody waits for the ratio, but for the others to be ready
            self._ratio_ns += now_ns() - begin
        self._beat()
