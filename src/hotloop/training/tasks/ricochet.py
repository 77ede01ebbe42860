"""Ricochet Robots for its pipeline: options, boards from a bank, greedy play on held-out boards, and the learner."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from hotloop.cache import cache_folder
from hotloop.errors import HotloopError
from hotloop.training.run.config_checks import require
from hotloop.training.run.configuration import derive
from hotloop.training.tasks.game import Played, Position

if TYPE_CHECKING:
    from hotloop.training.envs.ricochet import RicochetVectorEnv
    from hotloop.training.learn import BoardPPOConfig
    from hotloop.training.pipelines.ppo_ricochet import Config

PLACE, LIMIT, REMEMBERS = "level", "eval_steps", True
FPS = 2.0
"""Default moves per second of `hotloop play`."""
Precision = Literal["auto", "float32", "bfloat16"]
LEVELS = 4
SMALLEST = 7
"""Smallest side in our own banks. Smaller boards all have the same walls, so none can be held out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GameOptions:
    """The options of the game and of the observation, which the pipeline's configuration extends."""

    size: int = 16
    """Cells along a side."""
    robots: int = 4
    observation: Literal["planes", "stops", "rgb"] = "planes"
    """Observation: planes of the board, planes that include where each robot would stop, or a 128×128 image."""
    level: int = 0
    """Difficulty of the boards, 0 to 3; with --curriculum, the first level."""
    curriculum: bool = False
    """Move on to the next level when enough boards are solved."""
    promotion: float = 0.85
    """Share of the last 100 boards that must be solved to move on."""
    max_steps: int = 20
    """Steps until an episode is truncated."""
    eval_steps: int = 10
    """Steps until an episode is truncated in evaluations."""
    bank: str = ""
    """Puzzle bank to draw boards from; "": our own, made on first use."""
    bank_boards: int = 10_000
    """Boards per level in our own bank."""
    threads: int = 1
    """Threads of torch and of rendering. Networks this small gain nothing from a second."""


