"""`hotloop evaluate CHECKPOINT`: greedy episodes on held-out seeds, as table, JSON or Markdown; two agents compared."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from hotloop.errors import HotloopError

SCHEMA = 1
HEAD = ("board", "mean", "95 % interval", "median", "p5", "p95", "best", "steps", "wins")
BAR = 30


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    parser.add_argument("CHECKPOINT", type=Path, help="checkpoint, or a run directory, of which the best is taken")
    parser.add_argument("--episodes", type=_whole, default=100, metavar="N", help="episodes a board (default 100)")
    parser.add_argument("--board", type=_boards, metavar="8,10,15", help="sizes of board (default: as trained)")
    parser.add_argument(
        "--max-steps", type=_whole, metavar="N", help="steps until an episode ends (default: as trained)"
    )
    parser.add_argument("--compare", type=Path, metavar="OTHER", help="play the same games with another checkpoint")
    parser.add_argument("--device", default="cpu", help="where to compute (default cpu)")
    parser.add_argument("--markdown", type=Path, metavar="F.md", help="write the table as Markdown, too")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Play and report; return the exit code."""
    from hotloop.pipelines import evaluation, load_agent
    from hotloop.pipelines.checks import require_device

    require_device(arguments.device)
    agent = load_agent(arguments.CHECKPOINT, arguments.device)
    other = load_agent(arguments.compare, arguments.device) if arguments.compare else None
    boards, rows, gains = arguments.board or [agent.config.board], [], []
    for board in boards:
        played = _play(agent, board, arguments)
        rows.append(evaluation.describe(played, board))
        if other is not None:
            gains.append(evaluation.compare(played, _play(other, board, arguments), board))
    told = {"schema": SCHEMA, "checkpoint": str(agent.path), "pipeline": agent.pipeline, "env_steps": agent.env_steps}
    told |= {"boards": rows}
    if other is not None:
        told |= {"compare": {"checkpoint": str(other.path), "boards": gains}}
    if arguments.json:
        print(json.dumps(told))
    else:
        print(_text(told))
    if arguments.markdown:
        _write(arguments.markdown, _markdown(told))
    return 0


def _play(agent: Any, board: int, arguments: argparse.Namespace) -> Any:
    from dataclasses import replace

    from hotloop.pipelines import snake

    game = agent.config
    if game.features == "grid" and board != game.board:
        raise HotloopError(f"--board {board}: an agent that sees the grid plays only its own board of {game.board}")
    if arguments.max_steps:
        game = replace(game, max_steps=arguments.max_steps)
    return snake.play_episodes(agent.act, game, arguments.episodes, board)


def _cells(row: dict[str, Any]) -> list[str]:
    at = row["score_percentiles"]
    return [
        str(row["board"]), f"{row['score_mean']:.2f}", f"{row['score_low']:.2f} to {row['score_high']:.2f}",
        f"{at['p50']:.0f}", f"{at['p5']:.0f}", f"{at['p95']:.0f}", str(row["score_max"]),
        f"{row['steps_mean']:.0f}", f"{row['success_rate']:.0%}",
    ]  # fmt: skip


def _text(told: dict[str, Any]) -> str:
    rows = [list(HEAD), *map(_cells, told["boards"])]
    widths = [max(len(row[k]) for row in rows) for k in range(len(HEAD))]
    lines = [f"{told['pipeline']}, {told['env_steps']:,} steps trained: {told['checkpoint']}", ""]
    lines += ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    for row in told["boards"]:
        edges, counts = row["score_histogram"]["edges"], row["score_histogram"]["counts"]
        causes = ", ".join(f"{cause} {times}" for cause, times in row["causes"].items())
        lines += ["", f"scores on board {row['board']} ({row['episodes']} episodes; ended by {causes})"]
        for low, high, times in zip(edges, edges[1:], counts, strict=False):
            lines.append(f"  {low:>4} to {high - 1:<4} {times:>5}  " + "█" * round(BAR * times / max(counts)))
    for gain in told.get("compare", {}).get("boards", []):
        lines += ["", _gain(gain, told["compare"]["checkpoint"])]
    return "\n".join(lines)


def _gain(gain: dict[str, Any], other: str) -> str:
    return (
        f"board {gain['board']}: {gain['difference']:+.2f} ({gain['low']:+.2f} to {gain['high']:+.2f}) "
        f"against {other} on the same games: {gain['verdict']}"
    )


def _markdown(told: dict[str, Any]) -> str:
    lines = [f"`{told['checkpoint']}` ({told['pipeline']}, {told['env_steps']:,} steps), greedy on held-out seeds:", ""]
    lines += ["| " + " | ".join(HEAD) + " |", "|" + " ---: |" * len(HEAD)]
    lines += ["| " + " | ".join(_cells(row)) + " |" for row in told["boards"]]
    gains = told.get("compare", {}).get("boards", [])
    lines += ["", *(_gain(gain, told["compare"]["checkpoint"]) + "  " for gain in gains)] if gains else []
    return "\n".join([*lines, ""])


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise HotloopError(f"cannot write {path} ({error.strerror or error}): choose another file") from error
    print(f"hotloop: wrote {path}", file=sys.stderr)


def _whole(value: str) -> int:
    if not value.isdigit() or int(value) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 on, not {value!r}")
    return int(value)


def _boards(value: str) -> list[int]:
    parts = value.split(",")
    if not all(part.strip().isdigit() for part in parts):
        raise argparse.ArgumentTypeError(f"must be sizes such as 8,10,15, not {value!r}")
    return [int(part) for part in parts]
