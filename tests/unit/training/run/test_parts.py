"""The small parts around a training loop: counts, laps, curves, stop signals."""

from __future__ import annotations

import csv
import os
import re
import signal
from pathlib import Path

import numpy as np
import pytest

from hotloop.spans import registry
from hotloop.training.run import phase_timer as timing
from hotloop.training.run.counts import Counts, Episodes
from hotloop.training.run.curves import Scalars
from hotloop.training.run.phase_timer import Laps
from hotloop.training.run.progress import line
from hotloop.training.run.stop_signals import Stop


def flags(*values: int) -> np.ndarray:
    return np.array(values, np.bool_)


def test_episodes_are_summed_until_they_end() -> None:
    episodes = Episodes(2)
    assert episodes.means()["return_mean"] is None
    assert episodes.step(np.array([1.0, 2.0]), flags(0, 0), np.array([0, 0])) == 0
    assert episodes.step(np.array([3.0, 4.0]), flags(1, 0), np.array([5, 9])) == 1
    assert episodes.step(np.array([10.0, 20.0]), flags(0, 1), np.array([9, 7])) == 1
    means = episodes.means()
    # The first episode: 1 + 3 in 2 steps, score 5. The second: 2 + 4 + 20 in 3 steps, score 7.
    assert (means["return_mean"], means["length_mean"], means["score_mean"]) == (15.0, 2.5, 6.0)
    assert means["score_best"] == 7.0


def test_the_last_100_episodes_are_averaged_and_older_ones_are_not() -> None:
    episodes = Episodes(60)
    for score in (1, 2, 4):
        episodes.step(np.full(60, float(score)), np.ones(60, np.bool_), np.full(60, score))
    means = episodes.means()
    assert means["score_mean"] == pytest.approx(7 / 3)
    assert means["score_last100"] == pytest.approx((40 * 2 + 60 * 4) / 100)


def test_more_episodes_at_once_than_are_kept_leave_the_last_100() -> None:
    episodes = Episodes(130)
    episodes.step(np.zeros(130), np.ones(130, np.bool_), np.arange(130))
    assert episodes.means()["score_last100"] == pytest.approx(np.arange(30, 130).mean())


def test_episodes_go_on_from_their_state() -> None:
    first, second = Episodes(2), Episodes(2)
    first.step(np.array([1.0, 2.0]), flags(0, 1), np.array([0, 3]))
    second.restore(first.state())
    for each in (first, second):
        each.step(np.array([5.0, 6.0]), flags(1, 1), np.array([2, 8]))
    assert first.means() == second.means()
    assert first.means()["return_mean"] == pytest.approx((2 + 6 + 6) / 3)


def test_counts_are_four_and_are_not_mixed() -> None:
    counts = Counts()
    counts.add(env_steps=256, episodes=3)
    counts.add(updates=8)
    assert counts.as_dict() == {"env_steps": 256, "frames": 256, "updates": 8, "episodes": 3}


def test_laps_add_up_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([100, 130, 1000, 1005, 2000, 2070])
    monkeypatch.setattr(timing, "now_ns", lambda: next(ticks))
    timed = Laps()
    for name in ("act", "env.step", "act"):
        with timed(name):
            pass
    assert timed.totals_ns(3000) == {"act": 100, "env.step": 5}


def test_a_lap_that_was_begun_by_a_live_span_is_ended_by_it() -> None:
    timed = Laps()
    lap = timed("a.lap.of.this.test")
    code = registry.span("a.lap.of.this.test").code
    log = registry.listen()
    try:
        with lap:
            # As the recorder does, when it thins spans while one of them is open.
            registry.make_counted(registry.span("a.lap.of.this.test"))
        assert log[0].events[::2] == [code, -code]
    finally:
        registry.hush()


def test_curves_gain_columns_and_keep_their_rows(tmp_path: Path) -> None:
    scalars = Scalars(tmp_path, tensorboard=False, wandb=None, warn=pytest.fail)
    scalars.write(10, {"loss": None, "score": 1.5})
    scalars.write(20, {"loss": 0.25, "score": 2.0, "share.act": 0.5})
    scalars.close()
    rows = list(csv.DictReader((tmp_path / "progress.csv").open()))
    assert rows == [
        {"env_steps": "10", "loss": "", "score": "1.5", "share.act": ""},
        {"env_steps": "20", "loss": "0.25", "score": "2", "share.act": "0.5"},
    ]


def test_a_resumed_curve_begins_with_the_earlier_rows(tmp_path: Path) -> None:
    for name in ("before", "after"):
        (tmp_path / name).mkdir()
    scalars = Scalars(tmp_path / "before", tensorboard=False, wandb=None, warn=pytest.fail)
    for steps in (10, 20, 30):
        scalars.write(steps, {"score": steps})
    scalars.close()
    scalars = Scalars(tmp_path / "after", tensorboard=False, wandb=None, warn=pytest.fail)
    scalars.carry_on(tmp_path / "before" / "progress.csv", 20)
    scalars.write(25, {"score": 7})
    scalars.close()
    rows = csv.DictReader((tmp_path / "after" / "progress.csv").open())
    assert [(row["env_steps"], row["score"]) for row in rows] == [("10", "10"), ("20", "20"), ("25", "7")]


def test_tensorboard_gets_the_same_numbers(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    scalars = Scalars(tmp_path, tensorboard=True, wandb=None, warn=pytest.fail)
    scalars.write(10, {"score": 1.5, "share.act": 0.25})
    scalars.close()
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(each.step, each.value) for each in events.Scalars("score")] == [(10, 1.5)]
    assert [(each.step, each.value) for each in events.Scalars("share/act")] == [(10, 0.25)]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_the_first_signal_is_a_request_the_second_is_ignored_and_the_third_ends_at_once(
    number: signal.Signals, code: int
) -> None:
    before = signal.getsignal(number)
    with Stop() as stop:
        assert (stop.signal, stop.exit_code) == (None, 0)
        os.kill(os.getpid(), number)
        assert (stop.signal, stop.exit_code) == (number, code)
        os.kill(os.getpid(), number)
        assert (stop.signal, stop.exit_code) == (number, code)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(number) is before


def test_the_line_says_what_matters() -> None:
    numbers = {
        "env_steps": 1_500_000, "env_steps_per_s": 123_456.0, "updates_per_s": 4_000.0, "score_last100": 33.333,
        "return_last100": None, "epsilon": 0.01, "share.act": 0.1, "share.learn.update": 0.62, "share.log": 0.001,
    }  # fmt: skip
    assert line(numbers, 12.3) == (
        "12.3 s, 1.50 M steps, 123,456 steps/s, 4,000 updates/s, score 33.33, ε 0.01, learn.update 62% act 10%"
    )


def test_a_terminal_gets_a_bar_that_fits_into_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    from hotloop.training.run.progress import Bar

    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    bar = Bar("dqn-snake", quiet=False)
    bar.stage("games")
    bar.staged(1.25)
    bar.say("hotloop: training")
    bar.start()
    numbers = {"env_steps": 1000, "env_steps_per_s": 10.0, "updates_per_s": 2.0, "share.act": 0.5}
    bar.show(0.5, 2.0, numbers)
    bar.stop()
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.getvalue())
    lines = text.replace("\r", "\n").split("\n")
    assert "hotloop: preparing games (1.2 s)" in lines
    assert "hotloop: training" in lines
    assert any(re.fullmatch(r"dqn-snake ━{15}.* 50.0 %  2.00 s *", line) for line in lines)
    assert any(line.startswith("1,000 steps, 10.0 steps/s, 2.00 updates/s") for line in lines)
    assert max(map(len, lines)) <= 80
