"""CarRacing for its pipeline: options, environments, laps on held-out tracks, and the parts of the training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hotloop.errors import HotloopError
from hotloop.training.run.configuration import derive
from hotloop.training.tasks.game import Act, FrameStacks, Played, Position, as_text, held_out_seeds

if TYPE_CHECKING:
    from hotloop.training.envs.carracing import CarRacingVectorEnv
    from hotloop.training.learn import SACConfig
    from hotloop.training.pipelines.sac_carracing import Config
    from hotloop.training.replay import FrameReplay, VectorReplay

PLACE = "environment"
LIMIT = "max_frames"
REMEMBERS = False
OURS, OFFICIAL = "hotloop/CarRacing-v0", "CarRacing-v3"
ACTION_SIZE = {"three": 3, "two": 2}
KERNELS_STRIDES = ((8, 4), (4, 2), (3, 1))
"""Kernel and stride of the three convolutions."""
GREY = np.array([0.299, 0.587, 0.114], np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class GameOptions:
    """The options of the game and of the observation, which the pipeline's configuration extends."""

    state: Literal["visual", "vector"] = "visual"
    """Observation: grey pixels, or 36 features."""
    size: int = 64
    """Pixels along a side: 64, 84 or 96."""
    stack: int = 3
    """Frames in an observation."""
    supersample: int = 2
    """Samples along each side of a pixel (antialiasing)."""
    indicators: bool = True
    """Show speed, steering and the like at the lower edge."""
    action_form: Literal["three", "two"] = "two"
    """three: steering, gas, brake; two: steering, and gas or brake in one number."""
    action_repeat: int = 4
    """Frames per decision."""
    max_frames: int = 1000
    """Frames until an episode is truncated."""


def shape_seen(game: GameOptions) -> tuple[int, ...]:
    """Return the shape of an observation: a stack of frames, or features."""
    from hotloop.training.envs.carracing.config import CarRacingConfig

    if game.state == "visual":
        return (game.stack, game.size, game.size)
    return CarRacingConfig(state="vector").observation_shape


def make_env(
    game: GameOptions, num_envs: int, workers: int | None, patience: int = 0, recorded: bool = False
) -> CarRacingVectorEnv:
    """Make the vector environment of a configuration.

    `workers` are processes; 0: none, None: one per core. `patience` is the number of frames without a new tile after
    which an episode is truncated; 0: never. If `recorded`, workers are recorded too when this process is recorded.
    """
    try:
        import Box2D  # noqa: F401  # pyright: ignore
    except ImportError as error:
        raise HotloopError('CarRacing needs Box2D: `pip install "hotloop[carracing]"`') from error
    from hotloop.training.envs.carracing import CarRacingVectorEnv

    return CarRacingVectorEnv(num_envs, workers=workers, patience=patience, recorded=recorded, **_options(game))


def controls(actions: np.ndarray, game: GameOptions) -> np.ndarray:
    """Convert actions in [-1, 1] to the game's controls, where gas and brake are in [0, 1]."""
    if game.action_form == "two":
        return actions
    return np.concatenate([actions[:, :1], (actions[:, 1:] + 1) / 2], axis=1)


def frames_driven(info: dict[str, Any], before: np.ndarray | int) -> tuple[int, np.ndarray]:
    """Return the frames that all cars drove in a step, and the frames of each car's current episode, [N].

    `before` is the second from the step before. An episode may end before its last decision is over, so only the
    environment knows the number.
    """
    after = info.get("final_info", info)["frames"]
    # A car whose worker died may show the frames of a new episode already.
    return int(np.maximum(after - before, 0).sum()), info["frames"]


def home(game: GameOptions) -> str:
    """Return the place that the agent was trained in."""
    return OURS


def places(game: GameOptions, boards: list[int] | None, official: bool) -> list[str]:
    """Return the environments to drive in: ours and, with --official, Gymnasium's too."""
    if boards:
        raise HotloopError(f"--board {boards[0]}: CarRacing has no board; leave it out")
    if official and game.state == "vector":
        raise HotloopError("--official: Gymnasium's environment has only pixels, no features; leave it out")
    return [OURS, OFFICIAL] if official else [OURS]


def play_episodes(act: Act, game: GameOptions, episodes: int, place: str = OURS, *, choosing: bool = False) -> Played:
    """Drive on held-out tracks, each to the end of its episode, in our environment or Gymnasium's.

    `act` maps observations [E, ...] to actions [E, A]. `choosing` uses the tracks for choosing the best checkpoint, not
    those for testing it; in our environment only.
    """
    if place == OFFICIAL:
        ends = [list(_watch_official(act, game, number, "rgb_array"))[-1] for number in range(episodes)]
        score, length = np.array([each.score for each in ends]), np.array([each.steps for each in ends])
        return Played(score, score, length, np.array([each.cause for each in ends], object), won="lap")
    env = make_env(game, episodes, workers=None)
    returned, length = np.zeros(episodes), np.zeros(episodes, np.int64)
    cause = np.full(episodes, None, object)
    going = np.ones(episodes, np.bool_)
    try:
        obs, _ = env.reset(seed=held_out_seeds(episodes, np.uint32, choosing=choosing))
        stacks = FrameStacks(obs, game.stack)
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


