"""A game as a GIF, of a game that is made up."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from hotloop.cli import play
from hotloop.errors import HotloopError
from hotloop.training import registry
from hotloop.training.tasks.game import Position

SIDE, FRAMES = 200, 400


def frame(number: int) -> np.ndarray:
    """A red cell that moves over white; there is no picture twice in a row."""
    pixels = np.full((SIDE, SIDE, 3), 255, np.uint8)
    pixels[number % SIDE, number % 7 * 10 : number % 7 * 10 + 10] = (200, 30, 40)
    return pixels


@pytest.fixture(autouse=True)
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def watch(act: Any, config: Any, place: Any, number: int, render_mode: str) -> Iterator[Position]:
        for k in range(FRAMES):
            yield Position(lambda k=k: frame(k), k, k, "time" if k == FRAMES - 1 else None)

    monkeypatch.setattr(registry, "task", lambda name: SimpleNamespace(REMEMBERS=False, watch=watch))


AGENT: Any = SimpleNamespace(pipeline="made-up", act=None, config=None)


def test_a_film_shows_every_frame_in_its_colours(tmp_path: Path) -> None:
    ending = play.film(AGENT, None, 0, tmp_path / "a.gif", fps=20)
    assert ending == {"score": 399, "steps": 399, "cause": "time", "gif": str(tmp_path / "a.gif")}
    with Image.open(tmp_path / "a.gif") as film:
        assert film.n_frames == FRAMES  # type: ignore[attr-defined]
        for number in (0, 1, 57, FRAMES - 1):
            film.seek(number)
            assert film.info["duration"] == (play.HOLD_MS if number == FRAMES - 1 else 50)
            np.testing.assert_array_equal(np.asarray(film.convert("RGB")), frame(number))


def test_frames_are_not_held_as_they_are_drawn(tmp_path: Path) -> None:
    tracemalloc.start()
    try:
        play.film(AGENT, None, 0, tmp_path / "a.gif", fps=20)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # As they are drawn, the frames take 48 MB.
    assert most < 0.25 * FRAMES * SIDE * SIDE * 3


def test_a_longer_game_is_cut_and_its_end_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(play, "MOST_FRAMES", 5)
    assert play.film(AGENT, None, 0, tmp_path / "a.gif", fps=20)["steps"] == 399
    with Image.open(tmp_path / "a.gif") as film:
        assert film.n_frames == 5  # type: ignore[attr-defined]


def test_a_film_without_a_place_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(HotloopError, match=r"cannot write .*: choose another file"):
        play.film(AGENT, None, 0, tmp_path / "nowhere" / "a.gif", fps=20)
