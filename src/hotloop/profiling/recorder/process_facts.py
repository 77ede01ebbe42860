"""What a recorded process says of itself: the names of its spans and counters, what its hooks cost, how it ended."""

from __future__ import annotations

import numpy as np

from hotloop.phases import Phase
from hotloop.profiling.recorder.feed import Feed, NamedSpan
from hotloop.profiling.recorder.messages import Message


class ProcessFacts:
    """Grows with the messages of a process."""

    def __init__(self, name: str) -> None:
        self.name = name
        """The name that multiprocessing gave it."""
        self.spans: list[NamedSpan] = []
        """In the order of their codes."""
        self.counters: dict[str, int] = {}
        """Name to code."""
        self.wrapper_ns: dict[str, float] = {}
        """What the wrappers of hooks add to a call, by kind."""
        self.ending: Message | None = None
        """What completes the run's manifest."""

    def add(self, message: Message) -> None:
        """Keep what a message says, if it is about this."""
        match message["is"]:
            case "span":
                phase = None if message["phase"] is None else Phase(message["phase"])
                self.spans.append(NamedSpan(message["code"], message["name"], phase, message["hook"]))
            case "counter":
                self.counters[message["name"]] = message["code"]
            case "name":
                self.name = message["name"]
            case "costs":
                self.wrapper_ns |= message["ns"]
            case "ending":
                self.ending = message["content"]


class HookTotals:
    """How long hooks have looked more closely, and at how many calls, since this was made. By span code."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._before = feed.within_ns(), feed.looked()

    def content(self) -> Message:
        """Return them as `state.json` has them."""
        within, looked = np.array(self._feed.within_ns()), np.array(self._feed.looked(), np.int64)
        for now, before in zip((within, looked), self._before, strict=True):
            now[: len(before)] -= np.array(before, now.dtype)
        return {
            "within_ns": {str(code): float(within[code]) for code in np.flatnonzero(within)},
            "looked": {str(code): int(looked[code]) for code in np.flatnonzero(looked)},
        }
