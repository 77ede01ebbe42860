"""Mario as its pipeline plays it: the console of a configuration, and greedy episodes on held-out seeds.

An evaluation always disturbs the player: 0 to 30 frames pass before the first step, and a quarter of the actions is
repeated, both by seed. The game itself has no chance in it, so that a list of buttons would do otherwise.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from hotloop.errors import HotloopError
from hotloop.training.tasks.game import Act, Played, Position, held_out_seeds
from hotloop.training.tasks.terminal_image import as_text

if TYPE_CHECKING:
    from hotloop.training.envs.nes import MarioEnv

PLACE = "level"
LIMIT = "max_steps"
REMEMBERS = False
WON = "flag"
NOOPS, STICKY = 30, 0.25
"""Of held-out episodes."""
ENV = "hotloop.training.tasks.mario:make_env"
"""Where another process finds how the game is made."""
AUTO = "auto"


class Game(Protocol):
    """The fields of a configuration that define the game and the observation."""

    @property
    def rom(self) -> str | None: ...  # noqa: D102
    @property
    def rom_unchecked(self) -> bool: ...  # noqa: D102
    @property
    def level(self) -> str: ...  # noqa: D102
    @property
    def actions(self) -> str: ...  # noqa: D102
    @property
    def skip(self) -> int: ...  # noqa: D102
    @property
    def size(self) -> int: ...  # noqa: D102
    @property
    def stack(self) -> int: ...  # noqa: D102
    @property
    def patience(self) -> int: ...  # noqa: D102
    @property
    def max_steps(self) -> int: ...  # noqa: D102


class Stack:
    """The last frames of one console, oldest first: uint8 [1, stack, S, S]."""

    def __init__(self, frame: np.ndarray, stack: int) -> None:
        self.seen = np.repeat(frame[None, None], stack, axis=1)

    def push(self, frame: np.ndarray) -> None:
        """Add the newest frame, uint8 [S, S]."""
        self.seen[:, :-1] = self.seen[:, 1:]
        self.seen[:, -1] = frame


def make_env(**options: Any) -> MarioEnv:
    """Make a console with the options of `hotloop.training.envs.nes.MarioConfig`."""
    from hotloop.training.envs.nes import MarioEnv

    return MarioEnv(**options)


def options_of(game: Game) -> dict[str, Any]:
    """Return what every console of a configuration is made with."""
    names = ("rom", "rom_unchecked", "level", "actions", "skip", "size", "patience", "max_steps")
    return {name: getattr(game, name) for name in names}


def training_options(game: Any) -> dict[str, Any]:
    """Return what a console to learn on is made with."""
    from hotloop.training.envs.nes import MarioRewards

    rewards = MarioRewards(game.reward_progress, game.reward_death, game.reward_flag, game.reward_deadlock)
    begin = {"start": start_of(game), "begin_share": game.begin_share}
    return options_of(game) | begin | {"noops": game.noops, "sticky": game.sticky, "rewards": rewards}


def start_of(game: Any) -> str:
    """Return where episodes begin: `auto` is along the known route of our own game, elsewhere where it has been."""
    if game.start != AUTO:
        return game.start
    return "route" if plays_runner(game) else "reached"


def plays_runner(game: Game) -> bool:
    """Say whether our own game is played."""
    from hotloop.training.envs.nes.rom import find_rom, is_runner

    # Found anew each time: the file of a checkpoint may have been moved since.
    return is_runner(find_rom(game.rom, unchecked=game.rom_unchecked))


def check(game: Any) -> None:
    """Refuse a cartridge, a level or a way to begin that cannot be played, before anything is written or started."""
    from hotloop.training.envs.nes.config import MarioConfig
    from hotloop.training.envs.nes.rom import find_rom

    try:
        import stable_retro  # noqa: F401  # pyright: ignore
    except ImportError as error:
        raise HotloopError('Mario needs stable-retro: `pip install "hotloop[nes]"`') from error
    find_rom(game.rom, unchecked=game.rom_unchecked)
    config = MarioConfig(**training_options(game))
    if config.start == "route" and not plays_runner(game):
        raise HotloopError("--start route: routes are known for runner only; give auto, begin or reached")
    if game.level != "random":
        levels(game, [game.level])


def levels(game: Game, names: list[str]) -> list[str]:
    """Return these levels, all of which the cartridge must have."""
    known = known_levels(game)
    for name in names:
        if name not in known:
            raise HotloopError(f"--level {name}: this cartridge has {', '.join(known)}")
    return names


def known_levels(game: Game) -> tuple[str, ...]:
    """Return the levels of the cartridge."""
    from hotloop.training.envs.nes.start_states import CARTRIDGE_LEVELS, RUNNER_LEVELS

    return RUNNER_LEVELS if plays_runner(game) else CARTRIDGE_LEVELS


def home(game: Game) -> str:
    """Where it was trained."""
    return game.level


def places(game: Game, boards: list[int] | None, official: bool) -> list[str]:
    """Return the levels to play: that of the training, or all if they were drawn."""
    if official or boards:
        raise HotloopError("--board and --official are for other games: leave them out, or choose by --level")
    return list(known_levels(game)) if game.level == "random" else [game.level]


def play_episodes(act: Act, game: Game, episodes: int, place: str, *, choosing: bool = False) -> Played:
    """Play held-out episodes of a level greedily, one after the other, as there is one emulator in a process.

    Args:
        act: Observations [1, stack, S, S] to actions [1].
        game: What is played.
        episodes: E.
        place: The level.
        choosing: Play the episodes that choose the best checkpoint, not those that test it.
    """
    import torch

    # A single observation is too little for two threads: waking the second takes longer than it saves.
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _play(act, game, held_out_seeds(episodes, np.uint32, choosing=choosing), place)
    finally:
        torch.set_num_threads(before)


def _play(act: Act, game: Game, seeds: list[int], place: str) -> Played:
    rows = []
    env = make_env(**options_of(game) | {"level": place, "noops": NOOPS, "sticky": STICKY})
    try:
        for seed in seeds:
            frame, _ = env.reset(seed=seed)
            stack, returned, over, info = Stack(frame, game.stack), 0.0, False, {}
            while not over:
                frame, reward, terminated, truncated, info = env.step(int(act(stack.seen)[0]))
                stack.push(frame)
                returned, over = returned + reward, terminated or truncated
            rows.append((info["distance"], returned, info["steps"], info["cause"]))
    finally:
        env.close()
    distance, returns, length, cause = zip(*rows, strict=True)
    return Played(np.array(distance), np.array(returns), np.array(length), np.array(cause, object), won=WON)


def watch(act: Act, game: Game, place: str, number: int, render_mode: str) -> Generator[Position]:
    """Play one of the held-out episodes and yield each position; pictures are the console's."""
    made = options_of(game) | {"level": place, "noops": NOOPS, "sticky": STICKY}
    env = make_env(render_mode="rgb_array", **made)
    try:
        frame, info = env.reset(seed=held_out_seeds(number + 1, np.uint32)[number])
        stack, over = Stack(frame, game.stack), False
        draw = as_text(env.render) if render_mode == "ansi" else env.render
        yield Position(draw, info["distance"], 0, None)
        while not over:
            frame, _, terminated, truncated, info = env.step(int(act(stack.seen)[0]))
            stack.push(frame)
            over = terminated or truncated
            yield Position(draw, info["distance"], info["steps"], info["cause"] if over else None)
    finally:
        env.close()
