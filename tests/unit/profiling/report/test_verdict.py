"""The verdict: one sentence each on throughput, what limits it, and the next change."""

from __future__ import annotations

from tests.unit.profiling.report.test_view import make_finding

from hotloop.profiling.report.verdict import make_verdict
from hotloop.profiling.trace.hot_lines import HotLine
from hotloop.profiling.trace.summary import Counts, Rate

RATES = {f"{name}_per_s": Rate(100, 100, 90, 110, 100) for name in ("env_steps", "frames", "updates", "episodes")}
LINE = HotLine(
    "/a/train.py", 7, "play", "rank(moves)", "own code", "native", "sorted", "", (), 0.75, None, None, True, 9
)


def counts(env_steps: int = 10, updates: int = 0) -> Counts:
    return Counts(env_steps, env_steps, updates, 0, None)


def test_a_known_cause_is_named_with_its_gain():
    finding = make_finding(advice="Keep one array and gather. It is faster.\n    x = y")
    verdict = make_verdict(10.0, counts(updates=5), RATES, [finding], [LINE])
    assert verdict.throughput == "100 env steps/s and 100 updates/s, over 10.0 s."
    assert (verdict.file, verdict.line, verdict.gain) == (finding.file, finding.line, finding.gain)
    assert verdict.next_change == "Keep one array and gather. Expect 2.00× (1.70 to 2.40)."
    assert verdict.text == f"{verdict.throughput} {verdict.limit} {verdict.next_change}"


def test_without_a_cause_the_hottest_line_is_named_with_a_bound():
    verdict = make_verdict(10.0, counts(), RATES, [], [LINE])
    assert verdict.limit == "75.0 % of the time is one line: rank(moves) (train.py:7 in play, native call)."
    assert verdict.text.endswith("at most 4.0× as fast.")
    assert (verdict.next_change, verdict.gain) == (None, None)


def test_findings_without_a_gain_are_no_limit():
    verdict = make_verdict(10.0, counts(), RATES, [make_finding(gain=1.0)], [LINE])
    assert verdict.line == 7


def test_nothing_counted_and_nothing_sampled():
    verdict = make_verdict(10.0, counts(0), RATES, [], [])
    assert verdict.text == "No environment steps or updates were counted in 10.0 s. No line was sampled."
