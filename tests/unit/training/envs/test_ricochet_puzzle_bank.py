"""The puzzle bank: its contents, reproducibility, and rejection of damaged banks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hotloop.errors import HotloopError
from hotloop.training.envs.ricochet import RicochetEnv, RicochetVectorEnv, solve
from hotloop.training.envs.ricochet import puzzle_bank as bank
from hotloop.training.envs.ricochet.config import LEVELS
from hotloop.training.envs.ricochet.puzzle_bank import Plan, load, make

PLAN = Plan(seed=3, per_level=30, size=9, robots=3, held_out=0.3)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("banks") / "bank"
    make(path, PLAN)
    return path


def test_every_level_has_the_requested_boards(made: Path) -> None:
    found = load(made)
    for level, wanted in enumerate(LEVELS):
        puzzles = found.take(level)
        assert len(puzzles) >= 30
        for length, moved in zip(puzzles.optimal.tolist(), puzzles.moved.tolist(), strict=True):
            assert wanted.shortest <= length <= wanted.longest
            assert wanted.fewest_robots <= moved <= wanted.most_robots
    counts = found.manifest["counts"]
    assert sum(row["train"] + row["held_out"] for row in counts) == len(found.puzzles) == found.manifest["puzzles"]


def test_stored_solutions_are_correct(made: Path) -> None:
    found = load(made)
    for i in range(0, len(found.puzzles), 7):
        best = solve(found.puzzles, i)
        assert best is not None
        assert (best.length, best.moved) == (found.puzzles.optimal[i], found.puzzles.moved[i])
        env = RicochetEnv(size=9, robots=3)
        _, info = env.reset(options={"puzzles": found.puzzles.take([i])})
        assert info["optimal"] == best.length
        actions = [int(action) for action in found.solutions[i] if action != bank.END]
        assert len(actions) == best.length
        assert [env.step(action)[2] for action in actions] == [False] * (best.length - 1) + [True]


def test_no_board_is_in_both_parts(made: Path) -> None:
    found = load(made)
    parts = [{row.tobytes() for row in found.take(held_out=part).walls} for part in (True, False)]
    assert parts[0].isdisjoint(parts[1])
    assert 0.2 < found.held_out.mean() < 0.4


def test_same_plan_gives_same_bank(made: Path, tmp_path: Path) -> None:
    again = make(tmp_path / "again", PLAN)
    assert again == load(made).manifest
    assert (tmp_path / "again" / bank.TABLE).read_bytes() == (made / bank.TABLE).read_bytes()
    other = make(tmp_path / "other", Plan(seed=4, per_level=30, size=9, robots=3, held_out=0.3))
    assert other["sha256"] != again["sha256"]


@pytest.mark.parametrize("held_out", [False, True])
@pytest.mark.parametrize("level", [None, 1, 3])
def test_environment_draws_boards_from_bank(made: Path, level: int | None, held_out: bool) -> None:
    env = RicochetVectorEnv(64, size=9, robots=3, bank=made, level=level, held_out=held_out)
    _, info = env.reset(seed=1)
    own = load(made).take(level, held_out)
    known = {(w.tobytes(), r.tobytes()): n for w, r, n in zip(own.walls, own.robots, own.optimal, strict=True)}
    drawn = env.puzzles()
    keys = [(w.tobytes(), r.tobytes()) for w, r in zip(drawn.walls, drawn.robots, strict=True)]
    assert [known[key] for key in keys] == info["optimal"].tolist()
    assert len(set(keys)) > 5


def damage_version(path: Path) -> None:
    manifest = json.loads((path / bank.MANIFEST).read_text())
    (path / bank.MANIFEST).write_text(json.dumps(manifest | {"version": 2}))


def without(path: Path, name: str) -> None:
    manifest = json.loads((path / bank.MANIFEST).read_text())
    del manifest[name]
    (path / bank.MANIFEST).write_text(json.dumps(manifest))


def cut_table(path: Path) -> None:
    with open(path / bank.TABLE, "r+b") as file:
        file.truncate(os.path.getsize(path / bank.TABLE) // 2)


def cut_manifest(path: Path) -> None:
    (path / bank.MANIFEST).write_text((path / bank.MANIFEST).read_text()[:40])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damage_version, "is a puzzle bank of version 2, and this hotloop reads 1: make the bank anew"),
        (cut_table, "puzzles.parquet is damaged or cut off"),
        (cut_manifest, "manifest.json is damaged or cut off"),
        (lambda path: (path / bank.TABLE).unlink(), "has no puzzles.parquet"),
        (lambda path: (path / bank.MANIFEST).unlink(), "is no puzzle bank, there is no manifest.json"),
        (lambda path: (path / bank.MANIFEST).write_text("{}"), "is not of a puzzle bank"),
        (lambda path: without(path, "sha256"), "manifest.json lacks the table's sha256 or the plan's size"),
        (lambda path: without(path, "plan"), "manifest.json lacks the table's sha256 or the plan's size"),
    ],
)
def test_damaged_bank_is_rejected_and_not_changed(made: Path, tmp_path: Path, damage: Any, message: str) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in (bank.MANIFEST, bank.TABLE):
        (copy / name).write_bytes((made / name).read_bytes())
    damage(copy)
    before = {file.name: file.read_bytes() for file in copy.iterdir()}
    with pytest.raises(HotloopError, match=message):
        RicochetVectorEnv(2, size=9, robots=3, bank=copy)
    with pytest.raises(HotloopError, match="exists already: give another path"):
        make(copy, PLAN)
    assert {file.name: file.read_bytes() for file in copy.iterdir()} == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"size": 8},
            "has boards of size 9 with robots 3, not of size 8 with robots 3: give size=9, robots=3",
        ),
        ({"bank": "/no/such/bank"}, "/no/such/bank is no puzzle bank"),
    ],
)
def test_bank_of_another_size_is_rejected(made: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(HotloopError, match=message):
        RicochetVectorEnv(2, **{"size": 9, "robots": 3, "bank": made} | options)


def test_empty_part_is_an_error(tmp_path: Path) -> None:
    make(tmp_path / "bank", Plan(per_level=3, size=8, robots=1, levels=(0,), held_out=0.0))
    with pytest.raises(HotloopError, match="the bank has no boards of level 0 held out"):
        RicochetVectorEnv(2, size=8, robots=1, level=0, bank=tmp_path / "bank", held_out=True)


def test_boards_are_unique(tmp_path: Path) -> None:
    """Boards of size 4 all have the same walls, and with one robot there are few of them."""
    make(tmp_path / "bank", Plan(per_level=40, size=4, robots=1, levels=(0,), held_out=0.0))
    found = load(tmp_path / "bank").puzzles
    assert len(set(zip(found.robots[:, 0].tolist(), found.goal.tolist(), strict=True))) == len(found) == 40


def test_failed_write_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure while writing leaves nothing behind, not even a temporary directory."""

    def fail(*_: object) -> str:
        raise OSError("disk full")

    monkeypatch.setattr(bank, "_digest", fail)
    with pytest.raises(OSError, match="disk full"):
        make(tmp_path / "bank", Plan(per_level=3, size=8, robots=1, levels=(0,), held_out=0.0))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--levels", "3", "--robots", "1"], "level 3 moves 2 robots, and robots is 1"),
        (["--size", "20"], "size is 20: give a whole number from 4 to 16"),
        (["--per-level", "0"], "per_level is 0"),
        (["--held-out", "1"], "held_out is 1.0: give a share of at least 0 and below 1"),
        (["--size", "4", "--robots", "1", "--levels", "2", "--per-level", "5"], "lack 5 of level 2"),
        (["--size", "4", "--levels", "0", "--per-level", "5"], "walls too much alike"),
    ],
)
def test_invalid_plans(tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    from hotloop.training.envs.ricochet.__main__ import main

    assert main([str(tmp_path / "bank"), *words]) == 2
    stderr = capsys.readouterr().err
    assert message in stderr
    assert stderr.count("\n") == 1
    assert not (tmp_path / "bank").exists()


def test_unwritable_directory_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from hotloop.training.envs.ricochet.__main__ import main

    (tmp_path / "file").write_text("")
    assert main([str(tmp_path / "file" / "bank"), "--per-level", "10000000"]) == 2, "reported before boards are made"
    stderr = capsys.readouterr().err
    assert "cannot write" in stderr and "(Not a directory): give a directory that can be written" in stderr
    assert stderr.count("\n") == 1


def test_command_line(tmp_path: Path) -> None:
    words = ["--per-level", "4", "--size", "9", "--robots", "2", "--levels", "0", "1", "--held-out", "0"]
    command = [sys.executable, "-W", "error", "-m", "hotloop.training.envs.ricochet", str(tmp_path / "bank"), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == load(tmp_path / "bank").manifest
    assert len(np.unique(load(tmp_path / "bank").take(0).walls, axis=0)) >= 4
    again = subprocess.run(command, capture_output=True, text=True)
    assert again.returncode == 2
    assert again.stderr.startswith("error: ")
    assert "exists already" in again.stderr
    assert again.stderr.count("\n") == 1
