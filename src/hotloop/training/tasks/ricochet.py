"""Ricochet Robots as its pipeline plays it: boards of a bank, and greedy play on the boards that are held out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from hotloop.cache import cache_folder
from hotloop.errors import HotloopError
from hotloop.training.run.config_checks import require
from hotloop.training.tasks.game import Played, Position

if TYPE_CHECKING:
    from hotloop.training.envs.ricochet import RicochetVectorEnv

PLACE, LIMIT, REMEMBERS = "level", "eval_steps", True
FPS = 2.0
"""Default moves per second of `hotloop play`."""
LEVELS = 4
SMALLEST = 7
"""Side of the boards of our own banks. Smaller ones all have the same walls, so that none can be held out."""


class Game(Protocol):
    """The fields of a configuration that define the game and the observation."""

    @property
    def size(self) -> int: ...  # noqa: D102
    @property
    def robots(self) -> int: ...  # noqa: D102
    @property
    def observation(self) -> str: ...  # noqa: D102
    @property
    def level(self) -> int: ...  # noqa: D102
    @property
    def max_steps(self) -> int: ...  # noqa: D102
    @property
    def eval_steps(self) -> int: ...  # noqa: D102
    @property
    def bank(self) -> str: ...  # noqa: D102
    @property
    def bank_boards(self) -> int: ...  # noqa: D102
    @property
    def threads(self) -> int: ...  # noqa: D102


class Player(Protocol):
    """An agent with memory."""

    def initial_memory(self, boards: int) -> np.ndarray:
        """Return the memory before the first step."""
        ...

    def remember(self, obs: np.ndarray, memory: np.ndarray, fresh: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the best actions, int64 [N], and the memory."""
        ...


def check(game: Game) -> None:
    """Refuse a level, or a size without a bank, of which there are no boards."""
    known = known_levels(game.robots)
    named = f"one of {', '.join(map(str, known))}, the levels of boards with --robots {game.robots}"
    require(game.level in known, game, "level", named)
    least = f"at least {SMALLEST}, or a --bank too: smaller boards all have the same walls, so none can be held out"
    require(game.size >= SMALLEST or bool(game.bank), game, "size", least)


def bank_of(game: Game) -> Path:
    """Return the bank of a configuration, made now if it is the default one and was never made."""
    if game.bank:
        return Path(game.bank)
    from hotloop.training.envs.ricochet.puzzle_bank import VERSION

    path = cache_folder() / f"ricochet-v{VERSION}-{game.size}-{game.robots}-{game.bank_boards}"
    try:
        if not path.exists():
            _make_bank(path, game)
    except OSError as error:
        raise HotloopError(
            f"cannot make the puzzle bank {path} ({error.strerror or error}): make room there, set XDG_CACHE_HOME to "
            "a directory that can be written, or give --bank"
        ) from error
    return path


def _make_bank(path: Path, game: Game) -> None:
    from hotloop.training.envs.ricochet.puzzle_bank import Plan, make

    plan = Plan(per_level=game.bank_boards, size=game.size, robots=game.robots, levels=tuple(known_levels(game.robots)))
    try:
        make(path, plan)
    except (OSError, HotloopError):
        if not path.exists():
            raise
        # Another training made it meanwhile: the same boards, for they follow from the plan.


def check_bank(game: Any, evaluates: bool) -> None:
    """Refuse a bank that lacks boards for which training or its evaluations will ask, before any is played.

    Args:
        game: The configuration of a training.
        evaluates: Whether there are evaluations.
    """
    from hotloop.training.envs.ricochet.puzzle_bank import load

    path, every = bank_of(game), known_levels(game.robots)
    bank, trained = load(path), every[game.level :] if game.curriculum else [game.level]
    evaluated = every if game.curriculum else trained
    try:
        for level in trained:
            bank.take(level, held_out=False)
        for level in evaluated if evaluates else []:
            bank.take(level, held_out=True)
    except HotloopError as error:
        needed = "which are needed follows from --level, --curriculum and --eval-episodes"
        raise HotloopError(f"{error} ({path}; {needed})") from error


def make_env(game: Game, num_envs: int, level: int) -> RicochetVectorEnv:
    """Make boards of a level to learn on, out of the bank."""
    from hotloop.training.envs.ricochet import RicochetVectorEnv

    return RicochetVectorEnv(
        num_envs, size=game.size, robots=game.robots, observation=game.observation, level=level,
        max_steps=game.max_steps, bank=bank_of(game), threads=drawing_threads(game),
    )  # fmt: skip


