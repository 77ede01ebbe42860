"""Names reach the recorder in order and without a gap, also when the channel is full for a while."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotloop.profiling.recorder import remote_recorder
from hotloop.profiling.recorder.messages import Message
from hotloop.profiling.recorder.record_options import RecordOptions
from hotloop.profiling.recorder.remote_recorder import RemoteRecorder
from hotloop.spans import registry

pytest.importorskip("hotloop.spans._hot_path")


class Full(RemoteRecorder):
    """One whose channel has no room at each second attempt."""

    def __init__(self, always: bool = False) -> None:
        super().__init__(Path("run"), Path("run/1"), RecordOptions(), main=True)
        self.received: list[Message] = []
        self.attempts = 0
        self.always = always

    def send(self, message: Message) -> bool:
        self.attempts += 1
        if self.always or self.attempts % 2:
            return False
        self.received.append(message)
        return True


def names(recorder: Full, kind: str) -> list[str]:
    return [each["name"] for each in recorder.received if each["is"] == kind]


def test_a_name_waits_for_room():
    """Regression: a name for which there was no room was left out, and the names after it were shifted by one."""
    for name in ("env_steps", "updates"):
        registry.counter_code(name)
    recorder = Full()
    recorder.send_names()
    assert names(recorder, "counter") == list(registry.known_counters())
    assert names(recorder, "span") == [each.name for each in registry.known_spans()]
    before = len(recorder.received)
    recorder.send_names()
    assert len(recorder.received) == before, "each is sent once"


def test_names_are_sent_later_if_nobody_reads(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(remote_recorder, "ROOM_S", 0.01)
    registry.counter_code("env_steps")
    recorder = Full(always=True)
    recorder.send_names()
    assert recorder.received == []
    recorder.always = False
    recorder.send_names()
    assert names(recorder, "counter") == list(registry.known_counters())


def test_a_signal_handler_that_sends_names_sends_none_twice():
    for name in ("env_steps", "updates"):
        registry.counter_code(name)

    class Interrupted(Full):
        def send(self, message: Message) -> bool:
            self.send_names()
            return super().send(message)

    recorder = Interrupted()
    recorder.send_names()
    assert names(recorder, "counter") == list(registry.known_counters())
