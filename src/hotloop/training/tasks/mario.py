"""Mario for its pipeline: options, consoles, greedy episodes on held-out seeds, and the parts of the training.

The game is deterministic, so an agent could learn a list of button presses by heart. Evaluations prevent that: 0 to 30
frames pass before the first step, and a quarter of the actions is repeated, both chosen by the seed.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hotloop.errors import HotloopError
from hotloop.training.run.configuration import derive
from hotloop.training.run.warm_up import settle_kernel
from hotloop.training.tasks.game import Act, FrameStacks, Played, Position, as_text, held_out_seeds

if TYPE_CHECKING:
    from hotloop.training.collect import Collector
    from hotloop.training.envs.nes import MarioEnv
    from hotloop.training.learn import FrameDQN, FrameDQNConfig
    from hotloop.training.learn.frame_dqn.policy import Exploration
    from hotloop.training.pipelines.dqn_mario import Config
    from hotloop.training.replay import FrameReplay
    from hotloop.training.run.saved_training import Saved

PLACE = "level"
LIMIT = "max_steps"
REMEMBERS = False
WON = "flag"
NOOPS, STICKY = 30, 0.25
"""Options of held-out episodes."""
ENV = "hotloop.training.tasks.mario:make_env"
"""The function that makes the environment, for worker processes."""
AUTO = "auto"
NETWORKS = {"small": ((4, 4), (3, 2), (3, 2)), "nature": ((8, 4), (4, 2), (3, 1))}
"""Kernel and stride of the three convolutions."""
ACTIONS = {"simple": 7, "complex": 12}
AHEAD = 32
"""Maximum number of steps that workers may be ahead of the learner."""
FIGURES = ("distance", "flag", "cause")
"""Fields reported for each episode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GameOptions:
    """The options of the game and of the observation, which the pipeline's configuration extends."""

    rom: str | None = None
    """A cartridge in iNES format; without it, our own game, runner, is played."""
    rom_unchecked: bool = False
    """Accept a file that is not the known cartridge."""
    level: str = "1-1"
    """World and level, such as 1-1, or random for a random level in each episode."""
    actions: Literal["simple", "complex"] = "simple"
    """simple: 7 combinations of buttons; complex: 12."""
    skip: int = 4
    """Frames per action."""
    size: int = 84
    """Pixels along a side: 84 or 128."""
    stack: int = 4
    """Frames in an observation."""
    start: Literal["auto", "begin", "route", "reached"] = "auto"
    """Where training episodes start; auto: along the known route in runner, in other games at places reached before."""
    begin_share: float = 0.5
    """Share of episodes that start at the beginning of the level nevertheless."""
    patience: int = 40
    """An episode ends after this many steps without progress."""
    max_steps: int = 0
    """An episode is truncated after this many steps; 0: never."""
    noops: int = 30
    """Maximum number of frames, drawn at random, that pass before the first step."""
    sticky: float = 0.25
    """Probability that the previous action is repeated instead."""
    reward_progress: float = 0.02
    """Reward per pixel to the right."""
    reward_death: float = -1.0
    """Reward for losing the life."""
    reward_flag: float = 2.0
    """Reward for reaching the flag."""
    reward_deadlock: float = -0.5
    """Reward for an episode that ends because patience ran out."""


def make_env(**options: Any) -> MarioEnv:
    """Make a console with the options of `hotloop.training.envs.nes.MarioConfig`."""
    from hotloop.training.envs.nes import MarioEnv

    return MarioEnv(**options)


def options_of(game: GameOptions) -> dict[str, Any]:
    """Return the options shared by all consoles of a configuration."""
    names = ("rom", "rom_unchecked", "level", "actions", "skip", "size", "patience", "max_steps")
    return {name: getattr(game, name) for name in names}


def training_options(game: GameOptions) -> dict[str, Any]:
    """Return the options of a console for training."""
    from hotloop.training.envs.nes import MarioRewards

    rewards = MarioRewards(game.reward_progress, game.reward_death, game.reward_flag, game.reward_deadlock)
    begin = {"start": start_of(game), "begin_share": game.begin_share}
    return options_of(game) | begin | {"noops": game.noops, "sticky": game.sticky, "rewards": rewards}


