"""What ten spans cost in a real update of about a millisecond, beside other ways to time a block of code.

Three passes. First every span is timed, to learn what one costs in place. Then hotloop records as it does by
default, to learn what that costs an update. Last, the recorder is started and stopped in turn, to learn what
all of it costs, its sampler and writer included.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from measure import (
    Estimate,
    Row,
    Times,
    against_limit,
    estimate,
    exactly,
    extra_of,
    interleave,
    main,
    mean_ratio_of,
    recorder_process,
    say,
)
from opentelemetry.sdk.trace import TracerProvider
from torch.profiler import ProfilerActivity, profile, record_function
from update import PARTS, StudyProfiler, make_update

from hotloop.clock import now_ns
from hotloop.profiling.recorder.record_options import RecordOptions
from hotloop.profiling.recorder.session import record
from hotloop.spans import span
from hotloop.spans.registry import Span, is_live, recording

US, MS, S = 1e3, 1e6, 1e9
CALLS = 2
LEAST_NS = 100.0
"""Ten spans are taken to cost at least this: below it a ratio says nothing."""
ALL_TIMED = RecordOptions(budget=1.0)
NO_RAW = RecordOptions(raw_bytes=0)
FUNCTION_OFF, FUNCTION_ON = "record_function, profiler off", "record_function, profiler on"
OPENTELEMETRY, STUDY = "OpenTelemetry, no exporter", "psutil per span"
IN_PLACE, IDLE = "a span in place", "a span, nothing recording"
ASKED = {FUNCTION_OFF: 10.0, STUDY: 35.0}
SPANS_LIMIT, WHOLE_LIMIT = 1.01, 1.015
SPAN_LIMIT_US, IDLE_LIMIT_US, MEMORY_LIMIT_MB = 1.2, 0.1, 1.0
NAMES = 200
Updates = dict[str, Callable[[], object]]


def run(quick: bool) -> list[Row]:
    """Measure everything this bench shows."""
    torch.set_num_threads(1)
    tracer = TracerProvider().get_tracer("bench")
    updates: Updates = {
        "plain": make_update(None),
        "hotloop": make_update(span),
        FUNCTION_OFF: make_update(record_function),
        OPENTELEMETRY: make_update(tracer.start_as_current_span),
        STUDY: make_update(StudyProfiler().block),
    }
    rounds = 25 if quick else 4000
    say("spans: one span in place")
    rows = in_place(updates, rounds)
    say("spans: nothing recording")
    rows += idle(rounds // 2)
    say("spans: profiler on")
    rows += profiler_on(updates, max(rounds // 10, 10))
    say("spans: an update as recorded by default")
    rows += slow_down(updates, rounds)
    say("spans: the whole recorder, on and off in turn")
    rows += whole_recorder(updates, 30 if quick else 600, 0.1)
    say("spans: memory of the statistics")
    return [*rows, statistics_memory(3.0 if quick else 20.0)]


def in_place(updates: Updates, rounds: int) -> list[Row]:
    """Compare a span with its peers while hotloop records, with no span left out to save time."""
    ours = [span(name) for name in PARTS]
    with tempfile.TemporaryDirectory() as folder, record(Path(folder) / "run", options=ALL_TIMED):
        # The recorder switches spans off for a moment now and then, to learn their cost: not those rounds.
        times = interleave(updates, rounds, CALLS, after_block=lambda _: _all_live(ours))
    plain = times["plain"]
    say(f"  the update takes {np.median(plain) / MS:.3f} ms without spans")
    found = estimate(_per_span_us, times["hotloop"], plain)
    limit = against_limit(IN_PLACE, found, SPAN_LIMIT_US, "µs")
    return [limit, *(beside(times, peer) for peer in (FUNCTION_OFF, OPENTELEMETRY, STUDY))]


def _all_live(ours: list[Span]) -> bool:
    return _still_recording() and all(map(is_live, ours))


def _still_recording() -> bool:
    if not recording():
        raise RuntimeError("the recorder stopped in the middle of the bench: its warning above says why")
    return True


def idle(rounds: int) -> list[Row]:
    """Compare a span that nobody listens to with `record_function` that nobody listens to.

    Around an operation of a microsecond: in an update of a millisecond so little cannot be seen.
    """
    ours, x, y = span("idle"), torch.ones(64), torch.ones(64)

    def plain() -> None:
        for _ in range(len(PARTS)):
            torch.add(x, x, out=y)

    def hotloop() -> None:
        for _ in range(len(PARTS)):
            with ours:
                torch.add(x, x, out=y)

    def function() -> None:
        for _ in range(len(PARTS)):
            with record_function("idle"):
                torch.add(x, x, out=y)

    times = interleave({"plain": plain, "hotloop": hotloop, FUNCTION_OFF: function}, rounds, 10 * CALLS)
    found = estimate(_per_span_us, times["hotloop"], times["plain"])
    return [against_limit(IDLE, found, IDLE_LIMIT_US, "µs"), beside(times, FUNCTION_OFF, IDLE)]


def profiler_on(updates: Updates, rounds: int) -> list[Row]:
    """Compare a recorded span with `record_function` under torch's profiler, which times every operation, too."""
    with tempfile.TemporaryDirectory() as folder, record(Path(folder) / "run", options=ALL_TIMED):
        chosen, spans = {name: updates[name] for name in ("plain", "hotloop")}, [span(name) for name in PARTS]
        ours = interleave(chosen, rounds, CALLS, after_block=lambda _: _all_live(spans))
    with profile(activities=[ProfilerActivity.CPU]):
        peers = interleave({name: updates[name] for name in ("plain", FUNCTION_OFF)}, rounds, CALLS)
    mine = estimate(_per_span_us, ours["hotloop"], ours["plain"])
    # Against the update without a profiler: who turns it on for its spans pays for all that it does.
    whole = estimate(
        lambda t, plain: float(np.median(t) - np.median(plain)) / len(PARTS) / US,
        peers[FUNCTION_OFF],
        ours["plain"],
    )
    spans_only = estimate(_per_span_us, peers[FUNCTION_OFF], peers["plain"])
    return [
        _one_by_one(mine, spans_only, FUNCTION_ON),
        _one_by_one(mine, whole, f"{FUNCTION_ON}, with all that it records"),
    ]


