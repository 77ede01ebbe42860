"""A recorded process as the recorder sees it through the channel of shared memory (`../../spans/channel.h`)."""

from __future__ import annotations

import json
import os
import struct
from array import array
from collections.abc import Sequence

import numpy as np

from hotloop.profiling.recorder import _channel  # pyright: ignore[reportAttributeAccessIssue]
from hotloop.profiling.recorder.feed import ThreadEvents
from hotloop.profiling.recorder.messages import Message
from hotloop.profiling.recorder.process_stats import ProcessStats
from hotloop.profiling.recorder.samples import CodeRow, StackRow, Taken, taken_from
from hotloop.spans.registry import COUNTER_BASE

CODE_HEAD, STACK_HEAD = struct.Struct("=7i"), struct.Struct("=3i")


class ChannelFeed:
    """A recorded process.

    Args:
        path: Where its memory can be opened.
        main_ident: The ident of its main thread.
    """

    is_elsewhere = True

    def __init__(self, path: str, main_ident: int) -> None:
        self.channel = _channel.Reader(path)
        self.main_ident = main_ident
        self.stats = ProcessStats(self.channel.get("pid"), self, self._gpu, os.path.dirname(os.path.dirname(path)))
        self._window: list[list[str]] = []
        self._followed = b""
        self._read = self._new_messages()
        self.process: Message = next((each["content"] for each in self._read if each["is"] == "process"), {})
        """The content of `process.json`. Comes through memory because its command line is not redacted yet."""

    @property
    def count(self) -> int:
        """Number of the garbage collector's pauses."""
        return self.channel.get("gc_count")

    @property
    def ns(self) -> int:
        """Duration of the garbage collector's pauses."""
        return self.channel.get("gc_ns")

    def _gpu(self) -> tuple[int, int]:
        return self.channel.get("gpu_bytes"), self.channel.get("gpu_busy_percent")

    def sampler_ns(self) -> int:
        """Return the CPU time of the thread that samples stacks."""
        return self.channel.get("sampler_cpu_ns")

    def messages(self) -> list[Message]:
        """Return new messages."""
        read, self._read = self._read, []
        return read + self._new_messages()

    def _new_messages(self) -> list[Message]:
        return [read for each in self.channel.take_messages() if (read := self._message(each)) is not None]

    def _message(self, record: bytes) -> Message | None:
        if record.startswith(b"K"):
            _, *fields = record.decode("utf-8", "surrogatepass").split("\0")
            if len(fields) == 8:
                self._window.append(fields)
            return None
        if record.startswith(b"W"):
            rows, self._window = self._window, []
            return {"is": "calls", "rows": rows, "counts": _counts(record[1:])}
        if record.startswith(b"E"):
            self._followed += record[1:]
            return None
        if record.startswith(b"O"):
            (whole,), counts = struct.unpack_from("=q", record, 1), _counts(record[9:])
            rows, self._followed = self._followed, b""
            # Parts may be missing: there was no room for them.
            return {"is": "followed", "rows": rows if len(rows) == 8 * whole else b"", "counts": counts}
        return json.loads(record)

    def events(self) -> list[ThreadEvents]:
        """Take the new events of all threads."""
        found = [
            ThreadEvents(serial, ident, name, np.frombuffer(pairs, np.int64).reshape(-1, 2))
            for serial, ident, name, pairs in self.channel.take_logs()
        ]
        if late := self.channel.take_late():
            found.append(ThreadEvents(0, self.main_ident, "", np.array(late, np.int64)))
        return found

    def samples(self) -> Taken:
        """Take the new stack samples. Samples first: what they refer to was sent before them."""
        packed = self.channel.take_samples()
        codes: list[CodeRow] = []
        stacks: list[StackRow] = []
        for record in self.channel.take_definitions():
            if record[0] == ord("C"):
                codes.append(_code_row(record))
            else:
                _, number, depth = STACK_HEAD.unpack_from(record)
                places = struct.unpack_from(f"={2 * depth}i", record, STACK_HEAD.size)
                stacks.append((number, tuple(zip(places[::2], places[1::2], strict=True))))
        return taken_from(codes, stacks, packed)

    def counted(self) -> Sequence[int]:
        """Return by span code how many calls were counted without being timed, so far."""
        return array("q", self.channel.array("counted"))

    def device_ns(self) -> Sequence[int]:
        """Return by span code how long a device worked, so far."""
        return array("q", self.channel.array("device_ns"))

    def within_ns(self) -> Sequence[float]:
        """Return by span code how long hooks' wrappers took within spans, so far."""
        return array("d", self.channel.array("within_ns"))

    def looked(self) -> Sequence[int]:
        """Return by span code at how many calls hooks looked more closely, so far."""
        return array("q", self.channel.array("looked"))

    def look(self, on: bool) -> None:
        """Have hooks look more closely at the calls that they time, or no longer."""
        self.channel.set("looking", int(on))

    def count_only(self, codes: set[int]) -> None:
        """Count the calls of these spans without timing them; time all others."""
        self.channel.count_only(bytes(code in codes for code in range(max(codes, default=0) + 1)))

    def set_interval(self, interval_ns: int) -> None:
        """Change the mean interval between stack samples."""
        self.channel.set("tick_ns", interval_ns)

    def open_window(self) -> None:
        """Follow the main thread or count its calls, in turns, for some milliseconds."""
        self.channel.set("windows_asked", self.channel.get("windows_asked") + 1)

    def end(self) -> None:
        """Record nothing more."""
        self.channel.set("has_ended", 1)


def _counts(amounts: bytes) -> dict[str, int]:
    return {str(COUNTER_BASE + i): amount for i, amount in enumerate(array("q", amounts)) if amount}


def _code_row(record: bytes) -> CodeRow:
    _, number, first_line, *sizes = CODE_HEAD.unpack_from(record)
    parts, at = [], CODE_HEAD.size
    for size in sizes:
        parts.append(record[at : at + size])
        at += size
    file, name = (each.decode("utf-8", "surrogatepass") for each in parts[:2])
    return number, file, name, first_line, parts[2], parts[3]