def start_of(game: GameOptions) -> str:
    """Resolve `auto`: start along the known route in our own game, at places reached before in others."""
    if game.start != AUTO:
        return game.start
    return "route" if plays_runner(game) else "reached"


def plays_runner(game: GameOptions) -> bool:
    """Say whether our own game is played."""
    from hotloop.training.envs.nes.rom import find_rom, is_runner

    # Looked up each time: the file may have been moved since the checkpoint was written.
    return is_runner(find_rom(game.rom, unchecked=game.rom_unchecked))


def check(game: GameOptions) -> None:
    """Raise HotloopError for a cartridge, level or start that cannot be played, before anything is written."""
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


def levels(game: GameOptions, names: list[str]) -> list[str]:
    """Check that the cartridge has these levels, and return them."""
    known = known_levels(game)
    for name in names:
        if name not in known:
            raise HotloopError(f"--level {name}: this cartridge has {', '.join(known)}")
    return names


def known_levels(game: GameOptions) -> tuple[str, ...]:
    """Return the levels of the cartridge."""
    from hotloop.training.envs.nes.start_states import CARTRIDGE_LEVELS, RUNNER_LEVELS

    return RUNNER_LEVELS if plays_runner(game) else CARTRIDGE_LEVELS


def home(game: GameOptions) -> str:
    """Return the place that the agent was trained in."""
    return game.level


def places(game: GameOptions, boards: list[int] | None, official: bool) -> list[str]:
    """Return the levels to play: the one trained on, or all if training drew random levels."""
    if official or boards:
        raise HotloopError("--board and --official are for other games: leave them out, or choose by --level")
    return list(known_levels(game)) if game.level == "random" else [game.level]


def play_episodes(act: Act, game: GameOptions, episodes: int, place: str, *, choosing: bool = False) -> Played:
    """Play held-out episodes of a level greedily, one after the other: a process can have only one emulator.

    `act` maps observations [1, stack, S, S] to actions [1]. `choosing` uses the seeds for choosing the best checkpoint,
    not those for testing it.
    """
    import torch

    # For a single observation, waking a second thread takes longer than it saves.
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _play(act, game, held_out_seeds(episodes, np.uint32, choosing=choosing), place)
    finally:
        torch.set_num_threads(before)


def _play(act: Act, game: GameOptions, seeds: list[int], place: str) -> Played:
    rows = []
    env = make_env(**options_of(game) | {"level": place, "noops": NOOPS, "sticky": STICKY})
    try:
        for seed in seeds:
            frame, _ = env.reset(seed=seed)
            stack, returned, over, info = FrameStacks(frame[None], game.stack), 0.0, False, {}
            while not over:
                frame, reward, terminated, truncated, info = env.step(int(act(stack.seen)[0]))
                stack.push(frame[None])
                returned, over = returned + reward, terminated or truncated
            rows.append((info["distance"], returned, info["steps"], info["cause"]))
    finally:
        env.close()
    distance, returns, length, cause = zip(*rows, strict=True)
    return Played(np.array(distance), np.array(returns), np.array(length), np.array(cause, object), won=WON)


def watch(act: Act, game: GameOptions, place: str, number: int, render_mode: str) -> Generator[Position]:
    """Play one held-out episode and yield each position; images are the console's."""
    made = options_of(game) | {"level": place, "noops": NOOPS, "sticky": STICKY}
    env = make_env(render_mode="rgb_array", **made)
    try:
        frame, info = env.reset(seed=held_out_seeds(number + 1, np.uint32)[number])
        stack, over = FrameStacks(frame[None], game.stack), False
        draw = as_text(env.render) if render_mode == "ansi" else env.render
        yield Position(draw, info["distance"], 0, None)
        while not over:
            frame, _, terminated, truncated, info = env.step(int(act(stack.seen)[0]))
            stack.push(frame[None])
            over = terminated or truncated
            yield Position(draw, info["distance"], info["steps"], info["cause"] if over else None)
    finally:
        env.close()