def watch(act: Act, game: GameOptions, place: str, number: int, render_mode: str) -> Iterator[Position]:
    """Drive one held-out track and yield each position; images are Gymnasium's own."""
    if place == OFFICIAL:
        yield from _watch_official(act, game, number, render_mode)
        return
    from hotloop.training.envs.carracing import CarRacingEnv

    env = CarRacingEnv(render_mode="rgb_array", **_options(game))
    obs, _ = env.reset(seed=held_out_seeds(number + 1, np.uint32)[number])
    stacks, returned, steps, over = FrameStacks(obs[None], game.stack), 0.0, 0, False
    draw = as_text(env.render) if render_mode == "ansi" else _smaller(env.render)
    yield Position(draw, 0.0, 0, None)
    while not over:
        obs, reward, terminated, truncated, info = env.step(controls(act(stacks.seen), game)[0])
        over, returned, steps = terminated or truncated, returned + reward, steps + 1
        stacks.push(obs[None])
        ended = _cause(terminated, bool(info.get("lap_finished"))) if over else None
        yield Position(draw, round(returned, 1), steps, ended)
    env.close()


def _options(game: GameOptions) -> dict[str, Any]:
    names = ("state", "size", "supersample", "indicators", "action_form", "action_repeat", "max_frames")
    return {name: getattr(game, name) for name in names}


def _cause(terminated: bool, lap: bool) -> str:
    return "lap" if lap else "off the field" if terminated else "time"


def _watch_official(act: Act, game: GameOptions, number: int, render_mode: str) -> Iterator[Position]:
    import gymnasium

    env: Any = gymnasium.make(OFFICIAL, render_mode="rgb_array", max_episode_steps=game.max_frames).unwrapped
    rgb, _ = env.reset(seed=held_out_seeds(number + 1, np.uint32)[number])
    stacks, returned, steps, frames, over = FrameStacks(as_seen(rgb, game.size)[None], game.stack), 0.0, 0, 0, False
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
        stacks.push(as_seen(rgb, game.size)[None])
        ended = _cause(terminated, bool(info.get("lap_finished"))) if over else None
        yield Position(draw, round(returned, 1), steps, ended)
    env.close()


def as_seen(rgb: np.ndarray, size: int) -> np.ndarray:
    """Convert an official frame, uint8 [96, 96, 3], to the agent's observation: grey, in its size."""
    from PIL import Image

    grey = np.rint(rgb.astype(np.float32) @ GREY).astype(np.uint8)
    if grey.shape[0] == size:
        return grey
    return np.asarray(Image.fromarray(grey).resize((size, size), Image.Resampling.BOX))


def _smaller(draw: Callable[[], np.ndarray | None]) -> Callable[[], np.ndarray]:
    """Return a function that renders at half the size: a GIF of a lap has hundreds of frames."""

    def picture() -> np.ndarray:
        from PIL import Image

        image = draw()
        assert image is not None
        return np.asarray(Image.fromarray(image).reduce(2))

    return picture


def make_replay(config: Config, seen: np.ndarray, capacity: int) -> FrameReplay | VectorReplay:
    """Make the replay buffer for observations like these, [N, ...]."""
    from hotloop.training.replay import FrameReplay, VectorReplay

    visual = config.state == "visual"
    make = partial(FrameReplay, stack=config.stack) if visual else partial(VectorReplay, obs_dtype=seen.dtype)
    return make(
        capacity,
        len(seen),
        seen.shape[1:],
        action_shape=(ACTION_SIZE[config.action_form],),
        action_dtype=np.float32,
        n_step=config.n_step,
        gamma=config.gamma,
    )


def rehearse(config: Config, seen: np.ndarray) -> None:
    """Compile the replay buffer's kernels, using a small copy."""
    steps = 2 * (config.n_step + config.stack)
    spare = make_replay(config, seen, steps * len(seen))
    action = np.zeros((len(seen), ACTION_SIZE[config.action_form]), np.float32)
    never = np.zeros(len(seen), np.bool_)
    for _ in range(steps):
        spare.add(seen, action, action[:, 0], never, never, seen)
    spare.sample(1, np.random.default_rng(0))


def learner_config(config: Config) -> SACConfig:
    """Return the learner's configuration."""
    from hotloop.training.learn import SACConfig, SACShape

    if config.state == "vector" and (config.shared or config.shift or config.latent):
        raise HotloopError(
            "--state vector: features need no encoder; use --preset vector, or --no-shared --shift 0 --latent 0"
        )
    convs = tuple((n, *rest) for n, rest in zip(config.channels, KERNELS_STRIDES, strict=True))
    actions = ACTION_SIZE[config.action_form]
    shape = derive(SACShape, config, observation=shape_seen(config), actions=actions, convs=convs)
    return derive(SACConfig, config, shape=shape)
