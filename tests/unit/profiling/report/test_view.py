from __future__ import annotations

import dataclasses
import json as plain_json

import pytest
from tests.traces import frame, gap, make_process, make_thread, make_trace, place, seen

from hotloop import numbers
from hotloop.phases import GROUPS, Phase
from hotloop.profiling.diagnosis.finding import Finding
from hotloop.profiling.report import charts, json, palette, progress_summary, text, view
from hotloop.profiling.trace import summary

CONTRACT = {
    "schema", "wall_s", "attributed_share", "overhead_share", "counts", "rates", "phases", "spans",
    "processes", "drift", "findings", "warnings", "verdict", "lines", "functions", "kinds",
}  # fmt: skip
LINE_KEYS = {"file", "line", "function", "source", "phase", "kind", "callee", "share", "per_env_step", "per_update"}
SPAN_KEYS = {
    "name", "phase", "group", "calls", "total_s", "self_s", "mean_s", "min_s", "max_s", "p50_s", "p95_s",
    "cpu_memory_bytes", "cpu_peak_bytes", "gpu_memory_bytes", "score",
}  # fmt: skip
FINDING_KEYS = {
    "rule", "title", "phase", "span", "file", "line", "share", "gain", "gain_low", "gain_high", "score",
    "evidence", "advice", "kind", "function", "expression", "callee", "time_kind",
}  # fmt: skip


def make_finding(**changes) -> Finding:
    fields = {
        "rule": "list_batch",
        "title": "Batches are built from a list",
        "phase": Phase.SAMPLE,
        "span": "ReplayBuffer.sample",
        "file": "dqn.py",
        "line": 12,
        "share": 0.6,
        "gain": 2.0,
        "gain_low": 1.7,
        "gain_high": 2.4,
        "score": 0.69,
        "evidence": ("1.2 GB/s of 8 GB/s",),
        "advice": "Keep one array:\n\n    frames = np.zeros(n, np.uint8)\n\nand gather.",
    }
    return Finding(**(fields | changes))


@pytest.fixture
def trace():
    sample = place("ReplayBuffer.sample", Phase.SAMPLE, 6.0, 100, cpu_memory_bytes=5 << 20)
    train = place("DQN.train", Phase.OTHER, 0.5, 100, [sample, place("tiny", Phase.LOG, 0.01, 5)])
    worker = make_process(
        [make_thread([place("Queue.put", Phase.WAIT, 3.0, 30)])],
        pid=77,
        main=False,
        warnings=("lost a window",),
    )
    return make_trace(
        [
            train,
            gap("(DQN.train → ·)", Phase.STORE, 1.0),
            *(place(f"s{i}", Phase.ENV, 0.06) for i in range(5)),
        ],
        samples=[
            seen(
                "DQN.train/ReplayBuffer.sample",
                [frame("array", own=False), frame("sample", "dqn.py", 12)],
                5.0,
            ),
            seen("DQN.train/ReplayBuffer.sample", [frame("sample", "dqn.py", 12)], 1.0),
        ],
        counts={"env_steps": 800, "updates": 100, "episodes": 4},
        unattributed_s=0.2,
        threads=[make_thread([place("Queue.get", Phase.WAIT, 8.0, 3)], name="feeder", main=False)],
        others=[worker],
        warnings=("the clock jumped",),
    )