def _one_by_one(mine: Estimate, theirs: Estimate, peer: str) -> Row:
    """Make a row of two numbers that were not measured in the same rounds: their intervals add up."""
    return Row(
        IN_PLACE, mine.value, theirs.value, peer, "µs",
        theirs.value / mine.value, theirs.low / mine.high, theirs.high / max(mine.low, 1e-3),
    )  # fmt: skip


def slow_down(updates: Updates, rounds: int) -> list[Row]:
    """An update with ten spans against one without, while hotloop records as it does by default."""
    chosen = {name: updates[name] for name in ("plain", "hotloop")}
    # The budget is a share of the run. Half of these updates have no spans, so half of the default budget leaves
    # to the other half what they would get in a run in which all updates have spans.
    options = RecordOptions(budget=RecordOptions().budget / 2)
    with tempfile.TemporaryDirectory() as folder, record(Path(folder) / "run", options=options):
        interleave(chosen, rounds // 2, CALLS)
        times = interleave(chosen, 2 * rounds, CALLS, after_block=lambda _: _still_recording())
    found = estimate(mean_ratio_of, times["hotloop"], times["plain"])
    return [against_limit("an update with ten spans", found, SPANS_LIMIT, "×")]


def whole_recorder(updates: Updates, pairs: int, seconds: float) -> list[Row]:
    """Ten spans and the whole recorder against the same update with neither, in turns of a tenth of a second.

    While the turn without is on, the recorder's background thread is held up by its own lock, and is told that this
    time has not been: what it does in a second, it does in a second of turns with.
    """
    on, off = np.empty(pairs), np.empty(pairs)
    order = random.Random(1)
    with tempfile.TemporaryDirectory() as folder, record(Path(folder) / "run") as session:
        assert session.recorder is not None
        for i in range(-pairs // 10, pairs):
            for turn in order.sample(("on", "off"), 2):
                if turn == "on":
                    on[i] = _mean_ns(updates["hotloop"], seconds)
                else:
                    with session.recorder.resting():
                        off[i] = _mean_ns(updates["plain"], seconds)
            _still_recording()
    found = estimate(mean_ratio_of, on, off)
    return [against_limit("an update with ten spans, sampler and writer included", found, WHOLE_LIMIT, "×")]


def _mean_ns(update: Callable[[], object], seconds: float) -> float:
    update()
    begin, calls = now_ns(), 0
    while (took := now_ns() - begin) < seconds * S:
        update()
        calls += 1
    return took / calls


def statistics_memory(seconds: float) -> Row:
    """What the recorder's process holds for 200 span names beyond what it holds for one, single spans not kept."""
    few, many = (min(_recorder_bytes(names, seconds) for _ in range(2)) for names in (1, NAMES))
    say(f"  the recorder's process has {few / 1e6:.1f} MB of its own with one name, {many / 1e6:.1f} MB with {NAMES}")
    held = max(many - few, 0) / 1e6
    return against_limit(f"memory of the statistics of {NAMES} span names", exactly(held), MEMORY_LIMIT_MB, "MB")


def _recorder_bytes(names: int, seconds: float) -> int:
    """Record some names for a while, as often as a training loop might; return what the recorder's process then has."""
    spans = [span(f"memory.name{i}") for i in range(names)]
    with tempfile.TemporaryDirectory() as folder, record(Path(folder) / "run", options=NO_RAW):
        begin = now_ns()
        while now_ns() - begin < seconds * S:
            for each in spans:
                with each:
                    pass
            time.sleep(0.01)
        # What waits to be folded is no statistics: let the recorder fold it.
        time.sleep(min(seconds, 1.5))
        return recorder_process().memory_full_info().uss


def beside(times: dict[str, Times], peer: str, name: str = IN_PLACE) -> Row:
    """Make the row that compares a span with a peer's, both against the update without."""
    ours, theirs, plain = times["hotloop"], times[peer], times["plain"]
    ratio = estimate(lambda o, t, p: extra_of(t, p) / max(extra_of(o, p), LEAST_NS), ours, theirs, plain)
    asked = ASKED.get(peer, 0.0) if name == IN_PLACE else 0.0
    return Row(
        name, _per_span_us(ours, plain), _per_span_us(theirs, plain), peer, "µs",
        ratio.value, ratio.low, ratio.high, asked,
    )  # fmt: skip


def _per_span_us(with_spans: Times, plain: Times) -> float:
    return extra_of(with_spans, plain) / len(PARTS) / US


if __name__ == "__main__":
    main(run, __doc__)
