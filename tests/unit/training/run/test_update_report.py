"""The printed phases of an update: work by hand, sums that are sums, and times that cannot be."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hotloop.training.learn import SAC, SACConfig, SACRule, SACShape
from hotloop.training.learn.sac.learner import random_sac_batch
from hotloop.training.learn.sac.state import PHASES
from hotloop.training.pipelines.sac_carracing import (
    actor_loss,
    critic_loss,
    critic_target,
    move_target,
    temperature_gradient,
)
from hotloop.training.run import update_report
from hotloop.training.run.update_report import EVERY, SAMPLE, UpdateReport, body_macs, conv_macs, flops_of, table

RULE = SACRule(critic_target, critic_loss, actor_loss, temperature_gradient, move_target)

STUDY = SACShape((4, 96, 96), 2)
SMALL = SACShape((2, 36, 36), 2, convs=((4, 8, 4), (8, 4, 2)), hidden=(16,))


def test_the_convolutions_of_the_study_are_counted_by_hand() -> None:
    # 23·23 places · 32 channels · 8·8·4 weights; 10·10 · 64 · 4·4·32; 8·8 · 64 · 3·3·64.
    assert conv_macs(STUDY) == [4_333_568, 3_276_800, 2_359_296]
    assert 256 * sum(conv_macs(STUDY)) == 2_552_233_984, "2.55 billion multiplications, not 150 million"
    assert body_macs(STUDY) == (4096 * 512 + 512 * 4, 4098 * 512 + 512)


def test_an_update_as_one_writes_it_does_eighteen_passes_and_a_lean_one_fourteen() -> None:
    def passes(kernel: str) -> float:
        agent = SAC(SACConfig(SACShape((4, 96, 96), 2, hidden=(1,)), batch=1), RULE, kernel=kernel)
        first, *others = (2.0 * each for each in conv_macs(agent.config.shape))
        work, eye = flops_of(agent), first + sum(others)
        convolved = sum(n for (_, part), n in work.items() if part.startswith("conv"))
        # A backward pass is two, but for the first layer's input. Of the layers behind only one unit is left.
        backward = sum(n for (_, part), n in work.items() if part == "backward")
        own = 3 if kernel == "lean" else 5
        return convolved / eye + (backward + own * first) / eye

    assert passes("torch") == pytest.approx(8 + 10, rel=0.01)
    assert passes("lean") == pytest.approx(8 + 6, rel=0.01)


def test_every_tenth_update_is_printed_with_its_sampling_and_its_phases() -> None:
    agent = SAC(SACConfig(SMALL, batch=8), RULE, kernel="lean")
    said: list[str] = []
    report = UpdateReport(agent, said.append)
    for _ in range(2 * EVERY):
        with report.whole():
            with report(SAMPLE):
                batch = random_sac_batch(agent.config, 1, np.random.default_rng(0))
            agent.update(batch, report)
    assert len(said) == 2
    head, *lines = said[1].splitlines()
    assert head.startswith("update 20: ")
    whole = float(head.split()[2])
    times = {line.split("  ")[1].strip(): float(line.split(" ms")[0].split()[-1]) for line in lines if line[2] != " "}
    assert list(times) == ["sample", *PHASES, "between"]
    assert sum(times.values()) == pytest.approx(whole, abs=0.05)
    assert min(times.values()) >= 0
    assert "conv1" in said[1] and "conv2" in said[1] and "backward" in said[1] and "GFLOP/s" in said[1]


def test_the_whole_is_measured_and_a_gap_between_phases_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    report = UpdateReport(SAC(SACConfig(SMALL, batch=8), RULE, kernel="lean"), said.append)
    now = [0]
    monkeypatch.setattr(update_report, "now_ns", lambda: now[0])
    for _ in range(EVERY):
        with report.whole():
            now[0] += 1_000_000  # before the sampling
            with report(SAMPLE):
                now[0] += 3_000_000
            for phase in PHASES:
                with report(phase):
                    now[0] += 2_000_000
            now[0] += 4_000_000  # after the last phase
        now[0] += 50_000_000  # between two updates: of neither
    assert report.whole_ns == 20_000_000
    assert sum(report.ns.values()) == 15_000_000
    head, *lines = said[0].splitlines()
    assert head.startswith("update 10: 20.00 ms with its sampling")
    assert lines[0].split() == ["sample", "3.00", "ms", "15.0%"]
    assert [line.split()[-3:] for line in lines[1:-1] if "GFLOP" not in line] == [["2.00", "ms", "10.0%"]] * 3
    assert lines[-1].split() == ["between", "5.00", "ms", "25.0%"]


@pytest.mark.parametrize("kind", ["cuda", "mps"])
def test_a_gpu_is_waited_for_before_each_look_at_the_clock(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    report = UpdateReport(SAC(SACConfig(SMALL, batch=8), RULE, kernel="lean"), print)
    waits: list[str] = []
    monkeypatch.setattr(getattr(torch, kind), "synchronize", lambda *_: waits.append(kind))
    with report.whole(), report(SAMPLE):
        pass
    assert waits == [], "a CPU is done when the call returns"
    report._device = torch.device(kind)
    with report.whole(), report(SAMPLE):
        pass
    assert waits == [kind] * 4


def test_a_time_that_cannot_be_is_marked() -> None:
    ns = {(phase, ""): 1_000_000 for phase in PHASES} | {("critics", "conv1"): 50_000, ("critics", "fc"): 900_000}
    told = table(10, 6_500_000, ns, {("critics", "conv1"): 2.2e9, ("critics", "fc"): 1e8}, peak=250e9)
    line = next(line for line in told.splitlines() if "conv1" in line)
    # 2.2 GFLOP in 0.05 ms would be 44 TFLOP/s.
    assert "44000 GFLOP/s" in line and "impossible" in line
    assert told.count("impossible") == 1
    assert "rest" in told and "0.05 ms" in told
    assert told.splitlines()[0].startswith("update 10: 6.50 ms")
    assert told.splitlines()[-1].split() == ["between", "0.50", "ms", "7.7%"]
