"""`torch.distributions` validates its arguments and samples at every step and update.

Each check compares all values, reduces and reads the result back. Creating a Normal, sampling, and computing log
probability and entropy of 32 × 4 actions takes 187 µs with validation and 73 µs without; for a Categorical, 283 and 110
µs. On a GPU, each check also waits for the device.

**Seen by.** Stacks inside `Distribution.__init__`, `_validate_sample` or a constraint's `check`.

**Residual.** 3 % (0 to 10 %). Keep validation on while you develop a script: it reports a NaN in the policy where it
arises.
"""

from __future__ import annotations

import re

from hotloop.profiling.diagnosis.claims import bare_name, indices, passes_through
from hotloop.profiling.diagnosis.evidence import duration, hottest, percent
from hotloop.profiling.diagnosis.finding import Cause, Causes, clamped
from hotloop.profiling.diagnosis.time_slices import Loop, total_ns
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
    """Return whether a frame is one of the checks: a constraint, a sample's validation, or those of a new object."""
    if not PACKAGE.search(frame.file) or not CHECKS.search(frame.file):
        return False
    # The base class's constructor does next to nothing but validate.
    return bool(CHECKING.search(frame.function)) or bare_name(frame) == "__init__"


def find(loop: Loop) -> Causes:
    """Find the time in which a stack is inside a check of torch.distributions."""
    claimed = loop.where(lambda atom: any(validates(frame) for frame in atom.stack))
    if not claimed:
        return
    whole = total_ns(loop.where(lambda atom: passes_through(atom, PACKAGE)))
    yield Cause(
        title="torch.distributions validates its arguments and samples each time.",
        atoms=indices(claimed),
        # What is left: two tests of a flag, and the object itself.
        residual=clamped(0.03, 0.0, 0.1),
        evidence=(
            f"{percent(total_ns(claimed) / max(whole, 1.0))} of the time in torch.distributions is validation",
            f"{duration(total_ns(claimed) / max(loop.vector_steps, 1))} a step, updates included",
            hottest(loop, claimed, label="used at"),
        ),
    )