def test_json_keeps_the_contract(trace):
    content = plain_json.loads(json.dumps(json.as_dict(view.build(trace, [make_finding()]))))
    assert set(content) >= CONTRACT
    assert set(content["counts"]) == {"env_steps", "frames", "updates", "episodes", "steps_per_episode"}
    assert {"env_steps_per_s", "frames_per_s", "updates_per_s", "episodes_per_s"} <= set(content["rates"])
    assert all(set(row) == {"phase", "group", "self_s", "share", "calls"} for row in content["phases"])
    assert all(set(row) == SPAN_KEYS for row in content["spans"])
    assert all(set(row) == FINDING_KEYS for row in content["findings"])
    assert content["findings"][0]["phase"] == "sample"
    assert set(content["verdict"]) >= {"text", "limit", "file", "line", "next_change", "gain"}
    assert all(set(row) >= LINE_KEYS for row in content["lines"])
    assert sum(row["share"] for row in content["phases"]) == pytest.approx(1.0)
    assert content["rates"]["env_steps_per_s"] == pytest.approx(800 / content["wall_s"], rel=0.02)
    assert content["rates"]["env_steps_per_s_mean"] == pytest.approx(800 / content["wall_s"])


def test_processes_have_a_table_for_each_other_thread_and_process(trace):
    content = json.as_dict(view.build(trace, []))
    tables = {(p["pid"], t["name"]): t for p in content["processes"] for t in p["threads"]}
    assert set(tables) == {(100, "feeder"), (77, "MainThread")}
    assert tables[77, "MainThread"]["phases"][0]["phase"] == "wait"
    assert tables[77, "MainThread"]["spans"][0]["name"] == "Queue.put"


def test_detailed_has_tree_lines_and_windows(trace):
    content = plain_json.loads(json.dumps(json.detailed(view.build(trace, []), trace)))
    assert {row["name"] for row in content["tree"]} >= {"DQN.train", "tiny", "s4", "own code"}
    hottest = content["lines"]
    assert len(hottest) == 1, "the library's frame belongs to the line that called it"
    assert (hottest[0]["file"], hottest[0]["line"]) == ("dqn.py", 12)
    assert hottest[0]["share"] == pytest.approx(1.0)
    assert sum(window["counts"]["env_steps"] for window in content["windows"]) == 800


def test_small_branches_of_the_tree_share_a_row(trace):
    rows = view.build(trace, []).tree
    assert [row.name for row in rows if row.depth == 0] == [
        "DQN.train", "(DQN.train → ·)", "5 smaller", "own code",
    ]  # fmt: skip
    rest = next(row for row in rows if row.kind == "rest")
    assert rest.total_s == pytest.approx(0.3)
    assert "tiny" not in {row.name for row in rows}


def test_warnings_of_all_processes_are_shown_once(trace):
    assert view.build(trace, []).warnings == ("the clock jumped", "process 77 (worker-77): lost a window")


def test_text_shows_phases_tree_findings_and_warnings(trace):
    shown = text.as_text(view.build(trace, [make_finding()]))
    expected = (
        "ReplayBuffer.sample", "2.00×", "1.70 to 2.40", "dqn.py:12", "1.2 GB/s of 8 GB/s", "and gather.",
        "frames = np.zeros(n, np.uint8)", "the clock jumped", "800 in all", "feeder",
    )  # fmt: skip
    for part in expected:
        assert part in shown, part
    assert "\x1b" not in shown
    assert max(map(len, shown.splitlines())) <= text.WIDTH
    assert "No known cause" not in shown


def test_the_hot_lines_are_shown(trace):
    shown = text.as_text(view.build(trace, []))
    assert "No known cause found." in shown and "dqn.py:12" in shown


def test_a_loop_without_steps_gets_a_question_instead_of_praise():
    shown = text.as_text(view.build(make_trace([place("a", Phase.OTHER, 1.0)]), []))
    assert "no environment steps either" in shown
    assert "none of the causes" not in shown


def test_names_from_the_user_are_never_markup():
    trace = make_trace([place("[red]odd[/nonsense]", Phase.ENV, 1.0)], warnings=("[/bad]",))
    shown = text.as_text(view.build(trace, [make_finding(title="[bold]x", evidence=("[/y]",), advice="[z]")]))
    for part in ("[red]odd[/nonsense]", "[/bad]", "[bold]x", "[/y]", "[z]"):
        assert part in shown


