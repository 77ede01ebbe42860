"""CarRacing as its pipeline plays it: the cars of a configuration, stacks of frames, and laps on held-out tracks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from hotloop.errors import HotloopError
from hotloop.training.tasks.game import Act, Played, Position, held_out_seeds
from hotloop.training.tasks.terminal_image import as_text

if TYPE_CHECKING:
    from hotloop.training.envs.carracing import CarRacingVectorEnv

PLACE = "environment"
LIMIT = "max_frames"
REMEMBERS = False
OURS, OFFICIAL = "hotloop/CarRacing-v0", "CarRacing-v3"
ACTION_SIZE = {"three": 3, "two": 2}
GREY = np.array([0.299, 0.587, 0.114], np.float32)


class Game(Protocol):
    """The fields of a configuration that define the game and the observation."""

    @property
    def state(self) -> Literal["visual", "vector"]: ...  # noqa: D102
    @property
    def size(self) -> int: ...  # noqa: D102
    @property
    def stack(self) -> int: ...  # noqa: D102
    @property
    def supersample(self) -> int: ...  # noqa: D102
    @property
    def indicators(self) -> bool: ...  # noqa: D102
    @property
    def action_form(self) -> Literal["three", "two"]: ...  # noqa: D102
    @property
    def action_repeat(self) -> int: ...  # noqa: D102
    @property
    def max_frames(self) -> int: ...  # noqa: D102


class Stacks:
    """The last frames of N cars, oldest first: uint8 [N, stack, S, S]. Of numbers, [N, F], only the last are kept."""

    def __init__(self, seen: np.ndarray, stack: int) -> None:
        self._stacked = seen.ndim == 3
        self.seen = np.repeat(seen[:, None], stack, axis=1) if self._stacked else seen

    def push(self, seen: np.ndarray, begun: np.ndarray) -> None:
        """Add the newest observation, [N, ...]. Where an episode has started, [N] bool, it fills the whole stack."""
        if not self._stacked:
            self.seen = seen
            return
        stacks = np.empty_like(self.seen)
        stacks[:, :-1], stacks[:, -1] = self.seen[:, 1:], seen
        stacks[begun] = seen[begun, None]
        self.seen = stacks


def shape_seen(game: Game) -> tuple[int, ...]:
    """Return the shape of what the agent sees: a stack of frames, or numbers."""
    from hotloop.training.envs.carracing.config import CarRacingConfig

    if game.state == "visual":
        return (game.stack, game.size, game.size)
    return CarRacingConfig(state="vector").observation_shape


def make_env(
    game: Game, num_envs: int, workers: int | None, patience: int = 0, recorded: bool = False
) -> CarRacingVectorEnv:
    """Make the cars of a configuration.

    Args:
        game: What is played.
        num_envs: How many cars.
        workers: Processes over which they are spread; 0: none, None: one for each core.
        patience: Frames without a new tile after which an episode is truncated; 0: never.
        recorded: Whether the workers record themselves, too, if this process is being recorded.

    Raises:
        HotloopError: Box2D is not installed.
    """
    try:
        import Box2D  # noqa: F401  # pyright: ignore
    except ImportError as error:
        raise HotloopError('CarRacing needs Box2D: `pip install "hotloop[carracing]"`') from error
    from hotloop.training.envs.carracing import CarRacingVectorEnv

    return CarRacingVectorEnv(num_envs, workers=workers, patience=patience, recorded=recorded, **_options(game))


def controls(actions: np.ndarray, game: Game) -> np.ndarray:
    """Turn an agent's numbers, all from -1 to 1, into those that the game takes: gas and brake are from 0 to 1."""
    if game.action_form == "two":
        return actions
    return np.concatenate([actions[:, :1], (actions[:, 1:] + 1) / 2], axis=1)


def frames_driven(info: dict[str, Any], before: np.ndarray | int) -> tuple[int, np.ndarray]:
    """Return how many frames all cars drove in a step, and how many each has in its episode now, [N].

    An episode may end within the frames for which a decision is held: it is the environment that knows.

    Args:
        info: Of the step.
        before: Frames of each car's episode before it, [N].
    """
    after = info.get("final_info", info)["frames"]
    # A car whose worker died may show the frames of a new episode already.
    return int(np.maximum(after - before, 0).sum()), info["frames"]


def home(game: Game) -> str:
    """Where it was trained."""
    return OURS


def places(game: Game, boards: list[int] | None, official: bool) -> list[str]:
    """Return where to drive: in our environment and, with --official, in Gymnasium's own."""
    if boards:
        raise HotloopError(f"--board {boards[0]}: CarRacing has no board; leave it out")
    if official and game.state == "vector":
        raise HotloopError("--official: Gymnasium's environment shows no numbers, only pixels; leave it out")
    return [OURS, OFFICIAL] if official else [OURS]


