"""Hotspots are told where a change would be made, and only where no cause is known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.traces import gap, make_trace, place, seen

from hotloop.phases import Phase
from hotloop.profiling.diagnosis import Finding, explain
from hotloop.profiling.trace.model import Frame, Sample, Trace
from hotloop.profiling.trace.source_text import SourceText, digest_of

FILE = "/me/train.py"
SOURCE = """\
def near(a, b):
    return abs(a - b)

def closest(points):
    best = None
    for p in points:
        for q in points:
            best = near(p, q)
    return best

def scan(board):
    for row in board:
        if all(row):
            return True
    return False

def play(board):
    while board:
        board = move(board)
        scan(board)

def main():
    while True:
        obs = env.step(0)
        x = closest(obs)
        total = bonus(x)
        agent.learn(x)
        play(x)

def bonus(x):
    return slow(x)
"""


def at(line: int, function: str, first_line: int, operation: str = "CALL") -> Frame:
    text = SOURCE.split("\n")[line - 1].strip()
    return Frame(function, FILE, line, text, True, operation=operation, first_line=first_line)


MAIN = {"env": at(24, "main", 22), "closest": at(25, "main", 22), "bonus": at(26, "main", 22)}
MAIN |= {"learn": at(27, "main", 22), "play": at(28, "main", 22)}


def trace_of(*samples: tuple[list[Frame], float], env: float = 1.0, learn: float = 1.0) -> Trace:
    own = sum(seconds for _, seconds in samples)
    name = "(Env.step → backward)"
    nodes = [
        place("Env.step", Phase.ENV, env, 100),
        gap(name, Phase.OWN, own),
        place("backward", Phase.BACKWARD, learn, 100),
    ]
    all_seen = [seen(name, *sample) for sample in samples]
    all_seen += [seen("Env.step", [MAIN["env"]], env), seen("backward", [MAIN["learn"]], learn)]
    trace = make_trace(nodes, all_seen, {"env_steps": 100, "updates": 100})
    return replace(trace, sources={FILE: SourceText(FILE, digest_of(SOURCE), tuple(SOURCE.split("\n")))})


def hotspots(trace: Trace) -> list[Finding]:
    return [each for each in explain(trace) if each.kind == "hotspot"]


def test_a_small_function_that_a_loop_calls_is_told_with_its_loop():
    tiny = [at(2, "near", 1, "BINARY_OP"), at(8, "closest", 4), MAIN["closest"]]
    loop = [at(8, "closest", 4, "LOAD_FAST"), MAIN["closest"]]
    (found,) = hotspots(trace_of((tiny, 1.0), (loop, 1.0)))
    assert (found.file, found.line) == (FILE, 8)
    assert found.title.startswith("50 % of the time goes to lines 6 to 8 of closest")
    assert found.share == pytest.approx(0.5)


def test_a_hotspot_has_an_upper_bound_and_no_lower_one():
    (found,) = hotspots(trace_of(([at(31, "bonus", 30), MAIN["bonus"]], 2.0)))
    assert (found.line, found.gain_low) == (31, 1.0)
    assert found.gain == found.gain_high >= 2.0
    assert "at most" in str(found)


def test_the_loop_of_a_function_that_takes_most_of_an_outer_loop_is_told():
    inner = [at(13, "scan", 11), at(20, "play", 17), MAIN["play"]]
    outer = [at(19, "play", 17), MAIN["play"]]
    first, second = hotspots(trace_of((inner, 3.0), (outer, 1.0)))
    assert (first.line, second.line) == (13, 19)


def test_the_loop_of_training_and_networks_are_no_hotspots():
    assert hotspots(trace_of(([MAIN["closest"]], 0.05), env=3.0, learn=5.0)) == []


def test_time_without_spans_is_not_all_put_down_to_the_main_loop():
    """Regression: in tabular learning without any span, the loop of training itself was told."""
    stack = [at(31, "bonus", 30), MAIN["bonus"]]
    other = [at(13, "scan", 11), at(20, "play", 17), MAIN["play"]]
    trace = make_trace([gap("(a → b)", Phase.OWN, 4.0)], [seen("(a → b)", stack, 3.0), seen("(a → b)", other, 1.0)])
    trace = replace(trace, sources={FILE: SourceText(FILE, digest_of(SOURCE), tuple(SOURCE.split("\n")))})
    assert [found.line for found in hotspots(trace)] == [31, 13]


def test_samples_without_a_stack_are_no_hotspot():
    trace = trace_of(([at(31, "bonus", 30), MAIN["bonus"]], 1.0))
    bare = replace(trace.thread, samples=tuple(replace(each, stack=()) for each in trace.thread.samples))
    process = replace(trace.main, threads=(bare,))
    assert hotspots(replace(trace, processes=(process,))) == []
    assert isinstance(bare.samples[0], Sample)


def test_pipelines_that_come_with_hotloop_are_not_the_users_to_change():
    """Regression: `make demo` blamed the compiled update of its own pipeline."""
    file = "/x/site-packages/hotloop/training/learn/kernel.py"
    frame = Frame("update", file, 8, "update_many(rows)", True, operation="CALL", first_line=1)
    trace = make_trace([place("learn.update", Phase.OPTIMISE, 4.0, 10)], [seen("learn.update", [frame], 4.0)])
    assert hotspots(trace) == []