def drawing_threads(game: Game) -> int:
    """Return over how many threads boards are spread: only drawing takes long enough for more than one."""
    return game.threads if game.observation == "rgb" else 1


def known_levels(robots: int) -> list[int]:
    """Return the levels of boards with this many robots: the last level needs at least two."""
    return list(range(LEVELS if robots > 1 else LEVELS - 1))


def home(game: Game) -> int:
    """Where it was trained."""
    return game.level


def places(game: Game, boards: list[int] | None, official: bool) -> list[int]:
    """Return the levels to play on."""
    if official or boards:
        raise HotloopError("--board and --official are for other games: leave them out, or choose by --level")
    return known_levels(game.robots)


def levels(game: Game, names: list[str]) -> list[int]:
    """Return these levels, all of which the boards must have."""
    known = [str(level) for level in known_levels(game.robots)]
    for name in names:
        if name not in known:
            raise HotloopError(f"--level {name}: with robots {game.robots} there are levels {', '.join(known)}")
    return [int(name) for name in names]


def play_episodes(agent: Any, game: Game, episodes: int, level: int) -> Played:
    """Play held-out boards of a level greedily, each to the end of its episode.

    Args:
        agent: A `Player`, or what is loaded from its checkpoint.
        game: What is played.
        episodes: E; the first boards of the level that are held out, in the order of the bank.
        level: Of the boards.
    """
    from hotloop.training.envs.ricochet import RicochetVectorEnv
    from hotloop.training.envs.ricochet.puzzle_bank import load

    puzzles = load(bank_of(game)).take(level=level, held_out=True)
    episodes = min(episodes, len(puzzles))
    # What is played on a board whose episode is over does not count: there any new board will do.
    env = RicochetVectorEnv(
        episodes, size=game.size, robots=game.robots, observation=game.observation, max_steps=game.eval_steps,
        threads=drawing_threads(game),
    )  # fmt: skip
    obs, info = env.reset(seed=0, options={"puzzles": puzzles.take(np.arange(episodes))})
    optimal, memory = info["optimal"].copy(), agent.initial_memory(episodes)
    returned, length = np.zeros(episodes), np.zeros(episodes, np.int64)
    cause, going, fresh = np.full(episodes, None, object), np.ones(episodes, np.bool_), np.ones(episodes, np.bool_)
    while going.any():
        action, memory = agent.remember(obs, memory, fresh)
        obs, reward, terminated, truncated, info = env.step(action)
        returned += np.where(going, reward, 0)
        length += going
        fresh = terminated | truncated
        ending = going & fresh
        if ending.any():
            cause[ending] = info["final_info"]["cause"][ending]
            going &= ~fresh
    env.close()
    solved = cause == "solved"
    return Played(solved.astype(np.int64), returned, length, cause, "solved", gap=(length - optimal)[solved])


def watch(agent: Any, game: Game, level: int, number: int, render_mode: str) -> Iterator[Position]:
    """Play one of the held-out boards and yield each position."""
    from hotloop.training.envs.ricochet import RicochetVectorEnv
    from hotloop.training.envs.ricochet.puzzle_bank import load

    puzzles = load(bank_of(game)).take(level=level, held_out=True)
    if number >= len(puzzles):
        raise HotloopError(f"--game {number}: the bank holds out {len(puzzles)} boards of level {level}; give less")
    env = RicochetVectorEnv(
        1, size=game.size, robots=game.robots, observation=game.observation, max_steps=game.eval_steps,
        render_mode=render_mode, autoreset_mode="Disabled",
    )  # fmt: skip
    obs, _ = env.reset(seed=0, options={"puzzles": puzzles.take(np.array([number]))})
    memory, fresh, steps, over = agent.initial_memory(1), np.ones(1, np.bool_), 0, False

    def draw() -> Any:
        drawn = env.render()
        assert drawn is not None
        return drawn[0]

    yield Position(draw, 0, 0, None)
    while not over:
        action, memory = agent.remember(obs, memory, fresh)
        obs, _, terminated, truncated, info = env.step(action)
        fresh, steps, over = np.zeros(1, np.bool_), steps + 1, bool(terminated[0] or truncated[0])
        yield Position(draw, int(terminated[0]), steps, info["cause"][0] if over else None)
