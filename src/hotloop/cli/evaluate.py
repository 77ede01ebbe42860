"""`hotloop evaluate CHECKPOINT`: greedy episodes on held-out seeds, as table, JSON or Markdown; two agents compared."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hotloop.cli.arguments import whole_number
from hotloop.cli.output import note, writing
from hotloop.errors import HotloopError
from hotloop.escaping import json_text, printable
from hotloop.files import write_whole

if TYPE_CHECKING:
    from hotloop.training.agents.load import TrainedAgent
    from hotloop.training.tasks.game import Played

Place = int | str
"""Where an agent plays: the size of a board, a level, or an environment."""

SCHEMA = 1
HEAD = ("mean", "95 % interval", "median", "p5", "p95", "best", "steps", "wins")
BAR = 30


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    parser.add_argument("CHECKPOINT", type=Path, help="checkpoint, or run directory (its best checkpoint)")
    parser.add_argument(
        "--episodes", type=whole_number, default=100, metavar="N", help="episodes per board (default 100)"
    )
    parser.add_argument("--board", type=_boards, metavar="8,10,15", help="Snake: board sizes (default: as trained)")
    parser.add_argument("--official", action="store_true", help="CarRacing: also on Gymnasium's own environment")
    parser.add_argument("--level", metavar="1-1,1-2", help="Mario (default: as trained), Ricochet (0,1; default: all)")
    parser.add_argument(
        "--max-steps",
        type=whole_number,
        metavar="N",
        help="steps per episode, in CarRacing frames (default: as trained)",
    )
    parser.add_argument("--compare", type=Path, metavar="OTHER", help="play the same games with another checkpoint")
    parser.add_argument("--export", type=Path, metavar="DIR", help="save only the agent, without replay and optimiser")
    parser.add_argument("--device", default="cpu", help="where to compute (default cpu)")
    parser.add_argument("--markdown", type=Path, metavar="F.md", help="also write the table as Markdown")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Play and report; return the exit code."""
    from hotloop.training.run.config_checks import require_training, torch_threads

    require_training()
    # Acting for a few games is little work: two threads would mostly wait for each other.
    with torch_threads(1):
        return _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    from hotloop.training.agents import evaluation
    from hotloop.training.agents.export import save_agent
    from hotloop.training.agents.load import load_agent
    from hotloop.training.registry import task

    agent = load_agent(arguments.CHECKPOINT, arguments.device)
    other = load_agent(arguments.compare, arguments.device) if arguments.compare else None
    task_module = task(agent.pipeline)
    kind, rows, gains, plays = task_module.PLACE, [], [], []
    places = choose_places(agent, arguments.board, arguments.official, arguments.level)
    if other is not None:
        check_comparable(agent, other, places, arguments.official)
    if arguments.export:
        note(f"wrote {save_agent(agent.path, arguments.export)}")
    for place in places:
        where = {kind: place}
        played = _play(agent, place, arguments)
        rows.append(evaluation.describe(played, where))
        plays.append(played)
        if other is not None:
            gains.append(evaluation.compare(played, _play(other, place, arguments), where))
    result = {"schema": SCHEMA, "checkpoint": str(agent.path), "pipeline": agent.pipeline, "env_steps": agent.env_steps}
    result |= {f"{kind}s": rows}
    if other is not None:
        result |= {"compare": {"checkpoint": str(other.path), f"{kind}s": gains}}
    if arguments.official:
        ours, official = plays
        result |= {"official": {"against": places[0]} | evaluation.compare(official, ours, {kind: places[1]})}
    if arguments.json:
        print(json_text(result, compact=True))
    else:
        print(_text(result, kind))
    if arguments.markdown:
        with writing(arguments.markdown):
            write_whole(arguments.markdown, _markdown(result, kind).encode())
    return 0


def choose_places(agent: TrainedAgent, boards: list[int] | None, official: bool, levels: str | None) -> list[Place]:
    """Return where an agent plays: boards, levels or environments."""
    from hotloop.training.registry import task

    task_module = task(agent.pipeline)
    if levels is not None and not hasattr(task_module, "levels"):
        raise HotloopError(f"--level {levels}: levels are chosen in Mario and Ricochet only; leave it out")
    if levels is None or boards or official:
        return task_module.places(agent.config, boards, official)
    return task_module.levels(agent.config, [name.strip() for name in levels.split(",")])


