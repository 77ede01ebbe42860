"""A trace in a notebook: what is shown, and that names are escaped."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest
from tests.scripted import scripted_run
from tests.traces import frame, make_trace, place, seen

import hotloop
from hotloop.phases import Phase
from hotloop.profiling.report import notebook
from hotloop.profiling.trace.model import Trace

MS = 1_000_000
HOSTILE = "<script>alert('x')</script>"


class Reader(HTMLParser):
    """Collects tags, attributes and text; an element that is not closed makes `open` non-empty."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.open: list[str] = []
        self.words: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.open.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def parsed(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    return reader


@pytest.fixture
def trace() -> Trace:
    lines = frame("sample", f"/home/{HOSTILE}.py", 12, "batch = torch.FloatTensor(np.array(states))")
    return make_trace(
        [
            place(HOSTILE, Phase.ENV, 2.5, 100),
            place("ReplayBuffer.sample", Phase.SAMPLE, 7.5, 100),
        ],
        samples=[seen("ReplayBuffer.sample", [lines], 7.5)],
        counts={"env_steps": 100, "updates": 100},
        warnings=[f"careful with {HOSTILE}"],
    )


def test_phases_are_bars_as_long_as_their_share(trace):
    html = notebook.as_html(trace)
    assert re.findall(r"width:([\d.]+)%;background:#", html) == ["75.00", "25.00"]
    text = " ".join(parsed(html).words)
    assert "75.0 %" in text and "7.50 s" in text and "10.0 env steps/s" in text


def test_findings_are_shown_with_place_and_gain(trace):
    [finding] = hotloop.explain(trace)
    text = " ".join(parsed(notebook.as_html(trace)).words)
    assert finding.title in text
    assert f"expect {finding.gain:.2f}×" in text
    assert f"{finding.file}:12" in text


def test_names_are_escaped_and_nothing_is_fetched_or_run(trace):
    html = notebook.as_html(trace)
    found = parsed(html)
    assert "<script" not in html
    assert sum(word.count(HOSTILE) for word in found.words) >= 3, "span, file and warning are there as text"
    assert found.tags <= {"div", "span", "b", "table", "tr", "td", "code", "details", "summary"}
    assert {name for name, _ in found.attributes} == {"style"}
    assert "url(" not in html and "http" not in html


def test_a_trace_shows_itself_as_html_and_as_one_line(tmp_path, monkeypatch):
    with scripted_run(tmp_path / "run", monkeypatch) as going:
        going.during("env.step", 1500 * MS, "env_steps")
    trace = hotloop.load(tmp_path / "run")
    shown = trace._repr_html_()
    assert shown is not None and "1.50 s of training" in " ".join(parsed(shown).words)
    assert repr(trace) == f"<Trace {str(tmp_path / 'run')!r}, finished, 1.5 s, 1 process(es)>"


def test_ipython_displays_the_html(trace):
    """With IPython's own formatter; without it, by what that calls."""
    formatters = pytest.importorskip(
        "IPython.core.formatters", reason="IPython is not installed: only _repr_html_ itself is tested"
    )
    hotloop.load  # noqa: B018  as in a cell
    data, _ = formatters.DisplayFormatter().format(trace)
    assert data["text/html"] == notebook.as_html(trace)
    assert data["text/plain"] == repr(trace)


def test_reading_a_trace_does_not_load_reports(tmp_path, monkeypatch):
    with scripted_run(tmp_path / "run", monkeypatch) as going:
        going.during("env.step", 1500 * MS, "env_steps")
    code = (
        f"import hotloop, sys; trace = hotloop.load({str(tmp_path / 'run')!r})\n"
        "print([name for name in sys.modules if name.startswith('hotloop.profiling.report')])\n"
        "print('<div' in trace._repr_html_())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[]", "True"]
