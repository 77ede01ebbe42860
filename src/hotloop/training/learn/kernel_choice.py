"""Chooses the fastest kernel by a short measurement.

Which kernel is fastest depends on the machine, the network and the number of updates per call. The measurement uses
copies of the learner and random data: the learner and its random generators are not changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from hotloop.clock import now_ns
from hotloop.errors import HotloopError

if TYPE_CHECKING:
    from hotloop.training.learn import DQN, PPO, SAC, FrameDQN

Learner: TypeAlias = "DQN | FrameDQN | PPO | SAC"
"""A learner with several kernels."""
ROUNDS = 15
LONG_CALL_S, FEW_ROUNDS = 0.1, 3
"""Calls that take longer than this are measured fewer times."""
COMPILED = "compile"
MAX_MESSAGE = 200
"""Characters of a compiler's error message that are kept: it can be pages long."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The fastest kernel, and the seconds per update, or per part of one, of all measured kernels."""

    kernel: str
    update_s: dict[str, float]
    left_out: dict[str, str] = field(default_factory=dict)
    """Kernels that cannot be used on this machine, and why."""


def choose_kernel(learner: Learner, updates_per_call: int = 8, candidates: Sequence[str] | None = None) -> Choice:
    """Measure the kernels that can run this learner's network and return the fastest. The learner is not changed.

    `candidates` are the kernels to measure; None for all but "compile", which takes more than seconds to be ready.
    """
    if candidates is None:
        candidates = [name for name in learner.supported_kernels() if name != COMPILED]
    calls: dict[str, Callable[[], object]] = {}
    left_out: dict[str, str] = {}
    for name in candidates:
        try:
            call = learner.trial(name, updates_per_call)
            call()  # compiles
            calls[name] = call
        except Exception as error:
            # Only torch.compile depends on other programs, such as a C++ compiler. Other errors are bugs.
            if name != COMPILED or isinstance(error, HotloopError):
                raise
            left_out[name] = " ".join(str(error).split())[:MAX_MESSAGE]
    if not calls:
        raise HotloopError(f"kernel {COMPILED} cannot be used here ({left_out[COMPILED]}): choose another by --kernel")
    update_s = {name: seconds / updates_per_call for name, seconds in _median_seconds(calls).items()}
    return Choice(min(update_s, key=lambda name: update_s[name]), update_s, left_out)


def _median_seconds(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Measure calls in turns, so that a slow moment of the machine affects all of them."""
    begin = now_ns()
    for call in calls.values():
        call()
    rounds = FEW_ROUNDS if (now_ns() - begin) / 1e9 > LONG_CALL_S * len(calls) else ROUNDS
    times = {name: np.empty(rounds) for name in calls}
    for i in range(rounds):
        for name, call in calls.items():
            begin = now_ns()
            call()
            times[name][i] = (now_ns() - begin) / 1e9
    return {name: float(np.median(of)) for name, of in times.items()}
