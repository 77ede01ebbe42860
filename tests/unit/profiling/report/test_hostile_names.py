"""Names that try to control what shows them: through every writer of a report, an export and an error."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from pyarrow import csv
from rich.console import Console
from tests.formats import check_speedscope, check_trace_events
from tests.traces import frame, make_process, make_thread, make_trace, place, seen

from hotloop.cli.main import main
from hotloop.escaping import printable
from hotloop.phases import Phase
from hotloop.profiling.diagnosis.finding import Finding
from hotloop.profiling.report import charts, notebook, progress_summary, terminal, text, view
from hotloop.profiling.report import json as report_json
from hotloop.profiling.report.export import export
from hotloop.training.run.progress import Bar

HOSTILE = {
    "colour": "\x1b[31mred\x1b[0m",
    "link": "\x1b]8;;http://evil\x1b\\here\x1b]8;;\x07",
    "clipboard": "\x1b]52;c;aGk=\x07",
    "carriage return": "good\rbad",
    "line break": "a\nhotloop: all is well",
    "bidi": "\u202egnitset\u202c \u2066x\u2069",
    "c1": "\x9b31m\x85",
    "delete": "a\x7f\x08b",
    "surrogate": "half \ud83d, byte \udcff",
    "not a character": "\ufffe\uffff",
    "markup": "[red]x[/red] [link=http://evil]y[/link] [/]",
    "mathematics": r"$\frac{1}{$ and $x^$",
    "formula": '=HYPERLINK("http://evil","x")',
    "xml": "]]><svg onload='x'>&amp;",
    "not in the font": "環境 🐍 ꙮ",
}
names = pytest.mark.parametrize("name", list(HOSTILE.values()), ids=list(HOSTILE))


def is_safe(shown: str) -> bool:
    return all(char.isprintable() or char == "\n" for char in shown)


def trace_of(name: str):
    stack = [frame(name, f"/home/{name}.py", 3, f"x = {name}")]
    worker = make_process(
        [make_thread([place(name, Phase.WAIT, 3.0, 30)], name=name)], pid=77, main=False, warnings=(name,)
    )
    made = make_trace(
        [place(name, Phase.ENV, 4.0, 400, counts={name: 3}), place("replay.sample", Phase.SAMPLE, 6.0, 100)],
        samples=[seen("replay.sample", stack, 6.0)],
        counts={"env_steps": 400, name: 3},
        windows={"env_steps": [100, 300], name: [1, 2]},
        others=[replace(worker, name=name)],
        warnings=(name,),
    )
    return replace(
        made, name=name, path=f"/runs/{name}", manifest=dict(made.manifest) | {"command": ["train.py", name]}
    )


def report_of(name: str):
    finding = Finding(
        "rule",
        name,
        Phase.ENV,
        name,
        f"/home/{name}.py",
        3,
        0.5,
        2.0,
        1.5,
        2.5,
        0.7,
        (name,),
        f"Change:\n\n    x = {name}",
    )
    return view.build(trace_of(name), [finding])


@names
def test_the_report_as_text_and_on_a_terminal(name):
    report = report_of(name)
    shown = text.as_text(report)
    assert is_safe(shown)
    console = Console(force_terminal=True, color_system=None, width=200, emoji=False, highlight=False)
    with console.capture() as captured:
        terminal.show(report, console)
    assert is_safe(captured.get().replace("\x1b[0m", ""))
    assert printable(name)[:20] in shown


@names
def test_the_svg_report_is_valid_xml(name, tmp_path):
    text.write(report_of(name), tmp_path / "r.svg")
    picture = ElementTree.parse(tmp_path / "r.svg")
    assert not [each for each in picture.iter() if "onload" in each.attrib]


@names
def test_a_notebook_shows_the_name_and_runs_nothing(name):
    html = notebook.render(report_of(name))
    assert is_safe(html)
    ElementTree.fromstring(html)


@names
def test_json_is_valid_safe_and_utf8(name, tmp_path):
    report = report_of(name)
    report_json.write(report_json.detailed(report, trace_of(name)), tmp_path / "r.json")
    shown = (tmp_path / "r.json").read_text(encoding="utf-8")
    assert is_safe(shown)
    whole = name if name != HOSTILE["surrogate"] else printable(name)
    assert whole in [row["name"] for row in json.loads(shown)["spans"]]


@names
def test_charts_draw_any_name(name, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        charts.write(report_of(name), tmp_path / "c.png")
    assert (tmp_path / "c.png").stat().st_size > 10_000


@names
def test_tables_hold_no_formula_and_numbers_stay_numbers(name, tmp_path):
    export(trace_of(name), "csv", tmp_path / "csv")
    for file in (tmp_path / "csv").iterdir():
        assert is_safe(file.read_text(encoding="utf-8"))
        table = csv.read_csv(file, parse_options=csv.ParseOptions(newlines_in_values=True))
        for column in (table.column_names, *(table[each].to_pylist() for each in table.column_names)):
            cells = [cell for cell in column if isinstance(cell, str)]
            assert not any(cell.startswith(("=", "+", "-", "@", "\t", "\r")) for cell in cells)
    starts = csv.read_csv(tmp_path / "csv" / "memory.csv")["at_s"].to_pylist()
    assert all(isinstance(each, int | float) for each in starts)


@names
def test_timelines_and_flame_graphs_open(name, tmp_path):
    trace = trace_of(name)
    export(trace, "perfetto", tmp_path / "p.json")
    check_trace_events(tmp_path / "p.json")
    export(trace, "speedscope", tmp_path / "s.json")
    check_speedscope(tmp_path / "s.json")
    assert is_safe(
        (tmp_path / "p.json").read_text(encoding="utf-8") + (tmp_path / "s.json").read_text(encoding="utf-8")
    )


@names
def test_lines_that_training_prints(name, capsys):
    print(progress_summary.periodic(trace_of(name)))
    bar = Bar("dqn-snake", quiet=False)
    bar.say(f"worker 1 was replaced: {name}")
    print(report_of(name).findings[0])
    assert is_safe("".join(capsys.readouterr()))


@pytest.mark.parametrize(
    "words",
    [["{}"], ["explain", "{}"],
      ["explain", "--top", "{}"], ["explain", "--{}"], ["export", "--to", "{}"], ["run", "{}"],
     ["run", "-m", "{}"], ["run", "--budget", "{}", "x.py"], ["prune", "--keep", "{}"], ["prune", "--dir", "{}"],
     ["ls", "--dir", "{}"], ["train", "{}"], ["train", "dqn-snake", "--preset", "{}"], ["train", "dqn-snake", "--{}"],
     ["train", "dqn-snake", "--config", "{}"], ["evaluate", "{}"], ["play", "{}"]],
    ids=" ".join,
)  # fmt: skip
@pytest.mark.parametrize("name", ["\x1b[31m\x1b]8;;http://evil\x07x", "a\rb\nc", "\u202ex \udcff \x9b"])
def test_an_error_quotes_a_value_in_one_safe_line(words, name, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        main([word.format(name) for word in words])
    except SystemExit:
        pass
    out, err = capsys.readouterr()
    assert is_safe(out + err)
    assert len((out + err).splitlines()) == 1


@names
def test_lists_of_runs(name, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs" / name.replace("/", "_").replace("\ud83d", "")
    folder.mkdir(parents=True)
    manifest = {"format": 1, "started_unix_ns": 1, "state": "finished", "name": name}
    (folder / "run.json").write_text(json.dumps(manifest))
    for words in (
        ["ls"],
        ["ls", "--json"],
        ["prune", "--keep", "0", "--dry-run"],
        ["prune", "--keep", "0", "--yes", "--json"],
    ):
        assert main(words) == 0
        out, err = capsys.readouterr()
        assert is_safe(out + err)
        if "--json" in words:
            json.loads(out)
