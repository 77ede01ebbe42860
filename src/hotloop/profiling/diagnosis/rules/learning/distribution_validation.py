"""distribution_validation: torch.distributions checks its arguments and samples at every step and update.

Each check compares whole tensors, reduces the result and reads it back: some 20 to 60 µs a distribution, and
on a GPU a wait. It is on unless Python runs with -O, and finds nothing in code that already trains.
"""

from __future__ import annotations

import re

from hotloop.profiling.diagnosis.evidence import duration, indices, percent, quoted, total_ns
from hotloop.profiling.diagnosis.evidence import hot_lines as lines_of
from hotloop.profiling.diagnosis.finding import Cause, clamped
from hotloop.profiling.diagnosis.time_slices import Atom, Loop
from hotloop.profiling.trace.model import Frame

PACKAGE = re.compile(r"torch[/\\]distributions[/\\]\w+\.py$")
CHECKS = re.compile(r"[/\\](distribution|constraints)\.py$")
CHECKING = re.compile(r"(^|\.)(_validate_sample|check|__check__)$")
ADVICE = """\
Switch the checks off once the script is known to work, for all distributions or for one:
    torch.distributions.Distribution.set_default_validate_args(False)   # a call, first lines of the script
    dist = Normal(mean, std, validate_args=False)
Look at the loss for NaN once an iteration instead."""


def validates(frame: Frame) -> bool:
    """Say whether a frame is one of the checks: a constraint, a sample's validation, or those of a new object."""
    if not PACKAGE.search(frame.file) or not CHECKS.search(frame.file):
        return False
    # The base class's constructor does next to nothing but validate.
    return bool(CHECKING.search(frame.function)) or frame.function.rsplit(".", 1)[-1] == "__init__"


def find(loop: Loop) -> list[Cause]:
    """Find the time in which a stack is inside a check of torch.distributions."""
    claimed = loop.where(lambda atom: any(validates(frame) for frame in atom.stack))
    if not claimed:
        return []
    whole = total_ns(loop.where(lambda atom: any(PACKAGE.search(frame.file) for frame in atom.stack)))
    return [
        Cause(
            rule="distribution_validation",
            title="torch.distributions validates its arguments and samples each time.",
            atoms=indices(claimed),
            # What is left: two tests of a flag, and the object itself.
            residual=clamped(0.03, 0.0, 0.1),
            evidence=(
                f"{percent(total_ns(claimed) / max(whole, 1.0))} of the time in torch.distributions is validation",
                f"{duration(total_ns(claimed) / max(loop.vector_steps, 1))} a step, updates included",
                _makers(loop, claimed),
            ),
            advice=ADVICE,
        )
    ]


def _makers(loop: Loop, claimed: list[Atom]) -> str:
    lines = lines_of(claimed)[:3]
    return "used at: " + "; ".join(f"{quoted(each)} ({percent(each.ns / loop.wall_ns)})" for each in lines)
