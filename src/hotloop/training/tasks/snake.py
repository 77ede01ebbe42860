"""Snake as both of its pipelines play it: the environment of a configuration, and greedy games on held-out seeds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from hotloop.errors import HotloopError
from hotloop.training.tasks.game import Act, Played, Position, held_out_seeds

if TYPE_CHECKING:
    from hotloop.training.envs.snake import SnakeEnv, SnakeVectorEnv

Features = Literal["basic", "flood", "selective", "enhanced", "grid"]
Actions = Literal["relative", "absolute"]

PLACE = "board"
"""What the places of this game are called."""
LIMIT = "max_steps"
"""The setting that ends an episode."""
REMEMBERS = False
"""Does an agent need to know what it saw before?"""


class Game(Protocol):
    """The fields of a configuration that define the game."""

    @property
    def board(self) -> int: ...  # noqa: D102
    @property
    def features(self) -> str: ...  # noqa: D102
    @property
    def actions(self) -> str: ...  # noqa: D102
    @property
    def max_steps(self) -> int: ...  # noqa: D102
    @property
    def tail_free(self) -> bool: ...  # noqa: D102
    @property
    def reward_food(self) -> float: ...  # noqa: D102
    @property
    def reward_death(self) -> float: ...  # noqa: D102
    @property
    def reward_step(self) -> float: ...  # noqa: D102
    @property
    def reward_shaping(self) -> float: ...  # noqa: D102
    @property
    def reward_timeout(self) -> float: ...  # noqa: D102


def spaces(game: Game) -> tuple[tuple[int, ...], int]:
    """Return the shape of an observation and the number of actions."""
    from hotloop.training.envs.snake.config import ACTIONS, FEATURES

    shape = (game.board, game.board, 3) if game.features == "grid" else (FEATURES[game.features],)
    return shape, ACTIONS[game.actions]


def make_env(game: Game, num_envs: int) -> SnakeVectorEnv:
    """Make the environments of a configuration."""
    from hotloop.training.envs.snake import SnakeVectorEnv

    return SnakeVectorEnv(num_envs, **_options(game, game.board))


def make_single(game: Game, board: int, render_mode: str) -> SnakeEnv:
    """Make one game to render."""
    from hotloop.training.envs.snake import SnakeEnv

    return SnakeEnv(render_mode=render_mode, **_options(game, board))


def home(game: Game) -> int:
    """Where it was trained."""
    return game.board


def places(game: Game, boards: list[int] | None, official: bool) -> list[int]:
    """Return the boards to play on: those requested, or the one it was trained on.

    Raises:
        HotloopError: The agent cannot play there.
    """
    if official:
        raise HotloopError("--official: Snake has no official environment; leave it out")
    from hotloop.training.envs.snake.config import LARGEST, SMALLEST

    for board in boards or []:
        if not SMALLEST <= board <= LARGEST:
            raise HotloopError(f"--board {board}: give a size from {SMALLEST} to {LARGEST}")
        if game.features == "grid" and board != game.board:
            raise HotloopError(f"--board {board}: an agent that sees the grid plays only its own board of {game.board}")
    return boards or [game.board]


def play_episodes(act: Act, game: Game, episodes: int, board: int | None = None, *, choosing: bool = False) -> Played:
    """Play games side by side on held-out seeds, each to the end of its first episode.

    Args:
        act: Observations [E, ...] to actions [E].
        game: What is played.
        episodes: E.
        board: Another size of board than the configuration's.
        choosing: Play the games that choose the best checkpoint, not those that test it.
    """
    from hotloop.training.envs.snake import SnakeVectorEnv

    env = SnakeVectorEnv(episodes, **_options(game, game.board if board is None else board))
    returned, length, score = np.zeros(episodes), np.zeros(episodes, np.int64), np.zeros(episodes, np.int64)
    cause = np.full(episodes, None, object)
    going = np.ones(episodes, np.bool_)
    obs, _ = env.reset(seed=held_out_seeds(episodes, choosing=choosing))
    while going.any():
        obs, reward, terminated, truncated, info = env.step(act(obs))
        returned += np.where(going, reward, 0)
        length += going
        ending = going & (terminated | truncated)
        if ending.any():
            score[ending] = info["final_info"]["score"][ending]
            cause[ending] = info["final_info"]["cause"][ending]
            going &= ~ending
    env.close()
    return Played(score, returned, length, cause, won="win")


def _options(game: Game, board: int) -> dict[str, Any]:
    from hotloop.training.envs.snake import Rewards

    rewards = Rewards(
        food=game.reward_food,
        death=game.reward_death,
        step=game.reward_step,
        shaping=game.reward_shaping,
        timeout=game.reward_timeout,
    )
    names = ("features", "actions", "max_steps", "tail_free")
    return {name: getattr(game, name) for name in names} | {"board": board, "rewards": rewards}


def watch(act: Act, game: Game, board: int, number: int, render_mode: str) -> Iterator[Position]:
    """Play one of the held-out games and yield each position. It is drawn only on request."""
    env = make_single(game, board, render_mode)
    obs, info = env.reset(seed=held_out_seeds(number + 1)[number])
    yield Position(env.render, info["score"], info["steps"], None)
    over = False
    while not over:
        obs, _, terminated, truncated, info = env.step(int(act(obs[None])[0]))
        over = terminated or truncated
        yield Position(env.render, info["score"], info["steps"], info.get("cause"))
