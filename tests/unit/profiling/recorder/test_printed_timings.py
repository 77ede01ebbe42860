"""Timings that a script prints: how they are read from text, kept, and held against the machine."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

pytest.importorskip("torch")

import torch
from tests.traces import frame, make_thread, make_trace, place, seen
from torch import nn

from hotloop.phases import Phase
from hotloop.profiling.diagnosis import explain
from hotloop.profiling.diagnosis.printed_timings import layer_of, wholes
from hotloop.profiling.recorder.hooks import install
from hotloop.profiling.recorder.hooks.state import HookState
from hotloop.profiling.recorder.printed_timings import collect as claims_module
from hotloop.profiling.recorder.printed_timings.collect import (
    MOST_NAMES,
    Book,
    _is_since_start,
)
from hotloop.profiling.recorder.printed_timings.listen import PrintedText
from hotloop.profiling.recorder.printed_timings.parse import HINT, read_line
from hotloop.profiling.trace.printed_timings import Claim, Claims, LayerWork
from hotloop.profiling.trace.reading.run_files import read_claims
from hotloop.spans import registry

torch.set_num_threads(1)
PLACE = ("train.py", 7, "report")


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("conv1: 0.05 ms", [("conv1", 50_000)]),
        ("  ├─ conv1:           0.05 ms", [("conv1", 50_000)]),
        ("conv1:0.05ms", [("conv1", 50_000)]),
        ("Sample batch: ~20.1ms", [("Sample batch", 20_100_000)]),
        ("update took 0.045 s", [("update", 45_000_000)]),
        ("Total SAC update = 45 ms", [("Total SAC update", 45_000_000)]),
        ("Critic 1 forward:  5.98 ms", [("Critic 1 forward", 5_980_000)]),
        ("fc: 1,234.5 us", [("fc", 1_234_500)]),
        ("[Timer] update: 3 µs", [("update", 3_000)]),
        ("conv1: 0.05 ± 0.01 ms", [("conv1", 50_000)]),
        ("├─ 20ms: Sample batch (selection)", [("Sample batch", 20_000_000)]),
        ("sample 2 ms, update 3.5 ms | total 6 ms", [("sample", 2e6), ("update", 3.5e6), ("total", 6e6)]),
        ("loss=0.3 sample=20ms learn=25ms", [("sample", 20e6), ("learn", 25e6)]),
        ("loss: 0.3 sample: 20 ms", [("sample", 20e6)]),
        ("episode 112 took 3 seconds", [("episode #", 3e9)]),
    ],
)
def test_timings_are_found_in_a_line(line, found):
    assert HINT.search(line)
    assert [(each.name, pytest.approx(each.ns)) for each in read_line(line).timings] == found


@pytest.mark.parametrize(
    "line",
    [
        " 45%|████▌     | 450/1000 [00:03<00:04, 123.45it/s]",
        " 10%|█ | 1/10 [00:01<00:09,  1.02s/it, loss=0.3]",
        "env: 12 ms/step",
        "env: 12 ms per step",
        "elapsed 3m 12s",
        "12 samples",
        "return 3.5",
        "3.2 s",
        "x: 0,05 ms",
    ],
)
def test_rates_clocks_and_plain_numbers_are_no_timings(line):
    assert read_line(line).timings == ()


@pytest.mark.parametrize(
    ("line", "rounding"), [("a 0.04 ms", 5_000), ("a 45 ms", 500_000), ("a 0.045 s", 500_000), ("a 1.5e-3 s", 50_000)]
)
def test_the_digits_tell_how_exact_a_timing_is(line, rounding):
    assert read_line(line).timings[0].rounding_ns == pytest.approx(rounding)


def told(*texts: str) -> dict[tuple[str, ...], dict]:
    book = Book()
    printed = PrintedText(book.receive)
    for text in texts:
        if printed.wants(text):
            printed.send(1, text, PLACE)
    content = book.content()
    assert content is not None
    assert content["failed"] == ""
    return {row["path"]: row for row in content["claims"]}


def test_indented_lines_are_parts_of_the_line_above():
    found = told("Critic 1: 6 ms", "  ├─ conv1: 1 ms", "  └─ fc: 2 ms", "Critic 2: 7 ms", "  ├─ conv1: 3 ms")
    assert {path: row["last_ns"] for path, row in found.items()} == {
        ("Critic 1",): 6e6,
        ("Critic 1", "conv1"): 1e6,
        ("Critic 1", "fc"): 2e6,
        ("Critic 2",): 7e6,
        ("Critic 2", "conv1"): 3e6,
    }
    assert (found["Critic 1",]["file"], found["Critic 1",]["line"], found["Critic 1",]["function"]) == PLACE


def test_a_heading_without_a_time_ends_what_was_above_it():
    found = told("Total: 45 ms", "Critic layers", "  conv1: 1 ms\n  conv2: 2 ms")
    assert set(found) == {("Total",), ("Critic layers", "conv1"), ("Critic layers", "conv2")}


def test_a_total_has_what_was_printed_before_it():
    found = told(*["sample: 2 ms, learn: 3 ms", "total: 6 ms"] * 3)
    assert found["total",]["beside"] == (("sample",), ("learn",))
    assert (found["total",]["count"], found["sample",]["count"]) == (3, 3)


def test_the_median_counts_and_time_since_the_start_is_known():
    found = told("a: 1 ms", "a: 900 ms", "a: 3 ms", "since: 1 s", "since: 2 s", "since: 3 s")
    row = found["a",]
    assert (row["median_ns"], row["mean_ns"], row["last_ns"], row["rising"]) == (3e6, 904e6 / 3, 3e6, False)
    assert found["since",]["rising"]


def test_names_are_bounded_and_lines_of_two_threads_do_not_mix():
    found = told("\n".join(f"name{chr(97 + i % 26)}{i}: 1 ms" for i in range(2 * MOST_NAMES))[:4000])
    assert 0 < len(found) <= MOST_NAMES
    book = Book()
    for i in range(10 * MOST_NAMES):
        PrintedText(book.receive).send(1, f"n{i}: 1 ms", PLACE)
        book.content()
    assert len(book.claims) == MOST_NAMES
    book = Book()
    for thread, text in ((1, "Critic: 6 ms"), (2, "  a: 1 ms"), (1, "  b: 1 ms")):
        PrintedText(book.receive).send(thread, text, PLACE)
    book.content()
    assert set(book.claims) == {("Critic",), ("a",), ("Critic", "b")}


def test_a_reader_that_fails_is_told_and_stops_nothing(monkeypatch):
    def fail(line):
        raise RecursionError("too deep")

    monkeypatch.setattr(claims_module, "read_line", fail)
    book = Book()
    PrintedText(book.receive).send(1, "a: 1 ms", PLACE)
    content = book.content()
    assert content is not None
    assert (content["claims"], content["failed"]) == ([], "RecursionError: too deep")


def test_nothing_new_is_not_written_again():
    book = Book()
    PrintedText(book.receive).send(1, "a: 1 ms", PLACE)
    assert book.content() is not None
    assert book.content() is None


@pytest.fixture
def hooked() -> Iterator[Book]:
    state, book = HookState(), Book()
    state.recorder = book.receive
    uninstall = install(state)
    registry.listen()
    yield book
    registry.hush()
    uninstall()


class Loud:
    """Must not be turned into text but by the script itself."""

    def __init__(self) -> None:
        self.shown = 0

    def __str__(self) -> str:
        self.shown += 1
        return "12 ms"


def test_print_and_logging_are_heard_and_their_output_stays(hooked, capsys):
    loud, logger, logged = Loud(), logging.getLogger("heard"), io.StringIO()
    logger.handlers, logger.propagate, logger.level = [logging.StreamHandler(logged)], False, logging.INFO
    line = sys._getframe().f_lineno + 1
    print("conv1:", 0.25, "ms", sep="  ")
    print("loud", loud)
    print("a", "b: 3 ms", sep="-", end="!\n")
    print()
    logger.info("update took %.2f ms", 1.5)
    logger.info("loud %s", loud)
    assert capsys.readouterr().out == "conv1:  0.25  ms\nloud 12 ms\na-b: 3 ms!\n\n"
    assert logged.getvalue() == "update took 1.50 ms\nloud 12 ms\n"
    assert loud.shown == 2
    content = hooked.content()
    rows = {row["path"]: row for row in content["claims"]}
    assert {path: row["last_ns"] for path, row in rows.items()} == {
        ("conv1",): 250_000,
        ("a-b",): 3e6,
        ("update",): 1.5e6,
    }
    where = rows["conv1",]
    assert (where["file"], where["line"]) == (__file__, line)
    assert where["function"] == "test_print_and_logging_are_heard_and_their_output_stays"


def test_a_message_that_does_not_fit_is_left_to_logging(hooked):
    logger = logging.getLogger("misfit")
    logger.handlers, logger.propagate = [logging.NullHandler()], False
    logger.warning("took %d ms", "many")
    logger.warning("took %(a)s ms", {"a": 3})
    assert hooked.content() is None or hooked.claims == {}


class TwoHeadedCritic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, kernel_size=3)
        self.fc1 = nn.Linear(8 * 64, 5)

    def forward(self, x):
        return self.fc1(self.conv1(x).flatten(1))


def test_layers_are_kept_by_name_with_the_arithmetic_of_their_smallest_call(hooked):
    net = TwoHeadedCritic()
    with torch.no_grad():
        net(torch.zeros(4, 3, 10, 10))
        net(torch.zeros(2, 3, 10, 10))
        net(torch.zeros(3, 3, 10, 10))
        net.conv1(torch.zeros(7, 3, 10, 10))
    rows = {(row["span"], row["name"]): row for row in hooked.content()["layers"] if row["module"] == "TwoHeadedCritic"}
    conv = 2 * (8 * 8 * 8) * (3 * 9)
    assert {key: (row["flops"], row["convolution"]) for key, row in rows.items()} == {
        ("TwoHeadedCritic", "conv1"): (2 * conv, True),
        ("TwoHeadedCritic", "fc1"): (2 * 2 * 5 * 512, False),
        ("Conv2d", "conv1"): (7 * conv, True),
    }


@pytest.mark.parametrize(
    ("values", "since_start"),
    [
        ([1.0, 2.0, 3.0, 4.1], True),
        ([100.0, 101.0, 102.1], True),
        ([1.0, 5.0, 6.0], True),
        ([1.30, 1.31, 1.42, 1.43], False),
        ([1.0, 2.0], False),
        ([3.0, 2.0, 9.0], False),
    ],
)
def test_time_since_a_start_is_told_from_times_that_rise_by_chance(values, since_start):
    assert _is_since_start(values) is since_start


def claim(path, ms, unit="ms", count=5, rising=False, beside=(), rounding_ms=0.0):
    path = tuple(path.split("/"))
    ns = ms * 1e6
    beside = tuple((name,) for name in beside)
    return Claim(path, unit, count, ns, ns, ns, rounding_ms * 1e6, rising, beside, "sac.py", 165, "report")


LAYERS = (
    LayerWork("VisualActor", "VisualActor", "conv1", True, 9_000_000),
    LayerWork("VisualCritic", "VisualCritic", "conv1", True, 2_000_000_000),
    LayerWork("VisualCritic", "VisualCritic", "body.fc1", False, 1_000_000_000),
    LayerWork("VisualCritic", "VisualCritic", "mean", False, 1_000_000),
)


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("Critic 1 forward/conv1", ("VisualCritic", "conv1")),
        ("conv1", ("VisualActor", "conv1")),
        ("visualcritic conv1 forward", ("VisualCritic", "conv1")),
        ("critic.conv1", ("VisualCritic", "conv1")),
        ("fc1", ("VisualCritic", "body.fc1")),
        ("body.fc1 time", ("VisualCritic", "body.fc1")),
        ("conv1 backward", None),
        ("all of conv1", None),
        ("mean step", None),
        ("conv", None),
        ("forward", None),
    ],
)
def test_which_layer_a_printed_name_means(path, found):
    layer = layer_of(claim(path, 1.0), LAYERS)
    assert (layer and (layer.module, layer.name)) == found


def printing(*claims, layers=LAYERS, gpu=None, sample_s=2.0):
    """10 s; 100 updates whose networks take 5 s forward and 3 s backward, printed by one function."""
    flops = {"flops": 400_000_000_000}
    report = frame("report", "sac.py", 165, "print(...)")
    trace = make_trace(
        [
            place("VisualCritic", Phase.FORWARD, 7.0 - sample_s, 100, counts=flops),
            place("backward", Phase.BACKWARD, 3.0, 100),
            place("Replay.sample", Phase.SAMPLE, sample_s, 100),
        ],
        [seen("VisualCritic", [report, frame("update", "sac.py", 90, "report()")], 5.0)],
        {"env_steps": 100, "updates": 100, "flops": 400_000_000_000, "cpu_ns": 10**10},
        {"peak_flops": 1e11, "gpu": gpu},
    )
    return replace(trace, claimed=Claims(tuple(claims), layers))


def found_in(trace, rule):
    return [each for each in explain(trace) if each.rule == rule]


def test_a_printed_time_too_short_for_its_layer_is_impossible():
    (finding,) = found_in(printing(claim("Critic 1 forward/conv1", 0.05)), "impossible_timing")
    assert (finding.file, finding.line, finding.span, finding.gain) == ("sac.py", 165, "conv1", 1.0)
    assert finding.title == "Timings that the script prints are impossible on this machine: conv1."
    assert finding.evidence[1:] == (
        "Critic 1 forward / conv1 is printed as 50 µs: its 2 GFLOP in that time would be 40 TFLOP/s; "
        "this machine's measured peak is 100 GFLOP/s, so it takes at least 20 ms",
        # Two thirds of the 5 s and of the 3 s, and of the 400 GFLOP.
        "convolutions: 2.67 GFLOP an update, 53 % of the time, forward and backward; sampling is 20 %: "
        "on this CPU the convolutions dominate",
    )
    assert "synchronize" in finding.advice


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(printing(), id="nothing printed"),
        pytest.param(printing(claim("Critic 1 forward/conv1", 25.0)), id="sensible"),
        pytest.param(printing(claim("Critic 1 forward/conv1", 5.1)), id="within the margin"),
        pytest.param(printing(claim("Critic 1 forward/conv1", 0.05), gpu="some GPU"), id="a GPU's peak is not known"),
        pytest.param(printing(claim("Critic/mean", 0.0, rounding_ms=0.005)), id="rounded to nothing"),
        pytest.param(printing(claim("# steps", 0.001)), id="no layer"),
        pytest.param(printing(claim("Critic 1 forward/conv1", 0.05), layers=()), id="layers unknown"),
    ],
)
def test_possible_printed_times_are_left_alone(trace):
    assert found_in(trace, "impossible_timing") == []


TREE = [
    claim("Critic 1 forward", 5.98),
    claim("Critic 1 forward/conv1", 0.05),
    claim("Critic 1 forward/conv2", 0.05),
    claim("Critic 1 forward/FC layers", 0.0, rounding_ms=0.005),
]


def test_printed_parts_that_are_far_less_than_their_whole_are_told():
    (finding,) = found_in(printing(*TREE, layers=()), "parts_do_not_sum")
    assert finding.title == "The parts that the script prints do not sum to the whole: Critic 1 forward."
    assert (finding.file, finding.line, finding.gain) == ("sac.py", 165, 1.0)
    assert finding.evidence[1:] == (
        "Critic 1 forward is printed as 5.98 ms, its parts (conv1 50 µs, conv2 50 µs, FC layers under 5 µs) "
        "sum to 105 µs, 1.8 % of it: 5.88 ms are missing",
    )


def test_a_machine_that_hesitates_anywhere_changes_no_sum():
    # Printed three times, and each time another part took 10 ms longer: the medians of the parts do not show it.
    whole = replace(claim("f", 11.0), mean_ns=11e6)
    parts = [replace(claim(f"f/{name}", 0.3), mean_ns=0.3e6 + 10e6 / 3) for name in ("a", "b", "c")]
    assert found_in(printing(whole, *parts), "parts_do_not_sum") == []


def test_a_total_is_held_against_what_is_printed_with_it():
    flat = [claim("sample", 10.0), claim("learn", 10.0), claim("total", 45.0, beside=("sample", "learn"))]
    (finding,) = found_in(printing(*flat), "parts_do_not_sum")
    assert (
        "total is printed as 45 ms, its parts (sample 10 ms, learn 10 ms) sum to 20 ms, 44 % of it"
        in (finding.evidence[1])
    )


@pytest.mark.parametrize(
    "claims",
    [
        pytest.param([claim("update", 45.0), claim("update/a", 20.0), claim("update/b", 10.0)], id="most of it"),
        pytest.param([claim("update", 45.0), claim("update/a", 1.0)], id="one part is no division"),
        pytest.param([replace(each, count=2) for each in TREE], id="printed once or twice"),
        pytest.param([replace(TREE[0], rising=True), *TREE[1:]], id="time since the start"),
        pytest.param([replace(TREE[0], unit="s"), *TREE[1:]], id="calls of a long loop"),
        pytest.param([*TREE, claim("Critic 1 forward/mean conv", 0.01)], id="statistics"),
        pytest.param([claim("a", 1.0), claim("b", 1.0), claim("c", 99.0)], id="beside each other"),
    ],
)
def test_printed_parts_that_are_none_or_sum_are_left_alone(claims):
    assert found_in(printing(*claims, layers=()), "parts_do_not_sum") == []


def test_parts_of_another_whole_are_not_mixed():
    found = wholes([*TREE, claim("Critic 2 forward", 6.0), claim("Critic 2 forward/conv1", 1.0)])
    assert [(each.claim.name, len(each.parts)) for each in found] == [("Critic 1 forward", 3)]


def batches(layers, **changes):
    line = frame("sample", "dqn.py", 30, "states = torch.FloatTensor(np.array(states))")
    trace = make_trace(
        [
            place("Replay.sample", Phase.SAMPLE, 2.0, 100),
            place("VisualCritic", Phase.FORWARD, 8.0, 100, counts={"flops": 10**11}),
        ],
        [seen("Replay.sample", [line], 2.0)],
        {"env_steps": 100, "updates": 100, "flops": 10**11, "cpu_ns": 10**10},
        changes,
    )
    return found_in(replace(trace, claimed=Claims((), layers)), "list_batch")[0].evidence[-1]


def test_a_list_batch_says_when_convolutions_are_the_larger_part():
    conv = LayerWork("VisualCritic", "VisualCritic", "conv1", True, 3)
    fc = LayerWork("VisualCritic", "VisualCritic", "fc", False, 1)
    assert batches((conv, fc)) == (
        "convolutions: 750 MFLOP an update, 60 % of the time, forward and backward; sampling is 20 %: "
        "on this CPU the convolutions dominate"
    )
    assert "larger part" in batches((conv, replace(fc, flops=3)))
    assert batches((fc,)).startswith("hottest lines")
    assert batches((conv, replace(fc, flops=30))).startswith("hottest lines")
    assert batches((conv, fc), gpu="some GPU").startswith("hottest lines")


def test_layers_that_ran_in_another_thread_count():
    conv = LayerWork("Conv2d", "VisualCritic", "conv1", True, 3)
    worker = make_thread([place("Conv2d", Phase.FORWARD, 6.0, 100, counts={"flops": 10**11})], name="w", main=False)
    trace = printing(claim("Critic/conv1", 0.0), layers=(conv, *LAYERS))
    main = replace(trace.main, threads=(trace.thread, worker))
    told_of = found_in(replace(trace, processes=(main,)), "impossible_timing")[0].evidence[-1]
    # 6 s and two thirds of 5 s; of the 3 s backward 1/5 + 2/3 * 4/5.
    assert ", 115 % of the time" in told_of


def test_a_run_without_claims_has_none_and_one_with_them_is_read(tmp_path):
    assert read_claims(tmp_path) == (Claims(), [])
    (tmp_path / "1").mkdir()
    book = Book()
    PrintedText(book.receive).send(1, "Critic: 2 ms\n  conv1: 1 ms", PLACE)
    (tmp_path / "1" / "claims.json").write_text(json.dumps(book.content() | {"layers": []}))
    found, damage = read_claims(tmp_path)
    assert damage == []
    assert [(each.path, each.median_ns, each.count) for each in found.claims] == [
        (("Critic",), 2e6, 1),
        (("Critic", "conv1"), 1e6, 1),
    ]
    assert found.claims[0].most_ns == 2.5e6
