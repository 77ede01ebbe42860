"""The report in a terminal: verdict, findings, hot lines, phases, call tree, laid out with rich.

Names from the user's program are escaped first and added as `Text`, never as
markup.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from hotloop import numbers
from hotloop.profiling.report import deep, drift
from hotloop.profiling.report.layout import SHORT, heading, near, place
from hotloop.profiling.report.palette import GROUP_ORDER, colour
from hotloop.profiling.report.printable import printable_report
from hotloop.profiling.report.view import Report, TreeRow
from hotloop.profiling.trace.summary import PhaseRow
from hotloop.profiling.trace.time_kinds import KIND_NAMES

if TYPE_CHECKING:
    from hotloop.profiling.diagnosis.finding import Finding

MAX_WIDTH = 118
BAR_WIDTH = 40
TREE_ROWS = 40
LINES_SHOWN = 12
LEAST_SHARE = 0.01
SHORT_S = 3.0
"""Shorter recordings have too few samples."""
REASONS_SHOWN = 3
LEAST_GAIN = 1.005
STATE_STYLES = {
    "running": "bold cyan",
    "finished": "bold green",
    "failed": "bold red",
    "interrupted": "bold yellow",
    "killed": "bold red",
    "ended": "bold yellow",
    "unknown": "bold yellow",
}
EIGHTHS = " ▏▎▍▌▋▊▉"
RATE_LABELS = {
    "env_steps_per_s": "env steps/s",
    "frames_per_s": "frames/s",
    "updates_per_s": "updates/s",
    "episodes_per_s": "episodes/s",
}


def show(report: Report, console: Console) -> None:
    """Print the report."""
    width = min(console.width, MAX_WIDTH)
    for part in render(report):
        console.print(part, width=width)


def render(report: Report) -> Iterator[RenderableType]:
    """Yield the parts of the report from top to bottom."""
    report = printable_report(report)
    yield from _brief(report)
    if not report.wall_s:
        yield from _notes(report)
        return
    yield Text()
    yield heading("What to change", _finding_count(report))
    for i, finding in enumerate(report.findings, 1):
        yield _finding(i, finding)
    if not report.findings:
        yield Padding(_no_findings(report), (0, 2, 1, 2))
    if report.lines:
        yield heading("Hot lines", "your own code; library calls count for the line that makes them")
        yield _line_table(report)
        yield Text()
    yield heading("The run")
    yield _header(report)
    yield Text()
    yield heading("Where the time goes", f"main thread, {numbers.seconds(report.wall_s)}")
    yield _phase_table(report.phases)
    yield Text()
    yield heading("Call tree", "branches of 1 % and more")
    yield _tree(report)
    yield Text()
    if report.processes:
        yield heading("Other threads and processes")
        yield _process_table(report)
        yield Text()
    yield from drift.render(report.drift)
    yield from deep.render(report.traced)
    yield from _notes(report)


def render_brief(report: Report) -> Iterator[RenderableType]:
    """Yield only the verdict."""
    return _brief(printable_report(report))


def _brief(report: Report) -> Iterator[RenderableType]:
    """Yield the verdict: one sentence each on throughput, what limits it, and the best next change."""
    ending = numbers.ending(report.state, report.exit_code)
    yield from _incomplete(report)
    yield Text.assemble(("hotloop ", "bold"), (report.name, "bold magenta"), "  ", (ending, STATE_STYLES[report.state]))
    if not report.wall_s:
        yield Text("The run is empty: nothing was recorded yet.", "yellow")
        return
    verdict = report.verdict
    yield Text(verdict.throughput, "bold")
    yield Text(verdict.limit)
    if verdict.next_change is not None:
        yield Text(f"Next: {verdict.next_change}", "bold green")
    if report.wall_s < SHORT_S:
        yield Text(f"Only {numbers.seconds(report.wall_s)} of the loop were recorded: shares are rough.", "yellow")


def _incomplete(report: Report) -> Iterator[RenderableType]:
    """Report what is missing, before any number is shown."""
    for reason in report.missing[:REASONS_SHOWN]:
        yield Text(f"Incomplete recording: {reason}.", "bold yellow")
    if len(report.missing) > REASONS_SHOWN:
        yield Text(f"{len(report.missing) - REASONS_SHOWN} more reasons are among the warnings.", "bold yellow")


def _no_findings(report: Report) -> RenderableType:
    if not report.counts.env_steps:
        return Text("No known cause found, but no environment steps either: is this the training loop?", "yellow")
    return Text("No known cause found. Look at the hot lines below.")


def _line_table(report: Report) -> RenderableType:
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column(justify="right", no_wrap=True, width=6)
    table.add_column(style="cyan", no_wrap=True, width=SHORT, overflow="ellipsis")
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=3)
    table.add_column(style="dim", no_wrap=True, overflow="ellipsis", ratio=2)
    for line in report.lines[:LINES_SHOWN]:
        if line.share < LEAST_SHARE:
            break
        given = f"({', '.join(line.operands)})" if line.operands and line.callee else ""
        into = f" → {line.callee}{given}" if line.callee else ""
        kind = f"{KIND_NAMES.get(line.kind, line.kind)}{into}"
        table.add_row(numbers.percent(line.share), place(line.file, line.line), Text(line.source), Text(kind))
    return Padding(table, (0, 0, 0, 2))


def _finding_count(report: Report) -> str:
    n = len(report.findings)
    return f"{n} finding{'s' if n > 1 else ''}, best first" if n else ""


def _header(report: Report) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    if report.command:
        grid.add_row("command", Text(" ".join(report.command), overflow="ellipsis", no_wrap=True))
    grid.add_row("machine", _machine_text(report))
    grid.add_row("loop", _loop_text(report))
    counts = report.counts
    for name, label in RATE_LABELS.items():
        total = getattr(counts, name.removesuffix("_per_s"))
        same = name == "frames_per_s" and total == counts.env_steps
        if total and not same:
            grid.add_row(label, _rate_text(report, name))
    return Padding(grid, (0, 0, 0, 2))


def _machine_text(report: Report) -> Text:
    machine = report.machine
    parts = [f"{machine.cores} cores", numbers.size(machine.memory_bytes), machine.gpu or "no GPU"]
    parts.append(f"Python {machine.python}")
    if machine.torch:
        n = machine.torch_threads
        threads = f" ({n} thread{'s' if n > 1 else ''})" if n else ""
        parts.append(f"torch {machine.torch}{threads}")
    return Text(" · ".join(parts))


def _loop_text(report: Report) -> Text:
    memory = f"{numbers.size(report.peak_rss_bytes)} peak memory"
    if report.peak_gpu_bytes:
        memory += f" · {numbers.size(report.peak_gpu_bytes)} on the GPU"
    busy = numbers.percent(report.cpu_s / report.wall_s) if report.wall_s else "0 %"
    return Text(
        f"{numbers.seconds(report.wall_s)} after {numbers.seconds(report.startup_s)} of start-up"
        f" · main thread computing {busy} · {memory}"
    )


def _rate_text(report: Report, name: str) -> Text:
    rate = report.rates[name]
    text = Text(numbers.rate(rate.median), "bold")
    text.append(
        f"  (windows {numbers.rate(rate.low)} to {numbers.rate(rate.high)}, last {numbers.rate(rate.last)})", "dim"
    )
    counter = name.removesuffix("_per_s")
    text.append(
        f"  {numbers.with_total(getattr(report.counts, counter), getattr(report.counts_total, counter))}", "dim"
    )
    steps = report.counts.steps_per_episode
    if name == "episodes_per_s" and steps:
        text.append(f", {numbers.digits(steps)} env steps each", "dim")
    return text


def _phase_table(rows: tuple[PhaseRow, ...]) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(no_wrap=True)
    for _ in range(3):
        table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    widest = max((row.share for row in rows), default=0.0)
    groups = {row.group for row in rows}
    shares = {name: sum(row.share for row in rows if row.group == name) for name in groups}
    for name in sorted(groups, key=lambda name: (-shares[name], GROUP_ORDER.index(name))):
        label = f"{name} {numbers.percent(shares[name])}"
        for row in (row for row in rows if row.group == name):
            calls = f"{numbers.count(row.calls)} call{'s' if row.calls > 1 else ''}" if row.calls else ""
            time = numbers.seconds(row.self_s)
            bar = Text(_bar(row.share, widest), colour(row.phase))
            table.add_row(label, row.phase, numbers.percent(row.share), time, Text(calls, "dim"), bar)
            label = ""
    return Padding(table, (0, 0, 0, 2))


def _bar(share: float, widest: float) -> str:
    """Return a bar drawn in eighths of a character. The widest share fills the whole width."""
    eighths = round(share / widest * BAR_WIDTH * 8) if widest else 0
    # Every share above zero is visible.
    eighths = max(eighths, 1 if share > 0 else 0)
    return "█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()


def _tree(report: Report) -> RenderableType:
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    table.add_column("", overflow="ellipsis", no_wrap=True, ratio=1)
    for title in ("share", "total", "self", "calls", "mean"):
        table.add_column(title, justify="right", no_wrap=True)
    open_at: list[bool] = []
    for row in report.tree[:TREE_ROWS]:
        del open_at[row.depth :]
        table.add_row(*_tree_cells(row, open_at))
        open_at.append(not row.last)
    hidden = len(report.tree) - TREE_ROWS
    if hidden > 0:
        table.add_row(Text(f"{hidden} more rows: see --detailed", "dim"))
    return Padding(table, (0, 0, 0, 2))


def _tree_cells(row: TreeRow, open_at: list[bool]) -> list[RenderableType]:
    guides = "".join("│  " if is_open else "   " for is_open in open_at[1:])
    if row.depth:
        guides += "└─ " if row.last else "├─ "
    style = "dim italic" if row.kind in ("gap", "rest") else ("bold" if row.share >= 0.1 else "")
    name = Text.assemble((guides, "dim"), ("■ ", colour(row.phase)), (row.name, style))
    if row.kind != "rest":
        name.append(f"  {row.phase}" if row.phase != row.name else "", "dim")
    calls = numbers.count(row.calls) if row.calls else ""
    mean = numbers.seconds(row.mean_s) if row.calls and row.kind == "span" else ""
    own = numbers.seconds(row.self_s) if row.self_s else ""
    return [name, numbers.percent(row.share), numbers.seconds(row.total_s), own, calls, mean]


def _process_table(report: Report) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, header_style="dim", show_edge=False)
    table.add_column("process")
    table.add_column("thread")
    for title in ("time", "computing"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("phases")
    for process in report.processes:
        ended = "" if process.state == "finished" else f" {process.state}"
        name = f"{process.name} ({process.pid}){ended}"
        for thread in process.threads:
            busy = numbers.percent(thread.cpu_s / thread.wall_s) if thread.wall_s else ""
            phases = Text(", ").join(
                Text.assemble((f"{row.phase} ", colour(row.phase)), numbers.percent(row.share))
                for row in thread.phases[:3]
                if row.share >= 0.01
            )
            table.add_row(Text(name), Text(thread.name), numbers.seconds(thread.wall_s), busy, phases)
            name = ""
    return Padding(table, (0, 0, 0, 2))


def _finding(number: int, finding: Finding) -> RenderableType:
    head = Text.assemble((f"{number}. ", "bold"), (finding.title, "bold"))
    expected = Text.assemble(
        ("expect ", "dim"),
        (f"{finding.gain:.2f}× the throughput", "bold green"),
        (f" (90 %: {finding.gain_low:.2f} to {finding.gain_high:.2f})", "dim"),
    )
    if finding.kind == "hotspot":
        expected = Text(finding.expectation, "green")
    elif finding.gain < LEAST_GAIN:
        expected = Text("a measurement to mistrust, no gain in itself", "yellow")
    gain = Text.assemble(
        expected,
        ("  takes ", "dim"),
        numbers.percent(finding.share),
        (" of the time, phase ", "dim"),
        (str(finding.phase), colour(str(finding.phase))),
    )
    parts: list[RenderableType] = [gain]
    if finding.file:
        line = f":{finding.line}" if finding.line else ""
        parts.append(Text.assemble(("at ", "dim"), (f"{near(finding.file)}{line}", "cyan")))
    evidence = Table.grid(padding=(0, 1))
    for each in finding.evidence:
        evidence.add_row(Text("·", "dim"), Text(each))
    parts.append(evidence)
    parts.append(Padding(_advice(finding.advice), (0, 0, 0, 2)))
    return Group(head, Padding(Group(*parts), (0, 0, 1, 3)))


def _advice(advice: str) -> RenderableType:
    """Lay out advice: indented or fenced lines are Python, the rest is prose."""
    parts: list[RenderableType] = []
    prose: list[str] = []
    code: list[str] = []
    fenced = False
    for line in [*advice.splitlines(), ""]:
        if line.startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            code.append(line)
            continue
        else:
            prose.append(line)
        if code:
            parts += [Text("\n".join(prose[:-1]), "green"), _code(code)]
            prose, code = prose[-1:], []
    rest = "\n".join(prose).rstrip()
    if rest:
        parts.append(Text(rest, "green"))
    return Group(*(part for part in parts if not (isinstance(part, Text) and not part.plain.strip())))


def _code(lines: list[str]) -> RenderableType:
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    text = "\n".join(line[indent:] for line in lines)
    return Padding(Syntax(text, "python", theme="ansi_dark", background_color="default"), (0, 0, 0, 2))


def _unrecorded(report: Report) -> str:
    rate = report.unrecorded_env_steps_per_s
    return f" Unrecorded, expect {numbers.rate(rate)} env steps/s." if rate is not None else ""


def _notes(report: Report) -> Iterator[RenderableType]:
    overhead = report.overhead
    spans = overhead.spans_timed + overhead.spans_counted
    yield Text(
        f"Recording overhead: {numbers.percent(overhead.share)}, of which {numbers.percent(overhead.taken_share)} "
        f"({numbers.count(spans)} spans at {numbers.seconds(overhead.span_ns / 1e9)}) is subtracted from the times "
        f"above.{_unrecorded(report)} {numbers.percent(report.attributed_share)} of the time has a known phase.",
        "dim",
    )
    for warning in (each for each in report.warnings if each not in report.missing[:REASONS_SHOWN]):
        yield Text.assemble(("warning: ", "bold yellow"), warning)
