"""What a user reads while a training goes on: rates, shares of the time, and summaries of the recording."""

from __future__ import annotations

import errno
import io
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.trainee import Trainee, options, run

from hotloop.cli.recording import ProfileOptions, TrainingRecording
from hotloop.errors import HotloopError
from hotloop.training.run import phase_timer as timing
from hotloop.training.run.counts import Counts
from hotloop.training.run.phase_timer import Interval, Laps
from hotloop.training.run.progress import Bar, line

SHARE = re.compile(r" (\d+)%")
MS = 1_000_000


class Clock:
    """Moves by hand."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns

    def spend(self, ns: int) -> None:
        self.now_ns += ns


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(timing, "now_ns", made)
    return made


def shown(counts: Counts, since: Interval) -> str:
    return line({**counts.as_row(), **since.numbers()}, 1.0)


def test_rates_and_shares_of_an_interval(clock: Clock) -> None:
    counts, timed = Counts(), Laps()
    since = Interval(counts, timed)
    with timed("act"):
        clock.spend(600 * MS)
    with timed("learn.update"):
        clock.spend(1400 * MS)
    counts.add(env_steps=100, updates=8)
    assert shown(counts, since) == "1.00 s, 100 steps, 50.0 steps/s, 4.00 updates/s, learn.update 70% act 30%"


def test_an_interval_in_which_nothing_was_done_has_no_rate(clock: Clock) -> None:
    counts, timed = Counts(env_steps=100, updates=8), Laps()
    since = Interval(counts, timed)
    with timed("evaluate"):
        clock.spend(990 * MS)
    clock.spend(10 * MS)
    assert shown(counts, since) == "1.00 s, 100 steps, evaluate 99%"
    assert since.numbers()["env_steps_per_s"] is None


def test_an_interval_without_time_has_neither_rates_nor_shares(clock: Clock) -> None:
    counts, timed = Counts(), Laps()
    with timed("act"):
        clock.spend(MS)
    since = Interval(counts, timed)
    counts.add(env_steps=5)
    assert shown(counts, since) == "1.00 s, 5 steps"


def test_a_count_that_stands_still_has_no_rate_beside_one_that_advances(clock: Clock) -> None:
    """Before the first update a replay is filled: steps have a rate, updates have none yet."""
    counts = Counts()
    since = Interval(counts, Laps())
    counts.add(env_steps=50)
    clock.spend(500 * MS)
    assert shown(counts, since) == "1.00 s, 50 steps, 100 steps/s"
    assert since.numbers()["updates_per_s"] == 0.0


def test_a_lap_that_is_open_when_an_interval_begins_counts_from_there(clock: Clock) -> None:
    """A report restarts the interval inside its own lap: what it took before is not of the new interval."""
    counts, timed = Counts(), Laps()
    since = Interval(counts, timed)
    with timed("log"):
        clock.spend(100 * MS)
        since.restart()
        clock.spend(10 * MS)
    counts.add(env_steps=1)
    assert since.numbers()["share.log"] == 1.0
    with timed("act"):
        clock.spend(10 * MS)
        assert since.numbers()["share.act"] == since.numbers()["share.log"] == 0.5


def test_shares_that_are_shown_never_sum_to_more_than_all(clock: Clock) -> None:
    counts, timed = Counts(), Laps()
    for parts in ([505, 495], [335, 335, 330], [125] * 8, [1, 2, 997], [999, 1]):
        since = Interval(counts, timed)
        for i, part in enumerate(parts):
            with timed(f"part {i}"):
                clock.spend(part)
        counts.add(env_steps=1)
        assert sum(map(int, SHARE.findall(shown(counts, since)))) == 100


def talkative(tmp_path: Path, **more: Any) -> Any:
    return options(tmp_path, quiet=False, eval_episodes=0, **more)


def summaries(every: int, quiet: bool = False, **more: Any) -> TrainingRecording:
    return TrainingRecording(ProfileOptions(profile_summary_every=every, **more), quiet)


@pytest.mark.parametrize(
    ("every", "steps", "at"), [(20, 60, [20, 40, 60]), (25, 60, [30, 50]), (1000, 30, [30]), (10, 30, [10, 20, 30])]
)
def test_a_summary_is_printed_at_each_multiple_and_at_the_end_of_a_shorter_run(
    every: int, steps: int, at: list[int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(Trainee([]), talkative(tmp_path, steps=steps), recording=summaries(every))
    said = capsys.readouterr().err
    assert said.count("profile of run") == len(at)
    assert [int(each) for each in re.findall(r"env steps/s \((\d+) in all\)", said)] == at
    assert [int(each) for each in re.findall(r"updates/s \((\d+) in all\)", said)] == [each * 4 // 10 for each in at]


def test_a_resumed_run_prints_summaries_at_multiples_of_all_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(Trainee([]), talkative(tmp_path, steps=30))
    capsys.readouterr()
    resumed = Trainee([])
    resumed.counts = Counts(30, 30, 12, 3)
    more = talkative(tmp_path, steps=70, resume=tmp_path / "run")
    run(resumed, replace(more, out=tmp_path / "more"), recording=summaries(25))
    said = capsys.readouterr().err
    assert re.findall(r"env steps/s \((.*?)\)", said) == ["20 in this run, 50 in all"]


def test_quiet_prints_no_summary_and_no_recording_allows_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(Trainee([]), options(tmp_path, steps=30, eval_episodes=0), recording=summaries(10, quiet=True))
    assert capsys.readouterr().err == ""
    with pytest.raises(HotloopError, match="--profile-summary-every needs the recording that --no-profile turns off"):
        ProfileOptions(profile=False, profile_summary_every=10)


def test_a_summary_that_falls_into_a_closer_look_is_printed_after_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(Trainee([]), talkative(tmp_path, steps=100), recording=summaries(40, functions=3, warmup=2))
    said = capsys.readouterr().err
    assert [int(each) for each in re.findall(r"env steps/s \((\d+) in all\)", said)] == [50, 80]


def test_the_last_line_is_about_the_training_not_about_the_evaluation_after_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(Trainee([1.0]), options(tmp_path, steps=30, quiet=False))
    lines = capsys.readouterr().err.splitlines()[-2:]
    assert re.fullmatch(r"fake 100\.0 %: \S+ \S+, 30 steps, [1-9]\S* steps/s, [1-9]\S* updates/s, .*", lines[0])
    assert "evaluate" not in lines[0] and "100 greedy episodes at 30 steps" in lines[1]


def test_a_last_line_that_is_held_back_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    bar = Bar("fake", quiet=False)
    for second in (1.0, 2.0, 3.0):
        bar.show(second / 3, second, {"env_steps": second, "env_steps_per_s": 1.0, "updates_per_s": None})
    bar.flush()
    bar.flush()
    shown = capsys.readouterr().err.splitlines()
    assert shown == ["fake 33.3 %: 1.00 s, 1 steps, 1.00 steps/s", "fake 100.0 %: 3.00 s, 3 steps, 1.00 steps/s"]


class Gone(io.StringIO):
    """A stream whose reader, disk or terminal is gone."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal

    def write(self, text: str) -> int:
        raise OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("quiet", [False, True])
def test_a_training_goes_on_where_stderr_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminal: bool, quiet: bool
) -> None:
    """The first lost line was tolerated, the second raised `generator didn't yield` and ended the training."""
    stdout = sys.stdout
    monkeypatch.setattr(sys, "stderr", Gone(terminal))
    monkeypatch.setenv("TERM", "xterm")
    bar = Bar("fake", quiet=quiet)
    bar.start()
    for _ in range(3):
        bar.stage("games")
        bar.staged(1.0)
        bar.warn("a checkpoint could not be written")
        bar.show(0.5, 10.0, {"env_steps": 5, "env_steps_per_s": None, "updates_per_s": None})
        bar.flush()
    bar.stop()
    assert sys.stdout is stdout
    result = run(Trainee([1.0, 2.0, 3.0]), options(tmp_path, steps=100, eval_every=50, quiet=quiet))
    assert (result.exit_code, result.env_steps) == (0, 100)
