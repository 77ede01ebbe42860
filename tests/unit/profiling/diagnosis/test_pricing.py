"""How causes become findings: Amdahl's numbers exact, no moment claimed twice, best first."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from tests.traces import frame, make_process, make_thread, make_trace, place, seen

from hotloop.phases import Phase
from hotloop.profiling.diagnosis import explain
from hotloop.profiling.diagnosis.finding import Cause, Finding, Residual, amdahl, clamped
from hotloop.profiling.diagnosis.pricing import LESS, MORE, cold_share, share_error
from hotloop.profiling.diagnosis.ranking import ranked, settle
from hotloop.profiling.diagnosis.time_slices import Loop, study


def settled(loop: Loop, causes: list[Cause]) -> list[Finding]:
    """The findings, best first."""
    return ranked(settle(loop, causes)[0])


def a_loop():
    """10 s: sample 6 s (4 s on one line, 2 s on another), env 3 s, unattributed 1 s."""
    first = frame("sample", "replay.py", 10, "a = np.array(states)")
    second = frame("sample", "replay.py", 11, "b = list(dones)")
    return study(
        make_trace(
            [
                place("Replay.sample", Phase.SAMPLE, 6.0, 100),
                place("Env.step", Phase.ENV, 3.0, 100),
            ],
            [seen("Replay.sample", [first], 4.0), seen("Replay.sample", [second], 2.0)],
            {"env_steps": 100},
            unattributed_s=1.0,
        )
    )


def a_cause(loop, wanted, residual=0.0, **fields):
    atoms = frozenset(atom.index for atom in loop.where(wanted))
    cause = Cause("A title.", atoms, (), "Advice.", Residual(residual, residual, residual), "some_rule")
    return replace(cause, **fields)


def in_line(number):
    return lambda atom: atom.own is not None and atom.own.line == number


def in_phase(phase):
    return lambda atom: atom.node.phase is phase


def test_atoms_sum_to_the_wall_time():
    loop = a_loop()
    assert loop.wall_ns == 10e9
    assert sum(atom.ns for atom in loop.atoms) == pytest.approx(10e9)


def test_samples_are_scaled_to_the_exact_self_time_of_their_node():
    line = frame("step", "env.py", 3, "x")
    loop = study(make_trace([place("Env.step", Phase.ENV, 2.0)], [seen("Env.step", [line], 1.0, cpu=0.5)]))
    assert [(atom.ns, atom.cpu_ns, atom.n) for atom in loop.atoms] == [(2e9, 1e9, 100)]


def test_a_step_counted_by_worker_and_main_process_is_one_step():
    thread = make_thread([place("Env.step", Phase.ENV, 1.0, 10)])
    worker = make_process([thread], {"env_steps": 20, "vector_steps": 20, "episodes": 3}, pid=7, main=False)
    tree = [place("VectorEnv.step", Phase.ENV, 1.0, 10)]
    loop = study(make_trace(tree, (), {"env_steps": 40, "vector_steps": 10}, others=[worker, worker]))
    assert (loop.env_steps, loop.vector_steps, loop.num_envs) == (40, 10, 4.0)
    assert loop.counts["episodes"] == 6


@pytest.mark.parametrize(
    ("share", "residual", "gain"),
    [(0.5, 0.0, 2.0), (0.5, 0.5, 4 / 3), (0.8, 0.25, 2.5), (0.0, 0.0, 1.0), (1.0, 1.0, 1.0)],
)
def test_amdahl_is_exact(share, residual, gain):
    assert amdahl(share, residual) == pytest.approx(gain)


def test_amdahl_of_everything_is_finite():
    assert math.isfinite(amdahl(1.0, 0.0))


def test_a_residual_is_put_in_order():
    assert clamped(0.5, 0.7, 0.2) == Residual(0.5, 0.5, 0.5)
    assert clamped(3.0, -1.0, 9.0) == Residual(1.0, 0.0, 1.0)


def test_a_finding_has_share_gain_and_line():
    loop = a_loop()
    (finding,) = settled(loop, [a_cause(loop, in_line(10), residual=0.25)])
    assert finding.share == pytest.approx(0.4)
    assert finding.gain == pytest.approx(1 / 0.7)
    assert finding.score == pytest.approx(math.log(finding.gain))
    assert (finding.file, finding.line, finding.span) == ("replay.py", 10, "Replay.sample")
    assert finding.phase is Phase.SAMPLE
    assert "40 %" in finding.evidence[0]


def test_the_interval_is_binomial_within_the_node():
    loop = a_loop()
    atoms = loop.where(in_line(10))
    # 2/3 of a node of 600 samples which is 0.6 of the loop.
    error = 0.6 * math.sqrt((2 / 3) * (1 / 3) / 600)
    assert share_error(loop, atoms) == pytest.approx(error)
    (finding,) = settled(loop, [a_cause(loop, in_line(10))])
    assert finding.gain_low == pytest.approx((1 / (0.6 + 1.645 * error)) ** LESS)
    assert finding.gain_high == pytest.approx((1 / (0.6 - 1.645 * error)) ** MORE)


def test_a_node_claimed_whole_has_no_sampling_error():
    loop = a_loop()
    assert share_error(loop, loop.where(in_phase(Phase.SAMPLE))) == 0.0


def test_the_spread_of_the_residual_widens_the_interval():
    loop = a_loop()
    (finding,) = settled(loop, [a_cause(loop, in_phase(Phase.SAMPLE), residual=Residual(0.5, 0.25, 0.75).mid)])
    wide = a_cause(loop, in_phase(Phase.SAMPLE))
    (wider,) = settled(loop, [replace(wide, residual=Residual(0.5, 0.25, 0.75))])
    assert finding.gain == pytest.approx(wider.gain) == pytest.approx(1 / 0.7)
    assert wider.gain_low == pytest.approx((1 / (1 - 0.6 * 0.25)) ** LESS)
    assert wider.gain_high == pytest.approx((1 / (1 - 0.6 * 0.75)) ** MORE)


def test_findings_are_ranked_by_gain():
    loop = a_loop()
    causes = [a_cause(loop, in_phase(Phase.ENV), rule="env"), a_cause(loop, in_line(10), rule="line")]
    assert [finding.rule for finding in settled(loop, causes)] == ["line", "env"]


def test_overlapping_time_goes_to_the_larger_gain():
    loop = a_loop()
    whole = a_cause(loop, in_phase(Phase.SAMPLE), rule="whole")
    part = a_cause(loop, in_line(10), rule="part")
    (finding,) = settled(loop, [part, whole])
    assert finding.rule == "whole"


def test_a_general_cause_gives_way_to_a_specific_one_and_keeps_the_rest():
    loop = a_loop()
    general = a_cause(loop, in_phase(Phase.SAMPLE), rule="general", general=True)
    specific = a_cause(loop, in_line(10), rule="specific")
    findings = settled(loop, [general, specific])
    assert [(f.rule, round(f.share, 3)) for f in findings] == [("specific", 0.4), ("general", 0.2)]


def test_what_gains_little_or_is_uncertain_is_dropped():
    loop = a_loop()
    little = a_cause(loop, in_phase(Phase.ENV), residual=0.95)
    unsure = replace(a_cause(loop, in_phase(Phase.ENV)), residual=Residual(0.5, 0.0, 1.0))
    assert settled(loop, [little, unsure]) == []


def test_an_informing_cause_is_kept_without_a_gain():
    loop = a_loop()
    (finding,) = settled(loop, [a_cause(loop, in_phase(Phase.ENV), informs=True)])
    assert (finding.gain, finding.gain_low, finding.gain_high, finding.score) == (1.0, 1.0, 1.0, 0.0)


def test_an_empty_run_has_no_findings():
    assert explain(make_trace()) == []


def test_top_limits_the_findings():
    line = frame("sample", "a.py", 1, "x = np.array(states)")
    trace = make_trace([place("B.sample", Phase.SAMPLE, 8.0, 10)], [seen("B.sample", [line], 8.0)], unattributed_s=2.0)
    assert len(explain(trace)) == 1
    assert explain(trace, top=0) == []


@pytest.mark.parametrize(
    ("sweeps", "cold"),
    [
        (0, 0.0),
        (1_000, 0.03),  # 300 µs each of 10 s
        (5_000, 0.12),  # at most 0.3 of the 4 s that it takes: 0.8 ms each cannot cost 300 µs more
        (100_000, 0.0),  # 40 µs each move too little
    ],
)
def test_what_sweeps_through_memory_leaves_cold_caches(sweeps, cold):
    loop = a_loop()
    assert cold_share(loop, a_cause(loop, in_line(10), sweeps=sweeps), share=0.4) == pytest.approx(cold)


def test_cold_caches_cost_at_most_a_part_of_the_rest():
    loop = a_loop()
    assert cold_share(loop, a_cause(loop, in_phase(Phase.SAMPLE), sweeps=9_000), share=0.9) == pytest.approx(0.03)


def test_cold_caches_are_part_of_the_gain_and_told():
    loop = a_loop()
    (finding,) = settled(loop, [a_cause(loop, in_line(10), sweeps=1_000)])
    assert finding.gain == pytest.approx(1 / (1 - 0.4 - 0.03))
    assert finding.evidence[-1] == "it empties the caches: some 3.0 % more, in what runs after it"
    (without,) = settled(loop, [a_cause(loop, in_line(10))])
    assert without.gain == pytest.approx(1 / (1 - 0.4))
    assert not any("caches" in each for each in without.evidence)


def test_a_cause_without_any_time_is_no_finding():
    loop = a_loop()
    assert settled(loop, [a_cause(loop, lambda _: False, informs=True), a_cause(loop, lambda _: False)]) == []
