"""The report's section on drift: how the three factors of wall time changed over the run, and what that means."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hotloop import numbers
from hotloop.json_types import JsonObject
from hotloop.profiling.report.layout import heading
from hotloop.profiling.trace.drift import Drift, Part

PHASES_SHOWN = 3


def as_dict(drift: Drift | None) -> JsonObject | None:
    """Return `drift` of `explain --json`; None if there was no significant change."""
    if drift is None:
        return None
    factors = asdict(drift.factors)
    return {
        "verdict": drift.verdict,
        "early": _part(drift.early),
        "late": _part(drift.late),
        "factors": factors,
        "log_factors": {name: math.log(value) if value else None for name, value in factors.items()},
        "phases": [asdict(row) for row in drift.phases],
        "learning_began_s": drift.learning_began_s,
    }


def render(drift: Drift | None) -> Iterator[RenderableType]:
    """Yield the section on drift, if there is drift."""
    if drift is None:
        return
    yield heading("How it changed", "first third of the loop compared with the last")
    yield Padding(_table(drift), (0, 0, 0, 2))
    yield Padding(Text(meaning(drift)), (0, 0, 0, 2))
    yield Text()


def meaning(drift: Drift) -> str:
    """Explain what changed and whether it is a problem."""
    sentences = []
    length, cost = drift.factors.steps_per_episode, drift.factors.cost_per_step
    if "episodes" in drift.verdict and length is not None:
        sentences.append(
            f"Episodes are {length:.2f} times as long: an episode takes longer because the agent survives longer. "
            "This is learning, not a slow-down."
            if length > 1
            else f"Episodes are {length:.2f} times as long: they end earlier."
        )
    if drift.verdict == "episodes":
        sentences.append(f"The cost of a step stayed about the same ({cost:.2f} times).")
    if drift.verdict in ("cost", "cost and episodes"):
        sentences.append(f"A step costs {cost:.2f} times what it did{_where(drift, cost)}.")
    if "machine" in drift.verdict:
        sentences.append(
            f"A step costs {cost:.2f} times what it did, in all phases alike: the machine became "
            f"{'slower' if cost > 1 else 'faster'} (other programs, heat), not the program."
        )
    if drift.learning_began_s is not None:
        sentences.append(
            f"Updates began after {numbers.seconds(drift.learning_began_s)}; the time before that is not compared."
        )
    return " ".join(sentences)


def _where(drift: Drift, cost: float) -> str:
    moved = [row for row in drift.phases if (row.late_s - row.early_s) * (cost - 1) > 0]
    if not moved:
        return ""
    row = moved[0]
    return f", most of it in {row.phase} ({numbers.seconds(row.early_s)} a step, then {numbers.seconds(row.late_s)})"


def _part(part: Part) -> JsonObject:
    return asdict(part) | {
        "steps_per_episode": part.steps_per_episode,
        "cost_per_step_s": part.cost_per_step_s,
        "env_steps_per_s": 1 / part.cost_per_step_s,
    }


def _table(drift: Drift) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    for _ in range(3):
        table.add_column(justify="right", no_wrap=True)
    early, late, factors = drift.early, drift.late, drift.factors
    table.add_row("time", numbers.seconds(early.seconds), numbers.seconds(late.seconds), f"× {factors.seconds:.2f}")
    if factors.episodes is not None and factors.steps_per_episode is not None:
        table.add_row("= episodes", *_cells(early.episodes, late.episodes, factors.episodes))
        lengths = early.steps_per_episode or 0.0, late.steps_per_episode or 0.0
        table.add_row("× steps an episode", *_cells(*lengths, factors.steps_per_episode))
    else:
        table.add_row("= env steps", *_cells(early.env_steps, late.env_steps, factors.env_steps))
    costs = numbers.seconds(early.cost_per_step_s), numbers.seconds(late.cost_per_step_s)
    table.add_row("× cost of a step", *costs, f"× {factors.cost_per_step:.2f}")
    for row in drift.phases[:PHASES_SHOWN] if drift.verdict != "episodes" else ():
        ratio = f"× {row.late_s / row.early_s:.2f}" if row.early_s else ""
        table.add_row(f"    {row.phase}", numbers.seconds(row.early_s), numbers.seconds(row.late_s), Text(ratio, "dim"))
    return table


def _cells(early: float, late: float, factor: float) -> tuple[str, str, str]:
    return numbers.rate(early), numbers.rate(late), f"× {factor:.2f}"
