"""`hotloop play CHECKPOINT`: watch a trained agent in the terminal, or film it with --gif."""

from __future__ import annotations

import argparse
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hotloop.cli.arguments import file_ending_in
from hotloop.cli.evaluate import Place, choose_places
from hotloop.cli.output import writing
from hotloop.errors import HotloopError
from hotloop.escaping import json_text
from hotloop.files import replacing
from hotloop.json_types import Json

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

    from hotloop.training.agents.load import TrainedAgent
    from hotloop.training.tasks.game import Position

SCHEMA = 1
CLEAR = "\x1b[H\x1b[J"
COLOURS = 128
FPS = 15.0
SAMPLE_EVERY = 50
HOLD_MS = 1500
"""How long the last frame of a GIF is shown."""
MOST_FRAMES = 3000
"""Limit of a GIF, because viewers hold all frames in memory."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    parser.add_argument("CHECKPOINT", type=Path, help="checkpoint, or run directory (its best checkpoint)")
    parser.add_argument("--gif", type=file_ending_in(".gif"), metavar="F.gif", help="write a GIF instead of showing it")
    parser.add_argument("--board", type=int, metavar="N", help="Snake: size of the board (default: as trained)")
    parser.add_argument("--official", action="store_true", help="CarRacing: play Gymnasium's own environment")
    parser.add_argument("--level", metavar="1-2", help="Mario, Ricochet: the level (default: as trained)")
    parser.add_argument("--game", type=int, default=0, metavar="K", help="number of the held-out game (default 0)")
    parser.add_argument("--fps", type=float, metavar="N", help="frames per second (default 15; Ricochet 2)")
    parser.add_argument("--device", default="cpu", help="where to compute (default cpu)")
    parser.add_argument("--json", action="store_true", help="print only the result, as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Play one game; return the exit code."""
    from hotloop.training.run.config_checks import require_training, torch_threads

    require_training()
    # Acting for one game is little work: two threads would mostly wait for each other.
    with torch_threads(1):
        return _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    from hotloop.training.agents.load import load_agent
    from hotloop.training.registry import task

    if arguments.fps is not None and not 0 < arguments.fps <= 1000:
        raise HotloopError(f"--fps is {arguments.fps}: give a number above 0, at most 1000")
    if arguments.game < 0:
        raise HotloopError(f"--game is {arguments.game}: give 0 or more")
    agent = load_agent(arguments.CHECKPOINT, arguments.device)
    played = task(agent.pipeline)
    arguments.fps = arguments.fps or getattr(played, "FPS", FPS)
    place = played.home(agent.config)
    if arguments.board is not None or arguments.official or arguments.level:
        boards = None if arguments.board is None else [arguments.board]
        place = choose_places(agent, boards, arguments.official, arguments.level)[-1]
    if arguments.gif:
        ending = film(agent, place, arguments.game, arguments.gif, arguments.fps)
    else:
        ending = _show(agent, place, arguments)
    result = {"schema": SCHEMA, "checkpoint": str(agent.path), played.PLACE: place, "game": arguments.game} | ending
    text = f"score {result['score']:g} in {result['steps']} steps, {result['cause']}"
    print(json_text(result, compact=True) if arguments.json else text)
    return 0


def film(agent: TrainedAgent, place: Place, number: int, path: Path, fps: float) -> dict[str, Json]:
    """Write a game as an animated GIF; return its result."""
    reel = Reel()

    def add(position: Position) -> None:
        if len(reel.packed) < MOST_FRAMES:
            image = position.draw()
            assert isinstance(image, np.ndarray)
            reel.add(image)

    result = _watch(agent, place, number, "rgb_array", add)
    durations = [round(1000 / fps)] * (len(reel.packed) - 1) + [HOLD_MS]
    pictures = reel.pictures()
    first = next(pictures)
    with writing(path), replacing(path) as temporary:
        first.save(temporary, save_all=True, append_images=pictures, duration=durations, loop=0, optimize=False)
    return result | {"gif": str(path)}


class Reel:
    """Frames, uint8 [H, W, 3] each. They are compressed, as thousands of them would take a gigabyte."""

    def __init__(self) -> None:
        self.packed: list[bytes] = []
        self._shape: tuple[int, ...] = ()

    def add(self, frame: np.ndarray) -> None:
        """Add a frame. All must have the same shape."""
        self._shape = frame.shape
        self.packed.append(zlib.compress(frame.tobytes(), 1))

    def pictures(self) -> Iterator[Picture]:
        """Yield the frames with a common palette, taken from some of them: one for each takes ten times longer."""
        from PIL import Image

        some = np.concatenate([self._unpacked(each) for each in self.packed[::SAMPLE_EVERY]])
        palette = Image.fromarray(some).quantize(COLOURS, dither=Image.Dither.NONE)
        for each in self.packed:
            yield Image.fromarray(self._unpacked(each)).quantize(palette=palette, dither=Image.Dither.NONE)

    def _unpacked(self, packed: bytes) -> np.ndarray:
        return np.frombuffer(zlib.decompress(packed), np.uint8).reshape(self._shape)


def _show(agent: TrainedAgent, place: Place, arguments: argparse.Namespace) -> dict[str, Json]:
    """Show a game in the terminal; into a pipe only its last position."""
    live = sys.stdout.isatty() and not arguments.json

    def show(position: Position) -> None:
        if live:
            sys.stdout.write(f"{CLEAR}{position.draw()}\n")
            sys.stdout.flush()
            time.sleep(1 / arguments.fps)
        elif position.cause is not None and not arguments.json:
            print(position.draw())

    return _watch(agent, place, arguments.game, "ansi", show)


def _watch(
    agent: TrainedAgent, place: Place, number: int, render_mode: str, show: Callable[[Position], None]
) -> dict[str, Json]:
    from hotloop.training.registry import task

    result: dict[str, Json] = {}
    played = task(agent.pipeline)
    player = agent if played.REMEMBERS else agent.act
    for each in played.watch(player, agent.config, place, number, render_mode):
        result = {"score": each.score, "steps": each.steps, "cause": each.cause}
        show(each)
    return result
