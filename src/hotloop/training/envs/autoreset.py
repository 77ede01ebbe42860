"""Gymnasium's autoreset modes as numbers for kernels, and the special actions that `reset` sends to a kernel."""

from __future__ import annotations

from gymnasium.vector import AutoresetMode

from hotloop.errors import HotloopError

SAME_STEP, NEXT_STEP, DISABLED = range(3)
CODES = {
    AutoresetMode.SAME_STEP: SAME_STEP,
    AutoresetMode.NEXT_STEP: NEXT_STEP,
    AutoresetMode.DISABLED: DISABLED,
}
RESET, HOLD = -1, -2
"""Actions that only `reset` sends: start a new episode, and leave the game unchanged."""


def parse_autoreset_mode(mode: AutoresetMode | str) -> AutoresetMode:
    """Return Gymnasium's mode of that name."""
    try:
        return AutoresetMode(mode)
    except ValueError:
        known = ", ".join(each.value for each in AutoresetMode)
        raise HotloopError(f"autoreset_mode is {mode!r}: give one of {known}") from None
