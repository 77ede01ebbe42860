"""`hotloop demo`: trains Snake for half a minute, reports where the time went, and saves a GIF of the agent."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from hotloop.cli.output import note
from hotloop.errors import HotloopError
from hotloop.escaping import json_text, printable

if TYPE_CHECKING:
    from hotloop.training.run.result import Result

PIPELINE = "ppo-snake"
SECONDS = 35.0
GAMES = 100
"""Greedy games that the trained agent plays. The GIF shows the best one."""
FPS = 25.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    seconds = f"duration of the training (default {SECONDS:g})"
    parser.add_argument("--seconds", type=float, default=SECONDS, metavar="N", help=seconds)
    parser.add_argument("--out", type=Path, metavar="DIR", help="run directory (default: runs/<time>-demo)")
    parser.add_argument("--json", action="store_true", help="print only the result of the training, as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Train, explain, save a GIF; return the exit code."""
    from hotloop.cli.recording import ProfileOptions, TrainingRecording
    from hotloop.default_run_path import default_path
    from hotloop.training.registry import pipeline
    from hotloop.training.run.config_checks import require_training
    from hotloop.training.run.options import Options

    if not arguments.seconds > 0:
        raise HotloopError(f"--seconds is {arguments.seconds}: give a number above 0")
    require_training()
    out = arguments.out or default_path(["demo"])
    module = pipeline(PIPELINE)
    options = Options(
        seconds=arguments.seconds, out=out, eval_every=0, eval_episodes=GAMES, ends_process=arguments.owns_process
    )
    result: Result = module.train(module.PRESETS["fast"][0], options, TrainingRecording(ProfileOptions()))
    if result.exit_code:
        return result.exit_code
    explained = _explain(out, quiet=arguments.json)
    film = _film(out)
    if arguments.json:
        print(json_text(result.as_dict() | {"charts": str(explained), "gif": str(film)}, compact=True))
    else:
        print(_ending(result, explained, film))
    return 0


def _explain(out: Path, quiet: bool) -> Path:
    from hotloop.cli.output import print_rich
    from hotloop.profiling.diagnosis import explain
    from hotloop.profiling.report import charts, terminal, view
    from hotloop.profiling.trace.load import load

    trace = load(out)
    report = view.build(trace, explain(trace))
    if not quiet:
        print_rich(*terminal.render(report), most_width=terminal.MAX_WIDTH)
    path = out / "charts.png"
    charts.write(report, path)
    return path


def _film(out: Path) -> Path:
    from hotloop.cli.play import film
    from hotloop.training.agents.load import load_agent
    from hotloop.training.tasks.snake import play_episodes

    agent = load_agent(out)
    played = play_episodes(agent.act, agent.config, GAMES)
    path = out / "snake.gif"
    note(f"filming the best of {GAMES} greedy games")
    film(agent, agent.config.board, int(played.score.argmax()), path, FPS)
    return path


def _ending(result: Result, charts: Path, film: Path) -> str:
    run = shlex.quote(result.run_dir)
    greedy = "" if result.eval_score is None else f"; greedy it scores {result.eval_score:.1f} on games it never saw"
    done = f"Trained {result.env_steps:,} steps and {result.updates:,} updates in {result.seconds:.0f} s"
    lines = [
        "",
        f"{done} ({result.env_steps_per_s:,.0f} steps/s){greedy}.",
        f"  pictures   {film}   {charts}",
        "",
        "Next:",
        f"  hotloop play {run}                 watch it in the terminal",
        f"  hotloop train {result.pipeline} --resume {run}    continue training",
        f"  hotloop explain {run}              where the time went",
        "  hotloop run train.py                    the same for your own script",
    ]
    return "\n".join(map(printable, lines))
