"""The printed phases of an update: work by hand, sums that are sums, and times that cannot be."""

from __future__ import annotations

import numpy as np
import pytest

from hotloop.learn import SAC, SACConfig, SACShape
from hotloop.learn.choose import made_up_steps
from hotloop.learn.sac_state import PHASES
from hotloop.pipelines.update_report import EVERY, UpdateReport, body_macs, conv_macs, flops_of, table

STUDY = SACShape((4, 96, 96), 2)
SMALL = SACShape((2, 36, 36), 2, convs=((4, 8, 4), (8, 4, 2)), hidden=(16,))


def test_the_convolutions_of_the_study_are_counted_by_hand() -> None:
    # 23·23 places · 32 channels · 8·8·4 weights; 10·10 · 64 · 4·4·32; 8·8 · 64 · 3·3·64.
    assert conv_macs(STUDY) == [4_333_568, 3_276_800, 2_359_296]
    assert 256 * sum(conv_macs(STUDY)) == 2_552_233_984, "2.55 billion multiplications, not 150 million"
    assert body_macs(STUDY) == (4096 * 512 + 512 * 4, 4098 * 512 + 512)


def test_an_update_as_one_writes_it_does_eighteen_passes_and_a_lean_one_fourteen() -> None:
    def passes(kernel: str) -> float:
        agent = SAC(SACConfig(SACShape((4, 96, 96), 2, hidden=(1,)), batch=1), kernel=kernel)
        first, *others = (2.0 * each for each in conv_macs(agent.config.shape))
        work, eye = flops_of(agent), first + sum(others)
        convolved = sum(n for (_, part), n in work.items() if part.startswith("conv"))
        # A backward pass is two, but for the first layer's input. Of the layers behind only one unit is left.
        backward = sum(n for (_, part), n in work.items() if part == "backward")
        own = 3 if kernel == "lean" else 5
        return convolved / eye + (backward + own * first) / eye

    assert passes("torch") == pytest.approx(8 + 10, rel=0.01)
    assert passes("lean") == pytest.approx(8 + 6, rel=0.01)


def test_every_tenth_update_is_printed_and_its_phases_sum_to_the_whole() -> None:
    agent = SAC(SACConfig(SMALL, batch=8), kernel="lean")
    said: list[str] = []
    report = UpdateReport(agent, said.append)
    agent.update(made_up_steps(agent.config, 2 * EVERY, np.random.default_rng(0)), report)
    assert len(said) == 2
    head, *lines = said[1].splitlines()
    assert head.startswith("update 20: ")
    whole = float(head.split()[2])
    times = {line.split("  ")[1].strip(): float(line.split(" ms")[0].split()[-1]) for line in lines if line[2] != " "}
    assert list(times) == list(PHASES)
    assert sum(times.values()) == pytest.approx(whole, abs=0.05)
    assert "conv1" in said[1] and "conv2" in said[1] and "backward" in said[1] and "GFLOP/s" in said[1]


def test_a_time_that_cannot_be_is_marked() -> None:
    ns = {(phase, ""): 1_000_000 for phase in PHASES} | {("critics", "conv1"): 50_000, ("critics", "fc"): 900_000}
    told = table(10, ns, {("critics", "conv1"): 2.2e9, ("critics", "fc"): 1e8}, peak=250e9)
    line = next(line for line in told.splitlines() if "conv1" in line)
    # 2.2 GFLOP in 0.05 ms would be 44 TFLOP/s.
    assert "44000 GFLOP/s" in line and "impossible" in line
    assert told.count("impossible") == 1
    assert "rest" in told and "0.05 ms" in told
    assert told.splitlines()[0].startswith("update 10: 6.00 ms")