def check_resume(saved: Saved | None, config: Config) -> None:
    """Raise HotloopError if a run is resumed with another number of workers."""
    if saved is not None and saved.config.get("workers") != config.workers:
        raise HotloopError(
            f"cannot resume with --workers {config.workers}: each has its own part of the replay, and there were "
            f"{saved.config.get('workers')}; leave it out"
        )


def settle(learner: FrameDQN, config: Config) -> tuple[str, str]:
    """Switch the learner to the configured kernel, or for `auto` to the fastest.

    Return its name, and a message about kernels that cannot be used here; usually empty.
    """
    if config.kernel != "auto" or not config.try_compile:
        return settle_kernel(learner, config.kernel, 1), ""
    from hotloop.training.learn import FRAME_KERNELS, choose_kernel

    choice = choose_kernel(learner, 1, candidates=FRAME_KERNELS)
    learner.use(choice.kernel)
    left_out = "; ".join(f"kernel {name} cannot be used here ({why})" for name, why in choice.left_out.items())
    return choice.kernel, f"hotloop: {left_out}; {choice.kernel} is used" if left_out else ""


def make_replay(config: Config) -> FrameReplay:
    """Make the replay buffer, in shared memory if workers write to it."""
    from hotloop.training.replay import FrameReplay, Prioritised

    return FrameReplay(
        config.buffer,
        config.lanes,
        (config.size, config.size),
        config.stack,
        n_step=config.n_step,
        gamma=config.gamma,
        prioritised=Prioritised(config.alpha, config.beta) if config.prioritised else None,
        storage="shared" if config.workers else "memory",
    )


def make_collector(config: Config, replay: FrameReplay, learner: FrameDQN, exploration: Exploration) -> Collector:
    """Create the collector: worker processes, or this process."""
    from hotloop.training.collect import InProcess, Job, Recipe

    policy = {"shape": learner.config.shape, "exploration": exploration}
    where = "worker_policy" if config.workers else "FramePolicy"
    job = Job(
        env=Recipe(ENV, training_options(config)),
        policy=Recipe(f"hotloop.training.learn.frame_dqn.policy:{where}", policy),
        seed=config.seed,
        frames_per_step=config.skip,
        figures=FIGURES,
    )
    if not config.workers:
        return InProcess(job, replay, learner.weights())
    from hotloop.training.collect.workers import WorkerOptions, Workers

    options = WorkerOptions(
        count=config.workers, ahead=ahead_of(replay), lockstep=config.lockstep, restarts=config.restarts
    )
    return Workers(job, replay, learner.weights(), options)


def ahead_of(replay: FrameReplay) -> int:
    """Return how many steps workers may be ahead of the learner.

    At most half of the guard band: then nothing is overwritten while a checkpoint saves it.
    """
    return min(AHEAD, replay.ring.shape.guard // 2)


def gpu_busy() -> float | None:
    """Return the GPU's recent utilisation as a share; None if none is in use or it is unknown."""
    import torch

    if not torch.cuda.is_initialized():
        return None
    try:
        return torch.cuda.utilization() / 100
    except (ImportError, RuntimeError):  # without pynvml, or on a device that does not report it
        return None


def learner_config(config: Config) -> FrameDQNConfig:
    """Return the learner's configuration."""
    from hotloop.training.learn import FrameDQNConfig, FrameQShape

    convs = tuple((n, *rest) for n, rest in zip(config.channels, NETWORKS[config.network], strict=True))
    observation = (config.stack, config.size, config.size)
    shape = derive(FrameQShape, config, observation=observation, actions=ACTIONS[config.actions], convs=convs)
    precision = config.precision
    if precision == "auto":
        precision = "float16" if config.device.startswith("cuda") else "float32"
    return derive(FrameDQNConfig, config, shape=shape, precision=precision)
