"""The process that records a run: reads the shared memory of all its processes, and writes the run directory.

It is nobody's child and in no terminal's process group, so neither a script that waits for its children nor Ctrl-C
reaches it. If a recorded process is killed, it writes what that one left. It ends when the main process has, and with
it all others that were recorded.
"""

from __future__ import annotations

import json
import math
import os
import select
import signal
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from hotloop.clock import now_ns, process_cpu_ns
from hotloop.notice import notice
from hotloop.profiling.recorder import rendezvous
from hotloop.profiling.recorder.messages import Message

if TYPE_CHECKING:
    from hotloop.profiling.recorder.record_options import RecordOptions

LONGEST_WAIT_NS = 100_000_000
"""How long a new process may wait for being seen, and an ended one for being noticed."""
UNATTENDED_NS = 30_000_000_000
"""How long to wait for the first process of a run."""
NICE = 5


def main(run: str, detach: bool = False) -> None:
    """Record a run until it ends.

    Args:
        run: The run directory.
        detach: First become nobody's child. The caller's process ends here.
    """
    if detach:
        rendezvous.prepare(Path(run))
        if os.fork():
            os._exit(0)
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    try:
        os.nice(NICE)
        _Companion(Path(run)).work()
    except Exception as error:
        notice(f"the recorder failed ({error!r}): training continues without recording")
    finally:
        rendezvous.close(Path(run))


def fork(run: Path) -> None:
    """Start the companion of a run from a process without threads that is about to become the recorded one."""
    rendezvous.prepare(run)
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    _become_orphan(run)


def _become_orphan(run: Path) -> NoReturn:
    try:
        if not os.fork():
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, 0)
            os.dup2(nothing, 1)
            os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
            main(str(run))
    finally:
        os._exit(0)


class _Companion:
    """Looks after the recorders of all processes of a run."""

    def __init__(self, run: Path) -> None:
        from hotloop.profiling.recorder.manifest import MANIFEST
        from hotloop.profiling.recorder.record_options import RecordOptions

        self._run = run
        manifest = json.loads((run / MANIFEST).read_text(encoding="utf-8"))
        self._options = RecordOptions(**manifest["options"])
        self._recorded: list[_Recorded] = []
        self._main_ended = False

    def work(self) -> None:
        """Record until the main process has ended, and with it all others."""
        from hotloop.profiling.recorder import _channel  # pyright: ignore[reportAttributeAccessIssue]

        begin = now_ns()
        while self._recorded or self._waits(begin):
            wanted = int(min([now_ns() + LONGEST_WAIT_NS, *(each.due_ns for each in self._recorded)]))
            _channel.wait([each.feed.channel for each in self._recorded], wanted)
            self._attend(urgent=now_ns() < wanted)

    def _waits(self, since: int) -> bool:
        """Return whether the main process may still come."""
        return not self._main_ended and now_ns() - since < UNATTENDED_NS and rendezvous.is_open(self._run)

    def _attend(self, urgent: bool) -> None:
        if not self._main_ended:
            for offer in rendezvous.take_offers(self._run):
                self._attach(offer)
        # The main process last: when it has ended, all that ended before is in the files.
        for each in sorted(self._recorded, key=lambda each: each.main):
            if each.attend(urgent):
                self._recorded.remove(each)
                self._main_ended |= each.main

    def _attach(self, offer: Message) -> None:
        try:
            self._recorded.append(_Recorded(self._run, self._options, offer))
        except (OSError, ValueError) as error:
            if offer["main"]:
                raise
            notice(f"a process is not recorded: {error}")


class _Recorded:
    """A process of the run."""

    def __init__(self, run: Path, options: RecordOptions, offer: Message) -> None:
        from hotloop.profiling.recorder.channel_feed import ChannelFeed
        from hotloop.profiling.recorder.privacy.redact_text import redacted_command
        from hotloop.profiling.recorder.recorder import Recorder

        self.main: bool = offer["main"]
        self.feed = ChannelFeed(offer["memory"], offer["main_ident"])
        process = self.feed.process | {"argv": redacted_command(self.feed.process["argv"])}
        self._run = run
        self._alive = select.poll()
        self._alive.register(os.pidfd_open(self.feed.stats.pid), select.POLLIN)
        self._spent_ns = 0
        self._rested_ns = 0
        self._recorder = Recorder(run / offer["folder"], options, self.feed, process, self.main)
        self._recorder.start(offer["start_ns"])
        self.feed.channel.set("armed", self._recorder.armed)
        self.feed.channel.set("recorder_pid", os.getpid())

    @property
    def due_ns(self) -> int | float:
        """When to attend to it next."""
        return math.inf if self.feed.channel.get("resting") else self._recorder.due_ns

    def attend(self, urgent: bool) -> bool:
        """Do what is due; return whether the process has ended, or its recording."""
        begin, channel, at = process_cpu_ns(), self.feed.channel, now_ns()
        stopped_ns = channel.get("stopped_ns")
        ended = bool(stopped_ns) or bool(self._alive.poll(0))
        if channel.get("resting") and not ended:
            return False
        if (rested_ns := channel.get("rested_ns")) != self._rested_ns:
            self._recorder.rest(rested_ns - self._rested_ns)
            self._rested_ns = rested_ns
        if ended:
            self._finish(stopped_ns)
        elif (asked := channel.get("flush_asked")) != channel.get("flush_done"):
            self._recorder.flush()
            channel.set("flush_done", asked)
        elif urgent or at >= self._recorder.due_ns:
            self._recorder.tick(self._spent_ns)
            channel.set("armed", self._recorder.armed and not self._recorder.ended)
        if self._recorder.failure:
            channel.fail(self._recorder.failure)
        self._spent_ns += process_cpu_ns() - begin
        return ended

    def _finish(self, stopped_ns: int) -> None:
        self._recorder.stop(stopped_ns)
        position = self._complete_manifest() if self.main and self._recorder.facts.ending is not None else 0
        self.feed.channel.set("finished", position + 1)

    def _complete_manifest(self) -> int:
        from hotloop.profiling.recorder.manifest import finish
        from hotloop.profiling.recorder.privacy.redact_text import redacted_text

        ending, failure = self._recorder.facts.ending or {}, self._recorder.failure
        changes = ending["changes"] | ({"recorder_failed": redacted_text(failure)} if failure else {})
        try:
            return finish(self._run, ending["exit_code"], changes)[1]
        except (OSError, ValueError) as error:
            if not failure:
                notice(f"could not complete {self._run}: {error}")
            return 0
