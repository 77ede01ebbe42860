"""Ricochet Robots as its pipeline plays it: boards of a bank, and greedy play on the boards that are held out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from hotloop.errors import HotloopError
from hotloop.pipelines.games import Played, Position

if TYPE_CHECKING:
    from hotloop.envs.ricochet import RicochetVectorEnv

PLACE, LIMIT, REMEMBERS = "level", "eval_steps", True
FPS = 2.0
"""Moves a second, where nobody says how many: each is worth a look."""
LEVELS = 4


class Game(Protocol):
    """The fields of a configuration that say what is played and seen."""

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

    def nothing(self, boards: int) -> np.ndarray:
        """What is remembered before anything was seen."""
        ...

    def remember(self, obs: np.ndarray, memory: np.ndarray, fresh: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the best actions, int64 [N], and the memory."""
        ...


def bank_of(game: Game) -> Path:
    """Return the bank of a configuration, made now if it is the default one and was never made."""
    if game.bank:
        return Path(game.bank)
    from hotloop.envs.ricochet.bank import VERSION, Plan, make

    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "hotloop"
    path = cache / f"ricochet-v{VERSION}-{game.size}-{game.robots}-{game.bank_boards}"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        levels = tuple(range(LEVELS if game.robots > 1 else LEVELS - 1))
        try:
            make(path, Plan(per_level=game.bank_boards, size=game.size, robots=game.robots, levels=levels))
        except OSError:
            if not path.exists():
                raise
            # Another training made it meanwhile: the same boards, for they follow from the plan.
    return path


def make_env(game: Game, num_envs: int, level: int, held_out: bool = False) -> RicochetVectorEnv:
    """Make boards of a level, out of the bank."""
    from hotloop.envs.ricochet import RicochetVectorEnv

    steps = game.eval_steps if held_out else game.max_steps
    return RicochetVectorEnv(
        num_envs, size=game.size, robots=game.robots, observation=game.observation, level=level, max_steps=steps,
        bank=bank_of(game), held_out=held_out, threads=game.threads if game.observation == "rgb" else 1,
    )  # fmt: skip


def home(game: Game) -> int:
    """Where it was trained."""
    return game.level


def places(game: Game, boards: list[int] | None, official: bool) -> list[int]:
    """Return the levels to play on."""
    if official or boards:
        raise HotloopError("--board and --official are for other games: leave them out")
    return list(range(LEVELS if game.robots > 1 else LEVELS - 1))


def play_episodes(agent: Any, game: Game, episodes: int, level: int) -> Played:
    """Play held-out boards of a level greedily, each to the end of its episode.

    Args:
        agent: A `Player`, or what is loaded from its checkpoint.
        game: What is played.
        episodes: E; the first boards of the level that are held out, in the order of the bank.
        level: Of the boards.
    """
    from hotloop.envs.ricochet.bank import load

    puzzles = load(bank_of(game)).take(level=level, held_out=True)
    episodes = min(episodes, len(puzzles))
    env = make_env(game, episodes, level, held_out=True)
    obs, info = env.reset(seed=0, options={"puzzles": puzzles.take(np.arange(episodes))})
    optimal, memory = info["optimal"].copy(), agent.nothing(episodes)
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
    from hotloop.envs.ricochet import RicochetVectorEnv
    from hotloop.envs.ricochet.bank import load

    puzzles = load(bank_of(game)).take(level=level, held_out=True)
    if number >= len(puzzles):
        raise HotloopError(f"--game {number}: the bank holds out {len(puzzles)} boards of level {level}; give less")
    env = RicochetVectorEnv(
        1, size=game.size, robots=game.robots, observation=game.observation, max_steps=game.eval_steps,
        render_mode=render_mode, autoreset_mode="Disabled",
    )  # fmt: skip
    obs, _ = env.reset(seed=0, options={"puzzles": puzzles.take(np.array([number]))})
    memory, fresh, steps, over = agent.nothing(1), np.ones(1, np.bool_), 0, False

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
