"""Snake for its two pipelines: options, environments, and greedy games on held-out seeds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hotloop.errors import HotloopError
from hotloop.training.run.config_checks import require
from hotloop.training.tasks.game import Act, Played, Position, held_out_seeds

if TYPE_CHECKING:
    from hotloop.training.envs.snake import SnakeVectorEnv

Features = Literal["basic", "flood", "selective", "enhanced", "grid"]
Actions = Literal["relative", "absolute"]

PLACE = "board"
"""What the places to play in are called in this game."""
LIMIT = "max_steps"
"""The option that limits the length of an episode."""
REMEMBERS = False
"""Whether agents have memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GameOptions:
    """The options of the game, which the configurations of both pipelines extend."""

    board: int = 10
    """Cells along a side."""
    features: Features = "flood"
    """Observation: 10, 13, 18 or 23 features, or the board itself."""
    actions: Actions = "relative"
    """Three turns relative to the head, or four directions."""
    max_steps: int = 1000
    """Steps until an episode is truncated."""
    tail_free: bool = False
    """May the head enter the cell that the tail is about to leave?"""
    reward_food: float = 10.0
    reward_death: float = -10.0
    reward_step: float = -0.01
    reward_shaping: float = 0.5
    """Reward for getting closer: this times the change of distance to the food, divided by the board's side."""
    reward_timeout: float = -5.0
    network: Literal["mlp", "cnn"] = "mlp"
    """mlp for features, cnn for --features grid."""
    hidden: tuple[int, ...] = (128, 128)
    """Units of the hidden layers."""


def check(game: GameOptions) -> None:
    """Raise HotloopError for a network that does not fit the observations."""
    fitting = "cnn" if game.features == "grid" else "mlp"
    require(game.network == fitting, game, "network", f"{fitting}, for --features {game.features}")
    has_layers = bool(game.hidden) and min(game.hidden) > 0
    require(has_layers, game, "hidden", "units of each hidden layer, such as 128 128")


def spaces(game: GameOptions) -> tuple[tuple[int, ...], int]:
    """Return the shape of an observation and the number of actions."""
    from hotloop.training.envs.snake.config import ACTIONS, FEATURES

    shape = (game.board, game.board, 3) if game.features == "grid" else (FEATURES[game.features],)
    return shape, ACTIONS[game.actions]


def make_env(game: GameOptions, num_envs: int) -> SnakeVectorEnv:
    """Make the environments of a configuration."""
    from hotloop.training.envs.snake import SnakeVectorEnv

    return SnakeVectorEnv(num_envs, **_options(game, game.board))


def home(game: GameOptions) -> int:
    """Return the place that the agent was trained in."""
    return game.board


def places(game: GameOptions, boards: list[int] | None, official: bool) -> list[int]:
    """Return the board sizes to play: those requested, or the one trained on."""
    if official:
        raise HotloopError("--official: Snake has no official environment; leave it out")
    from hotloop.training.envs.snake.config import LARGEST, SMALLEST

    for board in boards or []:
        if not SMALLEST <= board <= LARGEST:
            raise HotloopError(f"--board {board}: give a size from {SMALLEST} to {LARGEST}")
        if game.features == "grid" and board != game.board:
            raise HotloopError(f"--board {board}: an agent that sees the grid plays only its own board of {game.board}")
    return boards or [game.board]


def play_episodes(
    act: Act, game: GameOptions, episodes: int, board: int | None = None, *, choosing: bool = False
) -> Played:
    """Play games in parallel on held-out seeds, each to the end of its first episode.

    `act` maps observations [E, ...] to actions [E]; `board` is the side, if not the configuration's. `choosing` uses
    the seeds for choosing the best checkpoint, not those for testing it.
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


def _options(game: GameOptions, board: int) -> dict[str, Any]:
    options = {name: getattr(game, name) for name in ("features", "actions", "max_steps", "tail_free")}
    rewards = {name: getattr(game, f"reward_{name}") for name in ("food", "death", "step", "shaping", "timeout")}
    return options | {"board": board, "rewards": rewards}


def watch(act: Act, game: GameOptions, board: int, number: int, render_mode: str) -> Iterator[Position]:
    """Play one held-out game and yield each position. It is rendered only on request."""
    from hotloop.training.envs.snake import SnakeEnv

    env = SnakeEnv(render_mode=render_mode, **_options(game, board))
    obs, info = env.reset(seed=held_out_seeds(number + 1)[number])
    yield Position(env.render, info["score"], info["steps"], None)
    over = False
    while not over:
        obs, _, terminated, truncated, info = env.step(int(act(obs[None])[0]))
        over = terminated or truncated
        yield Position(env.render, info["score"], info["steps"], info.get("cause"))
