"""The device clock with a fake device: events are pooled, and read only after the device has passed them."""

from __future__ import annotations

from dataclasses import dataclass, field

from hotloop.clock import DeviceClock
from hotloop.phases import Phase
from hotloop.spans import registry


@dataclass
class Device:
    """A fake device that completes its work only when the test says so."""

    made: int = 0
    asked_ms: float = 0.0
    done_ms: float = -1.0

    def event(self) -> Event:
        self.made += 1
        return Event(self)


@dataclass
class Event:
    device: Device
    at_ms: float = field(default=-1.0)

    def record(self) -> None:
        self.at_ms = self.device.asked_ms

    def query(self) -> bool:
        return self.at_ms <= self.device.done_ms

    def elapsed_time(self, later: Event) -> float:
        return later.at_ms - self.at_ms


def test_events_are_not_read_before_the_device_is_done():
    device = Device()
    clock = DeviceClock(device.event)
    clock.begin(3)
    device.asked_ms = 2.5
    clock.end(3)
    assert clock.poll() == {}
    device.done_ms = 2.5
    assert clock.poll() == {3: 2_500_000}
    assert clock.poll() == {}


def test_nested_spans_have_their_own_times_and_events_are_reused():
    device = Device(done_ms=1e9)
    clock = DeviceClock(device.event)
    for _ in range(10):
        clock.begin(1)
        device.asked_ms += 1
        clock.begin(2)
        device.asked_ms += 2
        clock.end(2)
        clock.end(1)
        assert clock.poll() == {1: 3_000_000, 2: 2_000_000}
    assert device.made == 4


def test_an_end_without_a_begin_is_ignored():
    clock = DeviceClock(Device(done_ms=1e9).event)
    clock.end(1)
    clock.begin(1)
    clock.end(2)
    assert clock.poll() == {}


def test_pending_events_of_a_slow_device_are_bounded():
    device = Device()
    clock = DeviceClock(device.event, most=5)
    for _ in range(100):
        clock.begin(1)
        clock.end(1)
    device.done_ms = 1e9
    assert device.made <= 11
    assert sum(clock.poll().values()) == 0


def test_only_spans_that_may_use_the_device_are_timed_on_it():
    device = Device(done_ms=1e9)
    clock = DeviceClock(device.event)
    logs = registry.listen()
    try:
        registry.use_device(clock)
        forward, step = registry.span("clock.forward", Phase.FORWARD), registry.span("clock.env", Phase.ENV)
        with step, forward:
            device.asked_ms += 4
        assert clock.poll() == {forward.code: 4_000_000}
        assert [abs(code) for code in logs[0].events[::2]] == [step.code, forward.code, forward.code, step.code]
    finally:
        registry.hush()
