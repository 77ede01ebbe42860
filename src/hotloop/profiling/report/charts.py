"""One figure of six charts: phases, self time, time per call, phases over time, memory, rates.

Drawn directly on matplotlib's Agg canvas: pyplot would keep the figure alive and look for a display.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from hotloop import numbers
from hotloop.profiling.report.palette import colour
from hotloop.profiling.report.printable import printable_report
from hotloop.profiling.report.view import Report, Timeline
from hotloop.profiling.trace.summary import SpanRow

BARS = 12
NAME_LENGTH = 32
INK = "#2b2f36"
FAINT = "#d9dce1"
RATE_COLOURS = {"env_steps": "#009e73", "frames": "#66c9a9", "updates": "#e69f00", "episodes": "#0072b2"}


def write(report: Report, path: Path) -> None:
    """Draw the six charts into a PNG file."""
    # Names may contain dollar signs and backslashes: never parse them as TeX, whatever the user's matplotlibrc says.
    with rc_context({"text.parse_math": False, "text.usetex": False}), warnings.catch_warnings():
        # A character that the font lacks is drawn as a box.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        _write(printable_report(report), path)


def _write(report: Report, path: Path) -> None:
    figure = Figure(figsize=(17, 9.5), layout="constrained", facecolor="white")
    canvas = FigureCanvasAgg(figure)
    axes = figure.subplots(2, 3)
    _phases(axes[0, 0], report)
    _self_time(axes[0, 1], report)
    _per_call(axes[0, 2], report)
    _phases_over_time(axes[1, 0], report.timeline)
    _memory(axes[1, 1], report.timeline)
    _rates(axes[1, 2], report.timeline)
    figure.suptitle(_title(report), fontsize=14, color=INK, fontweight="bold")
    figure.get_layout_engine().set(w_pad=0.15, h_pad=0.15)  # type: ignore[union-attr]
    canvas.print_png(str(path), metadata={"Title": report.name}, pil_kwargs={"optimize": True})


def _title(report: Report) -> str:
    parts = [f"{report.name}: {numbers.seconds(report.wall_s)} of training"]
    rate = report.rates["env_steps_per_s"].median
    if rate:
        parts.append(f"{numbers.rate(rate)} env steps/s")
    return ", ".join(parts)


def _style_axes(axes: Axes, title: str, along: str) -> None:
    axes.set_title(title, loc="left", fontsize=11, color=INK, fontweight="bold")
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.tick_params(colors=INK, labelsize=8.5, length=0)
    axes.grid(axis="x" if along == "x" else "y", color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)


def _empty(axes: Axes, reason: str) -> None:
    axes.text(0.5, 0.5, reason, transform=axes.transAxes, ha="center", va="center", color="#8a8f98")
    axes.set_xticks([])
    axes.set_yticks([])


def _name_bars(axes: Axes, names: list[str], notes: list[str], values: list[float]) -> None:
    """Write names to the left of the bars and notes to the right, the first at the top."""
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    for i, (note, value) in enumerate(zip(notes, values, strict=True)):
        axes.annotate(note, (value, i), (4, 0), textcoords="offset points", va="center", fontsize=8, color=INK)


def _phases(axes: Axes, report: Report) -> None:
    _style_axes(axes, "Time by phase", "x")
    rows = report.phases
    if not rows:
        return _empty(axes, "nothing recorded")
    shares = [row.share * 100 for row in rows]
    axes.barh(range(len(rows)), shares, color=[colour(row.phase) for row in rows], height=0.72)
    notes = [f"{numbers.percent(row.share)}  {numbers.seconds(row.self_s)}" for row in rows]
    _name_bars(axes, [row.phase for row in rows], notes, shares)
    axes.set_xlim(0, max(shares) * 1.28 or 1)
    axes.set_xlabel("% of wall time (self time, sums to 100)", fontsize=8.5, color=INK)


def _self_time(axes: Axes, report: Report) -> None:
    _style_axes(axes, "Self time by span", "x")
    rows = [row for row in report.spans if row.self_s > 0][:BARS]
    if not rows:
        return _empty(axes, "no spans")
    values = [row.self_s for row in rows]
    axes.barh(range(len(rows)), values, color=[colour(row.phase) for row in rows], height=0.72)
    notes = [numbers.seconds(row.self_s) + (f"  {numbers.count(row.calls)}×" if row.calls else "") for row in rows]
    _name_bars(axes, [_short(row.name) for row in rows], notes, values)
    axes.set_xlim(0, max(values) * 1.3)
    axes.set_xlabel("seconds", fontsize=8.5, color=INK)


def _per_call(axes: Axes, report: Report) -> None:
    _style_axes(axes, "Time per call: least to most, ● median, │ 95 %", "x")
    spans = [row for row in report.spans if row.calls and row.max_s > 0 and not row.name.startswith("(")]
    rows = sorted(spans, key=lambda row: -row.p50_s)[:BARS]
    if not rows:
        return _empty(axes, "no spans")
    for i, row in enumerate(rows):
        _whisker(axes, i, row)
    axes.set_xscale("log")
    axes.set_yticks(range(len(rows)), [_short(row.name) for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: numbers.seconds(value)))
    axes.xaxis.set_minor_formatter(FuncFormatter(lambda _value, _: ""))


def _whisker(axes: Axes, at: int, row: SpanRow) -> None:
    tint = colour(row.phase)
    # The minimum is 0 for a span that was not timed in every call, and a logarithmic axis needs more than zero.
    least = max(row.min_s, row.max_s * 1e-6)
    axes.plot([least, row.max_s], [at, at], color=tint, linewidth=2, alpha=0.5, solid_capstyle="round")
    axes.plot([max(row.p95_s, least)], [at], marker="|", markersize=11, markeredgewidth=2, color=tint)
    axes.plot([max(row.p50_s, least)], [at], marker="o", markersize=6.5, color=tint)


def _phases_over_time(axes: Axes, timeline: Timeline) -> None:
    _style_axes(axes, "Phases over time", "y")
    shares = timeline.phase_shares
    if len(timeline.end_ns) < 2 or not shares:
        return _empty(axes, "fewer than two windows")
    # Steps are drawn to the left of their point, so the first window also needs a point at its start.
    layers = [np.concatenate([share[:1], share]) * 100 for share in shares.values()]
    seconds = timeline.seconds(np.concatenate([timeline.start_ns[:1], timeline.end_ns]))
    axes.stackplot(seconds, layers, colors=[colour(phase) for phase in shares], labels=list(shares), step="pre")
    axes.set_xlim(seconds[0], seconds[-1])
    axes.set_ylim(0, 100)
    axes.set_ylabel("% of the time", fontsize=8.5, color=INK)
    axes.set_xlabel("seconds", fontsize=8.5, color=INK)
    axes.legend(fontsize=8, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.13), frameon=False)


def _memory(axes: Axes, timeline: Timeline) -> None:
    _style_axes(axes, "Memory of the main process", "y")
    memory = timeline.memory
    if not len(memory.at_ns):
        return _empty(axes, "no memory samples")
    seconds = timeline.seconds(memory.at_ns)
    axes.fill_between(seconds, memory.rss_bytes, color="#56b4e9", alpha=0.25, linewidth=0)
    axes.plot(seconds, memory.rss_bytes, color="#0072b2", linewidth=1.6, label="resident (CPU)")
    if memory.gpu_bytes.any():
        axes.plot(seconds, memory.gpu_bytes, color="#d55e00", linewidth=1.6, label="GPU")
    axes.axvline(0, color=INK, linewidth=0.8, linestyle=":", label="first environment step")
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: numbers.size(value)))
    axes.set_xlabel("seconds since the first environment step", fontsize=8.5, color=INK)
    axes.legend(fontsize=8, frameon=False, loc="lower right")


def _rates(axes: Axes, timeline: Timeline) -> None:
    _style_axes(axes, "Rates over time", "y")
    seconds = timeline.seconds(timeline.end_ns)
    drawn = 0
    for counter, per_s in timeline.rates.items():
        if per_s.any():
            label = counter.replace("_", " ") + "/s"
            # Dashed, because frames and env steps often coincide.
            style = "--" if counter == "frames" else "-"
            axes.plot(seconds, per_s, color=RATE_COLOURS[counter], linestyle=style, linewidth=1.6, label=label)
            drawn += 1
    if not drawn:
        return _empty(axes, "nothing counted")
    axes.set_yscale("symlog", linthresh=1.0)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: numbers.rate(value)))
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.set_xlabel("seconds", fontsize=8.5, color=INK)
    axes.legend(fontsize=8, frameon=False, loc="best")


def _short(name: str) -> str:
    return name if len(name) <= NAME_LENGTH else name[: NAME_LENGTH - 1] + "…"