def check_comparable(agent: TrainedAgent, other: TrainedAgent, places: list[Place], official: bool) -> None:
    """Reject an agent of another game, or one that cannot play in the same places."""
    from hotloop.training.registry import task

    task_module = task(agent.pipeline)
    if task(other.pipeline) is not task_module:
        raise HotloopError(
            f"--compare {other.path} is of {other.pipeline}, not of the game of {agent.pipeline}: "
            "give a checkpoint of the same game"
        )
    try:
        if hasattr(task_module, "levels"):
            known = task_module.levels(other.config, [str(place) for place in places])
        else:
            known = task_module.places(other.config, places if task_module.PLACE == "board" else None, official)
    except HotloopError as error:
        raise HotloopError(f"--compare {other.path}: {error}") from error
    for place in places:
        if place not in known:
            raise HotloopError(
                f"--compare {other.path} cannot play {task_module.PLACE} {place}: it plays "
                f"{', '.join(map(str, known))}; give another checkpoint"
            )


def _play(agent: TrainedAgent, place: Place, arguments: argparse.Namespace) -> Played:
    from dataclasses import replace

    from hotloop.training.registry import task

    played, config = task(agent.pipeline), agent.config
    if arguments.max_steps:
        config = replace(config, **{played.LIMIT: arguments.max_steps})
    return played.play_episodes(agent if played.REMEMBERS else agent.act, config, arguments.episodes, place)


def _cells(row: dict[str, Any], kind: str) -> list[str]:
    at = row["score_percentiles"]
    interval = _between(row["score_low"], row["score_high"], ".2f")
    whole = [f"{value:.0f}" for value in (at["p50"], at["p5"], at["p95"], row["score_max"], row["steps_mean"])]
    return [str(row[kind]), f"{row['score_mean']:.2f}", interval, *whole, f"{row['success_rate']:.0%}"]


def _text(result: dict[str, Any], kind: str) -> str:
    places = result[f"{kind}s"]
    rows = [[kind, *HEAD], *(_cells(row, kind) for row in places)]
    widths = [max(len(row[k]) for row in rows) for k in range(len(HEAD) + 1)]
    lines = [f"{result['pipeline']}, {result['env_steps']:,} steps trained: {result['checkpoint']}", ""]
    lines += ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    for row in places:
        edges, counts = row["score_histogram"]["edges"], row["score_histogram"]["counts"]
        gap = ""
        if "gap_mean" in row:
            gap = f"; {row['gap_mean']:.2f} steps more than needed, in the median {row['gap_median']:g}"
        causes = ", ".join(f"{cause} {times}" for cause, times in row["causes"].items())
        lines += ["", f"scores on {kind} {row[kind]} ({row['episodes']} episodes; ended by {causes}{gap})"]
        for low, high, times in zip(edges, edges[1:], counts, strict=False):
            lines.append(f"  {low:>4} to {high - 1:<4} {times:>5}  " + "█" * round(BAR * times / max(counts)))
    for gain in result.get("compare", {}).get(f"{kind}s", []):
        lines += ["", _gain(gain, kind, result["compare"]["checkpoint"])]
    if "official" in result:
        lines += ["", _gain(result["official"], kind, result["official"]["against"])]
    return "\n".join(map(printable, lines))


def _gain(gain: dict[str, Any], kind: str, other: str) -> str:
    return (
        f"{kind} {gain[kind]}: {gain['difference']:+.2f} ({_between(gain['low'], gain['high'], '+.2f')}) "
        f"against {other} on the same games: {gain['verdict']}"
    )


def _between(low: float | None, high: float | None, form: str) -> str:
    return "unknown" if low is None or high is None else f"{low:{form}} to {high:{form}}"


def _markdown(result: dict[str, Any], kind: str) -> str:
    about = f"{result['pipeline']}, {result['env_steps']:,} steps"
    lines = [f"`{result['checkpoint']}` ({about}), greedy on held-out seeds:", ""]
    lines += ["| " + " | ".join([kind, *HEAD]) + " |", "|" + " ---: |" * (len(HEAD) + 1)]
    lines += ["| " + " | ".join(_cells(row, kind)) + " |" for row in result[f"{kind}s"]]
    gains = result.get("compare", {}).get(f"{kind}s", [])
    lines += ["", *(_gain(gain, kind, result["compare"]["checkpoint"]) + "  " for gain in gains)] if gains else []
    lines += ["", _gain(result["official"], kind, result["official"]["against"])] if "official" in result else []
    return "\n".join([*map(printable, lines), ""])


def _boards(value: str) -> list[int]:
    parts = value.split(",")
    if not all(part.strip().isdigit() for part in parts):
        raise argparse.ArgumentTypeError(f"must be sizes such as 8,10,15, not {value!r}")
    return [int(part) for part in parts]
