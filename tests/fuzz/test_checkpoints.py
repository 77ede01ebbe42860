from __future__ import annotations

from tests.fuzz.checkpoints import fuzz_checkpoints


def test_damaged_checkpoints_are_rejected_or_harmless() -> None:
    failures = fuzz_checkpoints(60, seed=7, pipelines=("dqn-snake", "ppo-snake"))
    assert not failures, failures[0]
