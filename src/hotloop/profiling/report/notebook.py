"""The report as HTML for a notebook: rates, phases as bars, findings.

It uses no script, no style sheet and no external file, because a notebook may be shown on a page that forbids them.
Text has the colour of the page, so that it is readable on a dark background. Names from the user's program are escaped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hotloop import numbers
from hotloop.escaping import markup
from hotloop.profiling.diagnosis import explain
from hotloop.profiling.report import view
from hotloop.profiling.report.palette import colour
from hotloop.profiling.report.view import Report
from hotloop.profiling.trace.model import Trace
from hotloop.profiling.trace.summary import PhaseRow

if TYPE_CHECKING:
    from hotloop.profiling.diagnosis.finding import Finding

SPANS_SHOWN = 8
LEAST_SHARE = 0.002
FAINT = "opacity:.65"
CELL = "border:0;padding:1px 10px 1px 0;text-align:left;background:none"
NUMBER = "border:0;padding:1px 10px 1px 0;text-align:right;background:none;white-space:nowrap"


def as_html(trace: Trace) -> str:
    """Return a run with its findings as HTML."""
    return render(view.build(trace, explain(trace)))


def render(report: Report) -> str:
    """Return a report as HTML."""
    return "".join(_parts(report))


def _parts(report: Report) -> Iterator[str]:
    yield '<div style="font-family:system-ui,sans-serif;font-size:13px;line-height:1.5;max-width:60em">'
    state = numbers.ending(report.state, report.exit_code)
    yield f'<div style="font-size:15px"><b>{markup(report.name)}</b> <span style="{FAINT}">{state}</span></div>'
    yield f'<div style="{FAINT}">{markup(_facts(report))}</div>'
    yield _heading("Where the time goes")
    yield from _phases(report.phases)
    yield from _spans(report)
    yield _heading("What to change")
    if not report.findings:
        yield "<div>No known cause found.</div>"
    for i, finding in enumerate(report.findings, 1):
        yield from _finding(i, finding)
    for warning in report.warnings:
        yield f'<div style="{FAINT}">⚠ {markup(warning)}</div>'
    yield "</div>"


def _facts(report: Report) -> str:
    facts = [f"{numbers.seconds(report.wall_s)} of training"]
    for name, label in (("env_steps", "env steps"), ("updates", "updates"), ("episodes", "episodes")):
        if getattr(report.counts, name):
            facts.append(f"{numbers.rate(report.rates[f'{name}_per_s'].median)} {label}/s")
    facts.append(f"{numbers.size(report.peak_rss_bytes)} peak memory")
    facts.append(f"recording overhead {numbers.percent(report.overhead.share)}")
    return " · ".join(facts)


def _heading(title: str) -> str:
    return f'<div style="margin-top:10px"><b>{title}</b></div>'


def _phases(rows: tuple[PhaseRow, ...]) -> Iterator[str]:
    yield '<table style="border-collapse:collapse;width:100%;margin:2px 0">'
    for row in rows:
        if row.share >= LEAST_SHARE:
            bar = f"height:11px;border-radius:2px;width:{row.share * 100:.2f}%;background:{colour(row.phase)}"
            yield (
                f'<tr style="background:none"><td style="{CELL};width:8em">{markup(row.phase)}</td>'
                f'<td style="{NUMBER};width:5em">{numbers.percent(row.share)}</td>'
                f'<td style="{NUMBER};width:6em">{numbers.seconds(row.self_s)}</td>'
                f'<td style="{CELL}"><div style="{bar}"></div></td></tr>'
            )
    yield "</table>"


def _spans(report: Report) -> Iterator[str]:
    yield f'<details><summary style="{FAINT}">spans with most self time</summary>'
    yield '<table style="border-collapse:collapse;margin:2px 0">'
    for row in report.spans[:SPANS_SHOWN]:
        yield (
            f'<tr style="background:none"><td style="{CELL}">{markup(row.name)}</td>'
            f'<td style="{CELL};{FAINT}">{markup(row.phase)}</td>'
            f'<td style="{NUMBER}">{numbers.seconds(row.self_s)}</td>'
            f'<td style="{NUMBER}">{numbers.count(row.calls)} calls</td>'
            f'<td style="{NUMBER}">{numbers.seconds(row.mean_s)} a call</td></tr>'
        )
    yield "</table></details>"


def _finding(number: int, finding: Finding) -> Iterator[str]:
    place = f"{finding.file}:{finding.line}" if finding.file else finding.span
    gain = finding.expectation
    yield f'<div style="margin-top:6px"><b>{number}. {markup(finding.title)}</b>'
    if finding.gain > 1:
        yield f" <span>{gain}</span>"
    yield f'<div style="{FAINT}"><code>{markup(place)}</code> {markup("; ".join(finding.evidence))}</div>'
    yield f'<details><summary style="{FAINT}">what to do</summary>'
    advice = "\n".join(map(markup, finding.advice.split("\n")))
    yield f'<div style="white-space:pre-wrap;margin-left:1em">{advice}</div></details></div>'
