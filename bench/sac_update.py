"""One update of visual SAC, batch 256, as the study's networks have it: as one writes it, and with less work.

Both kernels do the same maths on the same made-up batch. The options of the lean one stand beside each other, and the
phases of an update beside the whole of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from measure import Row, against_limit, estimate, interleave, main, ratio_of, say

from hotloop.training.learn import SAC, SACConfig, SACRule
from hotloop.training.learn.sac.learner import random_sac_batch
from hotloop.training.pipelines.sac_carracing import (
    FAITHFUL,
    Config,
    actor_loss,
    critic_loss,
    critic_target,
    move_target,
    temperature_gradient,
)
from hotloop.training.run.update_report import UpdateReport, flops_of, peak_flops_per_s
from hotloop.training.tasks.carracing import learner_config

RULE = SACRule(critic_target, critic_loss, actor_loss, temperature_gradient, move_target)

ASKED = 2.0
SUM_LIMIT = 1.02
NAME = "a faithful update, batch 256"


def run(quick: bool) -> list[Row]:
    """Measure everything this bench shows."""
    torch.set_num_threads(2)
    config = learner_config(FAITHFUL)
    variants = {
        "plain": updating(config, "torch"),
        "lean": updating(config, "lean"),
        "lean, channels first": updating(replace(config, channels_last=False), "lean"),
        "lean, twin critics batched": updating(replace(config, batched=True), "lean"),
        "lean, bfloat16": updating(replace(config, precision="bfloat16"), "lean"),
        "fast preset, batch 64": updating(learner_config(Config()), "lean"),
    }
    if not quick:
        variants["lean, compiled"] = updating(replace(config, compiled=True), "lean")
    say("sac_update: kernels")
    times = interleave(variants, 2 if quick else 15, calls=1)
    lean = times["lean"]
    rows = []
    for name, theirs in times.items():
        if name != "lean":
            found = estimate(ratio_of, theirs, lean)
            asked = ASKED if name == "plain" else 0.0
            ours, peer = (float(np.median(each)) / 1e6 for each in (lean, theirs))
            rows.append(Row(NAME, ours, peer, name, "ms", found.value, found.low, found.high, asked))
    work = sum(n for (_, part), n in flops_of(SAC(config, RULE, kernel="lean")).items() if not part)
    peak = peak_flops_per_s(torch.device("cpu"))
    say(f"  {work / 1e9:.0f} GFLOP an update, {peak / 1e9:.0f} GFLOP/s at best: not under {work / peak * 1e3:.0f} ms")
    say("sac_update: phases")
    return [*rows, phases(config, 3 if quick else 20)]


def updating(config: SACConfig, kernel: str) -> Callable[[], object]:
    """Return a call that does one update."""
    learner = SAC(config, RULE, kernel=kernel)
    batch = random_sac_batch(config, 1, np.random.default_rng(0))
    return lambda: learner.update(batch)


def phases(config: SACConfig, updates: int) -> Row:
    """How far the whole of an update, on a batch that is there already, is from the sum of its phases."""
    learner = SAC(config, RULE, kernel="lean")
    batch = random_sac_batch(config, 1, np.random.default_rng(0))
    report = UpdateReport(learner, lambda _: None)
    summed, whole = np.empty(updates), np.empty(updates)
    learner.update(batch)
    for i in range(updates):
        with report.whole():
            learner.update(batch, report)
        whole[i] = report.whole_ns
        summed[i] = sum(time for (_, part), time in report.ns.items() if not part)
    found = estimate(lambda w, s: float(np.median(w / s)), whole, summed)
    return against_limit("the whole of an update against the sum of its phases", found, SUM_LIMIT, "×")


if __name__ == "__main__":
    main(run, __doc__)
