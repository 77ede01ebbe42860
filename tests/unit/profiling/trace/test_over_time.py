"""Phases window by window, where spans were timed in some blocks only. A clock turned by hand makes all exact."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.scripted import Run, scripted_run

from hotloop.phases import Phase
from hotloop.profiling.trace.load import load
from hotloop.spans import registry

MS = 1_000_000
STEP, LOSS, OUTER = "env.step", "loss", "rollout"


def switch(run: Run, off: tuple[str, ...]) -> None:
    """End a block; time all but these spans in the next."""
    recorder = run.recorder
    recorder._take_events()
    recorder._tally()
    recorder._fold(run.now, recorder._governor.dark)
    recorder._governor.dark = bool(off)
    for name in (STEP, LOSS, OUTER):
        (registry.make_counted if name in off else registry.make_live)(registry.span(name))


def iterations(run: Run, n: int, step_ms: int = 6, off: tuple[str, ...] = ()) -> None:
    switch(run, off)
    for _ in range(n):
        run.during(STEP, step_ms * MS, "env_steps")
        run.during(LOSS, 4 * MS)


def by_window(folder: Path) -> dict[str, list[float]]:
    windows = load(folder).main.windows
    return {str(phase): (ns[windows.in_loop] / MS).tolist() for phase, ns in windows.phase_self_ns.items()}


def test_spans_timed_in_a_part_of_a_window_are_scaled_to_the_whole_of_it(tmp_path, monkeypatch):
    with scripted_run(tmp_path, monkeypatch) as run:
        iterations(run, 100)
        run.second()
        iterations(run, 20)
        iterations(run, 80, off=(STEP,))
        switch(run, ())
        run.second()
        iterations(run, 30, step_ms=12)
        iterations(run, 70, step_ms=12, off=(STEP, LOSS))
        switch(run, ())
        run.second()
    found = by_window(tmp_path)
    assert found["env"] == pytest.approx([600, 600, 1200])
    assert found["forward"] == pytest.approx([400, 400, 400])


def test_a_span_that_a_window_did_not_time_takes_as_long_as_in_the_run(tmp_path, monkeypatch):
    with scripted_run(tmp_path, monkeypatch) as run:
        iterations(run, 100)
        run.second()
        iterations(run, 3)
        iterations(run, 147, off=(STEP,))
        switch(run, ())
        run.second()
        iterations(run, 200, off=(STEP, LOSS))
        switch(run, ())
        run.second()
    found = by_window(tmp_path)
    assert found["env"] == pytest.approx([600, 900, 1200])
    assert found["forward"] == pytest.approx([400, 600, 800])


def test_what_is_not_timed_inside_a_span_is_not_the_spans_own(tmp_path, monkeypatch):
    def rollout(run: Run, off: tuple[str, ...]) -> None:
        switch(run, off)
        for _ in range(60):
            with run.open(registry.span(OUTER, Phase.ACT)):
                run.spend(10 * MS)
                run.during(STEP, 10 * MS, "env_steps")

    with scripted_run(tmp_path, monkeypatch) as run:
        rollout(run, ())
        run.second()
        rollout(run, (STEP,))
        switch(run, ())
        run.second()
    found = by_window(tmp_path)
    # The loop begins with the first step, so that the ten milliseconds before it are start-up.
    assert found["act"] == pytest.approx([590, 600])
    assert found["env"] == pytest.approx([600, 600])


def test_the_first_window_begins_with_the_first_step(tmp_path, monkeypatch):
    with scripted_run(tmp_path, monkeypatch) as run:
        switch(run, ())
        run.spend(700 * MS)
        iterations(run, 50)
        iterations(run, 50, off=(STEP,))
        switch(run, ())
        run.second()
    assert by_window(tmp_path)["env"] == pytest.approx([600])


def test_windows_show_the_seconds_that_they_last(tmp_path, monkeypatch):
    with scripted_run(tmp_path, monkeypatch) as run:
        iterations(run, 100)
        run.second()
        iterations(run, 50, off=(STEP,))
        run.spend(600 * MS)
        switch(run, ())
        run.second()
    trace = load(tmp_path)
    windows = trace.main.windows
    seconds = (windows.end_ns - windows.start_ns)[windows.in_loop] / 1e9
    shown = sum(ns[windows.in_loop] for ns in windows.phase_self_ns.values()) / 1e9
    assert shown == pytest.approx(seconds, abs=1e-6)


def test_time_between_spans_is_divided_as_in_the_run_where_a_window_timed_nothing(tmp_path, monkeypatch):
    def with_gaps(run: Run, off: tuple[str, ...]) -> None:
        switch(run, off)
        for _ in range(100):
            run.during(STEP, 6 * MS, "env_steps")
            run.during(LOSS, 4 * MS)
            run.spend(3 * MS)

    with scripted_run(tmp_path, monkeypatch) as run:
        with_gaps(run, ())
        run.second()
        with_gaps(run, (STEP, LOSS))
        switch(run, ())
        run.second()
    found = by_window(tmp_path)
    assert found["own code"] == pytest.approx([300, 300], rel=0.02)
    assert found["env"] == pytest.approx([600, 600])