class Player(Protocol):
    """An agent with memory."""

    def initial_memory(self, boards: int) -> np.ndarray:
        """Return the memory before the first step."""
        ...

    def remember(self, obs: np.ndarray, memory: np.ndarray, fresh: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the best actions, int64 [N], and the memory."""
        ...


def check(game: GameOptions) -> None:
    """Raise HotloopError for a level or size that no bank has boards of."""
    known = known_levels(game.robots)
    named = f"one of {', '.join(map(str, known))}, the levels of boards with --robots {game.robots}"
    require(game.level in known, game, "level", named)
    least = f"at least {SMALLEST}, or a --bank too: smaller boards all have the same walls, so none can be held out"
    require(game.size >= SMALLEST or bool(game.bank), game, "size", least)


def bank_of(game: GameOptions) -> Path:
    """Return the path of the puzzle bank. Our own bank is made on first use."""
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


def _make_bank(path: Path, game: GameOptions) -> None:
    from hotloop.training.envs.ricochet.puzzle_bank import Plan, make

    plan = Plan(per_level=game.bank_boards, size=game.size, robots=game.robots, levels=tuple(known_levels(game.robots)))
    try:
        make(path, plan)
    except (OSError, HotloopError):
        if not path.exists():
            raise
        # Another process has made it in the meantime; the plan determines the boards, so they are the same.


def check_bank(game: GameOptions, evaluates: bool) -> None:
    """Raise HotloopError for a bank without the boards that training, and evaluation if any, will need."""
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


def make_env(game: GameOptions, num_envs: int, level: int) -> RicochetVectorEnv:
    """Make the vector environment for training on boards of a level."""
    from hotloop.training.envs.ricochet import RicochetVectorEnv

    options = _options(game, game.max_steps)
    return RicochetVectorEnv(num_envs, level=level, bank=bank_of(game), **options)


def _options(game: GameOptions, max_steps: int) -> dict[str, Any]:
    options = {name: getattr(game, name) for name in ("size", "robots", "observation")}
    # Only rendering takes long enough for more than one thread.
    return options | {"max_steps": max_steps, "threads": game.threads if game.observation == "rgb" else 1}


def known_levels(robots: int) -> list[int]:
    """Return the levels that exist with this many robots: the last level needs at least two."""
    return list(range(LEVELS if robots > 1 else LEVELS - 1))


def home(game: GameOptions) -> int:
    """Return the place that the agent was trained in."""
    return game.level


def places(game: GameOptions, boards: list[int] | None, official: bool) -> list[int]:
    """Return the levels to play."""
    if official or boards:
        raise HotloopError("--board and --official are for other games: leave them out, or choose by --level")
    return known_levels(game.robots)


def levels(game: GameOptions, names: list[str]) -> list[int]:
    """Check that these levels exist, and return them as numbers."""
    known = [str(level) for level in known_levels(game.robots)]
    for name in names:
        if name not in known:
            raise HotloopError(f"--level {name}: with robots {game.robots} there are levels {', '.join(known)}")
    return [int(name) for name in names]


def play_episodes(agent: Player, game: GameOptions, episodes: int, level: int) -> Played:
    """Play held-out boards of a level greedily, each to the end of its episode.

    The agent is the pipeline's own, or loaded from its checkpoint. The boards are the first held-out ones of the level,
    in the order of the bank.
    """
    from hotloop.training.envs.ricochet import RicochetVectorEnv
    from hotloop.training.envs.ricochet.puzzle_bank import load

    puzzles = load(bank_of(game)).take(level=level, held_out=True)
    episodes = min(episodes, len(puzzles))
    # Boards that replace finished ones do not count, so they may come from anywhere.
    env = RicochetVectorEnv(episodes, **_options(game, game.eval_steps))
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


def watch(agent: Player, game: GameOptions, level: int, number: int, render_mode: str) -> Iterator[Position]:
    """Play one held-out board and yield each position."""
    from hotloop.training.envs.ricochet import RicochetVectorEnv
    from hotloop.training.envs.ricochet.puzzle_bank import load

    puzzles = load(bank_of(game)).take(level=level, held_out=True)
    if number >= len(puzzles):
        raise HotloopError(f"--game {number}: the bank holds out {len(puzzles)} boards of level {level}; give less")
    options = _options(game, game.eval_steps)
    env = RicochetVectorEnv(1, render_mode=render_mode, autoreset_mode="Disabled", **options)
    obs, _ = env.reset(seed=0, options={"puzzles": puzzles.take(np.array([number]))})
    memory, fresh, steps, over = agent.initial_memory(1), np.ones(1, np.bool_), 0, False

    def draw() -> np.ndarray | str:
        drawn = env.render()
        assert drawn is not None
        return drawn[0]

    yield Position(draw, 0, 0, None)
    while not over:
        action, memory = agent.remember(obs, memory, fresh)
        obs, _, terminated, truncated, info = env.step(action)
        fresh, steps, over = np.zeros(1, np.bool_), steps + 1, bool(terminated[0] or truncated[0])
        yield Position(draw, int(terminated[0]), steps, info["cause"][0] if over else None)


def resolve_precision(precision: Precision, device: str) -> Precision:
    """Resolve "auto": a GPU computes several times faster in bfloat16, most CPUs do not."""
    if precision != "auto":
        return precision
    import torch

    return "bfloat16" if device.startswith("cuda") and torch.cuda.is_bf16_supported() else "float32"


def learner_config(config: Config) -> BoardPPOConfig:
    """Return the learner's configuration."""
    from hotloop.training.envs.ricochet.config import RicochetConfig
    from hotloop.training.envs.ricochet.vector import observation_space
    from hotloop.training.learn import BoardPPOConfig, BoardShape

    game = RicochetConfig(size=config.size, robots=config.robots, observation=config.observation)
    seen = observation_space(game).shape
    shape = derive(BoardShape, config, observation=seen, actions=game.actions, side=config.size)
    precision = resolve_precision(config.precision, config.device)
    return derive(BoardPPOConfig, config, shape=shape, precision=precision)