def play_episodes(act: Act, game: Game, episodes: int, place: str = OURS, *, choosing: bool = False) -> Played:
    """Drive on held-out tracks, each to the end of its episode.

    Args:
        act: Observations [E, ...] to actions [E, A].
        game: What is played.
        episodes: E.
        place: Our environment, or Gymnasium's.
        choosing: Drive the tracks that choose the best checkpoint, not those that test it. In our environment only.
    """
    if place == OFFICIAL:
        return _merged([_drive_official(act, game, number) for number in range(episodes)])
    env = make_env(game, episodes, workers=None)
    returned, length = np.zeros(episodes), np.zeros(episodes, np.int64)
    cause = np.full(episodes, None, object)
    going = np.ones(episodes, np.bool_)
    try:
        obs, _ = env.reset(seed=held_out_seeds(episodes, np.uint32, choosing=choosing))
        stacks = Stacks(obs, game.stack)
        while going.any():
            obs, reward, terminated, truncated, info = env.step(controls(act(stacks.seen), game))
            returned += np.where(going, reward, 0)
            length += going
            over = terminated | truncated
            for i in np.flatnonzero(going & over):
                cause[i] = _cause(bool(terminated[i]), bool(info["final_info"]["lap_finished"][i]))
            going &= ~over
            stacks.push(obs, over)
    finally:
        env.close()
    return Played(returned, returned, length, cause, won="lap")


def watch(act: Act, game: Game, place: str, number: int, render_mode: str) -> Iterator[Position]:
    """Drive one of the held-out tracks and yield each position; pictures are Gymnasium's own."""
    if place == OFFICIAL:
        yield from _watch_official(act, game, number, render_mode)
        return
    from hotloop.training.envs.carracing import CarRacingEnv

    env = CarRacingEnv(render_mode="rgb_array", **_options(game))
    obs, _ = env.reset(seed=held_out_seeds(number + 1, np.uint32)[number])
    stacks, returned, steps, over = Stacks(obs[None], game.stack), 0.0, 0, False
    draw = as_text(env.render) if render_mode == "ansi" else _smaller(env.render)
    yield Position(draw, 0.0, 0, None)
    while not over:
        obs, reward, terminated, truncated, info = env.step(controls(act(stacks.seen), game)[0])
        over, returned, steps = terminated or truncated, returned + reward, steps + 1
        stacks.push(obs[None], np.zeros(1, np.bool_))
        ended = _cause(terminated, bool(info.get("lap_finished"))) if over else None
        yield Position(draw, round(returned, 1), steps, ended)
    env.close()


def _options(game: Game) -> dict[str, Any]:
    names = ("state", "size", "supersample", "indicators", "action_form", "action_repeat", "max_frames")
    return {name: getattr(game, name) for name in names}


def _cause(terminated: bool, lap: bool) -> str:
    return "lap" if lap else "off the field" if terminated else "time"


def _drive_official(act: Act, game: Game, number: int) -> Position:
    """Drive one track of Gymnasium's environment to its end."""
    *_, last = _watch_official(act, game, number, "rgb_array")
    return last


def _watch_official(act: Act, game: Game, number: int, render_mode: str) -> Iterator[Position]:
    import gymnasium

    env: Any = gymnasium.make(OFFICIAL, render_mode="rgb_array", max_episode_steps=game.max_frames).unwrapped
    rgb, _ = env.reset(seed=held_out_seeds(number + 1, np.uint32)[number])
    stacks, returned, steps, frames, over = Stacks(as_seen(rgb, game.size)[None], game.stack), 0.0, 0, 0, False
    draw = as_text(env.render) if render_mode == "ansi" else _smaller(env.render)
    yield Position(draw, 0.0, 0, None)
    terminated, info = False, {}
    while not over:
        action = controls(act(stacks.seen), game)[0]
        gas, brake = (action[1], action[2]) if game.action_form == "three" else (action[1], -action[1])
        control = np.array([action[0], np.clip(gas, 0, 1), np.clip(brake, 0, 1)])
        for _ in range(game.action_repeat):
            rgb, reward, terminated, _, info = env.step(control)
            returned, frames = returned + float(reward), frames + 1
            over = terminated or frames >= game.max_frames
            if over:
                break
        steps += 1
        stacks.push(as_seen(rgb, game.size)[None], np.zeros(1, np.bool_))
        ended = _cause(terminated, bool(info.get("lap_finished"))) if over else None
        yield Position(draw, round(returned, 1), steps, ended)
    env.close()


def as_seen(rgb: np.ndarray, size: int) -> np.ndarray:
    """Make of an official frame, uint8 [96, 96, 3], what the agent sees: grey, in its size."""
    from PIL import Image

    grey = np.rint(rgb.astype(np.float32) @ GREY).astype(np.uint8)
    if grey.shape[0] == size:
        return grey
    return np.asarray(Image.fromarray(grey).resize((size, size), Image.Resampling.BOX))


def _merged(ends: list[Position]) -> Played:
    score = np.array([each.score for each in ends])
    length = np.array([each.steps for each in ends])
    return Played(score, score, length, np.array([each.cause for each in ends], object), won="lap")


def _smaller(draw: Any) -> Any:
    """Return a function that draws a picture at half its size: a film of a lap has hundreds."""

    def picture() -> np.ndarray:
        from PIL import Image

        return np.asarray(Image.fromarray(draw()).reduce(2))

    return picture