@pytest.mark.parametrize("state", ["running", "killed"])
def test_a_run_that_did_not_finish_says_so(state):
    trace = make_trace([place("a", Phase.ENV, 1.0)], state=state)
    assert {"running": "still going", "killed": "was killed"}[state] in text.as_text(view.build(trace, []))


def test_an_empty_run_is_reported_in_every_form(tmp_path):
    trace = make_trace([])
    report = view.build(trace, [])
    assert "The run is empty" in text.as_text(report)
    assert plain_json.loads(json.dumps(json.detailed(report, trace)))["spans"] == []
    charts.write(report, tmp_path / "empty.png")
    assert "no environment step" in progress_summary.periodic(trace)


def test_charts_are_written_as_png(tmp_path, trace):
    from PIL import Image

    file = tmp_path / "charts.png"
    charts.write(view.build(trace, []), file)
    with Image.open(file) as image:
        assert image.width > 1500 and image.height > 800
        colours = {colour for _, colour in image.convert("RGB").getcolors(1 << 20)}
    wanted = palette.colour("sample")
    assert tuple(bytes.fromhex(wanted[1:])) in colours


def test_charts_take_names_with_dollars(tmp_path):
    trace = make_trace([place("$x^{$", Phase.ENV, 1.0, 5)])
    charts.write(view.build(trace, []), tmp_path / "c.png")
    assert (tmp_path / "c.png").stat().st_size > 1000


def test_periodic_summary_is_five_to_eight_lines(trace):
    lines = progress_summary.periodic(trace).splitlines()
    assert 5 <= len(lines) <= 8
    assert "env steps/s" in lines[1]
    assert "sample" in lines[2]
    assert "memory" in lines[-1]


def test_every_phase_has_a_unique_colour():
    assert set(palette.PHASE_COLOURS) == set(Phase)
    assert len(set(palette.PHASE_COLOURS.values())) == len(palette.PHASE_COLOURS)
    assert set(palette.GROUP_ORDER) == set(GROUPS.values())


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0 s"), (4.5e-8, "45 ns"), (1.234e-6, "1.23 µs"), (0.0123, "12.3 ms"), (0.9999, "1.00 s"),
     (59.96, "60.0 s"), (125, "2 min 05 s"), (3900, "1 h 05 min")],
)  # fmt: skip
def test_seconds(value, shown):
    assert numbers.seconds(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"), [(0, "0 B"), (999, "999 B"), (1500, "1.50 kB"), (-2e6, "-2.00 MB"), (3.4e8, "340 MB")]
)
def test_sizes(value, shown):
    assert numbers.size(value) == shown


@pytest.mark.parametrize(
    ("ns", "shown"), [(0, "0 s"), (45, "45 ns"), (3e6, "3 ms"), (2.46e7, "24.6 ms"), (999_700, "1 ms"), (1e8, "100 ms")]
)
def test_durations_in_sentences(ns, shown):
    assert numbers.duration(ns) == shown


@pytest.mark.parametrize(
    ("shares", "shown"),
    [
        ([], []),
        ([0.335, 0.335, 0.33], [34, 33, 33]),
        ([0.495, 0.505], [50, 50]),
        ([0.004] * 5, [1, 1, 0, 0, 0]),
        ([0.125] * 8, [13, 13, 13, 13, 12, 12, 12, 12]),
    ],
)
def test_whole_percents_keep_the_sum_of_the_shares(shares, shown):
    assert numbers.percents(shares) == shown


def test_a_resumed_run_shows_its_own_count_and_the_total(trace):
    resumed = dataclasses.replace(trace, counts_before={"env_steps": 5_000, "updates": 10})
    here, before = summary.counts(trace).env_steps, 5_000
    told = f"{here:,} in this run, {here + before:,} in all"
    assert told in text.as_text(view.build(resumed, [])) and told in progress_summary.periodic(resumed)
    assert told not in text.as_text(view.build(trace, []))
    assert json.as_dict(view.build(resumed, []))["counts_total"]["env_steps"] == here + before
