"""Ricochet Robots as its pipeline plays it: promotion to harder boards, levels, and invalid configurations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hotloop.errors import HotloopError
from hotloop.training.envs.ricochet import RicochetVectorEnv
from hotloop.training.envs.ricochet.puzzle_bank import Plan, load, make
from hotloop.training.pipelines.ppo_ricochet import PRESETS, Config, Steps, Training, promote
from hotloop.training.run.counts import Counts, Episodes
from hotloop.training.tasks import ricochet
from hotloop.training.tasks.curriculum import Solved

SMALL = Config(size=8, robots=2, bank_boards=30, envs=4, boards=2)


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("banks") / "bank"
    make(path, Plan(per_level=30, size=8, robots=2, levels=(0, 1), held_out=0.3))
    return path


class Player:
    """Plays random actions and stores its observations."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.shown: list[np.ndarray] = []

    def initial_memory(self, boards: int) -> np.ndarray:
        return np.zeros((0, boards), np.float32)

    def remember(self, obs: np.ndarray, memory: np.ndarray, fresh: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.shown.append(obs.copy())
        return self.rng.integers(0, 8, len(obs)), memory


def by_definition(finished: list[tuple[int, bool]], now: int, longest: int) -> float | None:
    """Go back through (begin, solved) from the last board that must have ended until there are 100."""
    counted: list[bool] = []
    for begin in range(now - longest, -1, -1):
        counted += [solved for began, solved in finished if began == begin]
        if len(counted) >= 100:
            return sum(counted) / len(counted)
    return None


@pytest.mark.parametrize(("boards", "longest", "skill"), [(512, 20, 0.3), (64, 20, 0.5), (7, 5, 0.9), (1, 2, 0.5)])
def test_boards_are_counted_in_starting_order(boards: int, longest: int, skill: float) -> None:
    rng, solved, finished = np.random.default_rng(0), Solved(boards, longest), []
    begun, good = np.zeros(boards, np.int64), rng.random(boards) < skill
    length = np.where(good, rng.integers(1, longest + 1, boards), longest)
    for now in range(1, 12 * longest + 250 // boards):
        ended = now - begun >= length
        solved.step(ended, good)
        for i in np.flatnonzero(ended):
            finished.append((int(begun[i]), bool(good[i])))
            begun[i], good[i] = now, rng.random() < skill
            length[i] = rng.integers(1, longest + 1) if good[i] else longest
        assert solved.share() == by_definition(finished, now, longest)
    assert boards == 1 or solved.share() is not None


@pytest.mark.parametrize(("skill", "level"), [(50, 0), (84, 0), (85, 1), (90, 1)])
def test_promotion_considers_all_boards_not_only_the_first_solved(skill: int, level: int) -> None:
    messages: list[str] = []
    run: Any = SimpleNamespace(config=Config(curriculum=True), level=0, solved=Solved(100, 3))
    run.go_to = lambda level: setattr(run, "level", level)
    good = np.arange(100) < skill
    run.solved.step(good, good)
    promote(run, SimpleNamespace(say=messages.append))  # type: ignore[arg-type]
    assert run.level == 0, "all finished boards were solved, but others are still being played"
    run.solved.step(np.zeros(100, np.bool_), good)
    run.solved.step(~good, good & False)
    promote(run, SimpleNamespace(say=messages.append))  # type: ignore[arg-type]
    assert run.level == level
    expected = [f"ppo-ricochet: {skill}% of the last 100 boards solved: on to level 1"]
    assert messages == (expected if level else [])


def test_promotion_statistics_are_saved() -> None:
    one, other, rng = Solved(3, 1), Solved(3, 1), np.random.default_rng(0)
    every = np.ones(3, np.bool_)
    for k in range(60):
        good = rng.random(3) < 0.5
        one.step(every, good)
        if k < 30:
            other.restore(one.state())
        else:
            other.step(every, good)
    assert other.share() == one.share() is not None


class Still:
    """An environment that does nothing."""

    closed = False

    def reset(self, seed: int) -> tuple[np.ndarray, dict[str, Any]]:
        return np.full((4, 8, 8, 8), seed, np.uint8), {}

    def close(self) -> None:
        self.closed = True


def test_a_promotion_keeps_statistics_and_drops_unfinished_episodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ricochet, "make_env", lambda *given: Still())
    obs, every = np.zeros((4, 8, 8, 8), np.uint8), np.ones(4, np.bool_)
    before: Any = Still()
    agent: Any = None
    run = Training(
        SMALL, before, agent, Steps.empty(2, obs), np.random.default_rng(0), obs, ~every, np.zeros((0, 4)), Counts(),
        Episodes(4), 0, Solved(4, 20),
    )  # fmt: skip
    run.episodes.step(np.full(4, 0.5), every, np.ones(4))
    run.episodes.step(np.full(4, 8.0), ~every)
    run.solved.step(every, every)
    run.go_to(1)
    run.episodes.step(np.full(4, 0.25), every, np.zeros(4))
    assert (run.level, before.closed, run.episodes.ended) == (1, True, 8)
    means = run.episodes.means()
    assert (means["return_mean"], means["length_mean"], means["score_mean"], means["score_last100"]) == (
        0.375,
        1,
        0.5,
        0.5,
    )
    assert run.solved.state()["step"] == 0
    assert run.fresh.all()
    assert (run.obs == SMALL.seed + 1).all()


def test_levels_are_selected_by_name() -> None:
    assert ricochet.levels(SMALL, ["2", "0"]) == [2, 0]
    assert ricochet.places(SMALL, None, False) == [0, 1, 2, 3]
    assert ricochet.places(replace(SMALL, robots=1), None, False) == [0, 1, 2]
    with pytest.raises(HotloopError, match="--level 1-1: with robots 2 there are levels 0, 1, 2, 3"):
        ricochet.levels(SMALL, ["1-1"])
    with pytest.raises(HotloopError, match="--level 3: with robots 1 there are levels 0, 1, 2"):
        ricochet.levels(replace(SMALL, robots=1), ["3"])


def test_held_out_boards_are_read_from_the_bank_once(bank: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hotloop.training.envs.ricochet import puzzle_bank as banks

    config, player, reads = replace(SMALL, bank=str(bank), eval_steps=6), Player(), []
    held_out = load(bank).take(level=1, held_out=True)
    monkeypatch.setattr(banks, "load", lambda path: reads.append(path) or load(path))
    played = ricochet.play_episodes(player, config, 1000, 1)
    assert reads == [bank]
    assert len(played.score) == len(held_out) > 0
    assert (player.shown[0] == held_out.planes()).all()
    assert set(played.cause) <= {"solved", "timeout"}
    assert (played.length[played.cause == "timeout"] == 6).all()
    assert ((played.cause == "solved") == (played.score == 1)).all()


@pytest.mark.parametrize("observation", ["planes", "rgb"])
def test_planes_of_puzzles_equal_the_observations_of_the_environment(observation: str) -> None:
    env = RicochetVectorEnv(32, size=9, robots=3, observation=observation, level=0)
    seen, _ = env.reset(seed=5)
    twin = RicochetVectorEnv(32, size=9, robots=3, level=0)
    expected, _ = twin.reset(seed=5)
    for k in range(4):
        assert (env.puzzles().planes() == expected).all()
        assert observation == "rgb" or (seen == expected).all()
        actions = np.full(32, k)
        seen, expected = env.step(actions)[0], twin.step(actions)[0]


def test_a_bank_with_missing_levels_is_rejected_before_playing(bank: Path, tmp_path: Path) -> None:
    config = replace(SMALL, bank=str(bank))
    ricochet.check_bank(config, evaluates=True)
    ricochet.check_bank(replace(config, level=1), evaluates=True)
    needed = r"which are needed follows from --level, --curriculum and --eval-episodes\)"
    with pytest.raises(HotloopError, match=f"no boards of level 3 to train on: .*{needed}"):
        ricochet.check_bank(replace(config, level=3), evaluates=True)
    with pytest.raises(HotloopError, match="no boards of level 3 to train on"):
        ricochet.check_bank(replace(config, curriculum=True), evaluates=False)
    make(tmp_path / "all", Plan(per_level=20, size=8, robots=2, levels=(0,), held_out=0.0))
    config = replace(SMALL, bank=str(tmp_path / "all"))
    ricochet.check_bank(config, evaluates=False)
    with pytest.raises(HotloopError, match="no boards of level 0 held out"):
        ricochet.check_bank(config, evaluates=True)


def test_an_unwritable_cache_is_reported_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(
        HotloopError, match=r"cannot make the puzzle bank .*\(Not a directory\): make room there"
    ) as error:
        ricochet.bank_of(SMALL)
    assert "\n" not in str(error.value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("hotloop.training.envs.ricochet.puzzle_bank.write", full)
    with pytest.raises(HotloopError, match="No space left on device"):
        ricochet.bank_of(SMALL)


@pytest.mark.parametrize("given", ["", "cache"])
def test_an_empty_or_relative_cache_path_is_ignored(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", given)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("hotloop.training.envs.ricochet.puzzle_bank.make", lambda path, plan: path.mkdir(parents=True))
    assert ricochet.bank_of(SMALL) == tmp_path / ".cache" / "hotloop" / "ricochet-v1-8-2-30"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"robots": 1, "level": 3}, "--level is 3: give one of 0, 1, 2, the levels of boards with --robots 1"),
        ({"size": 6}, "--size is 6: give at least 7, or a --bank too"),
        ({"auxiliary": 1.0}, "--auxiliary is 1.0: give 0, or --read-planes with it"),
        ({"auxiliary": -1.0, "read_planes": True}, "--auxiliary is -1.0: give 0 or more"),
    ],
)
def test_invalid_configurations_are_rejected(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(HotloopError, match=message):
        Config(**settings)


def test_small_boards_need_a_bank() -> None:
    assert Config(size=4, bank="mine").size == 4


def test_presets() -> None:
    faithful = PRESETS["faithful"][0]
    assert (faithful.envs, faithful.epochs, faithful.channels, faithful.lr) == (8, 4, 32, 3e-4)
    assert (faithful.core, faithful.observation, faithful.read_planes, faithful.auxiliary) == ("drc", "rgb", False, 0)
    assert (faithful.gamma, faithful.gae_lambda, faithful.clip, faithful.entropy) == (0.99, 0.95, 0.2, 0.01)
    assert PRESETS["rgb-convlstm"][0] == replace(PRESETS["convlstm"][0], observation="rgb")
