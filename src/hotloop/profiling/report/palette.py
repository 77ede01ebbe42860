"""One colour per phase, the same in terminal and charts.

The hue shows the phase's group, from the Okabe-Ito palette, which colour-blind readers can distinguish. The lightness
distinguishes phases within a group. Waiting, logging and other overhead are grey.
"""

from __future__ import annotations

from collections.abc import Mapping

from hotloop.phases import Phase

PHASE_COLOURS: Mapping[str, str] = {
    Phase.ENV: "#009e73",
    Phase.OBSERVE: "#66c9a9",
    Phase.RENDER: "#d55e00",
    Phase.ACT: "#56b4e9",
    Phase.FORWARD: "#0072b2",
    Phase.BACKWARD: "#e69f00",
    Phase.OPTIMISE: "#f0d442",
    Phase.SYNC_WEIGHTS: "#a87400",
    Phase.STORE: "#e3aac8",
    Phase.SAMPLE: "#cc79a7",
    Phase.TRANSFER: "#8c4a6f",
    Phase.WAIT: "#8a8f98",
    Phase.LOG: "#a9aeb6",
    Phase.EVALUATE: "#757a83",
    Phase.CHECKPOINT: "#c3c7cd",
    Phase.OTHER: "#9aa0a8",
    Phase.OWN: "#5b6068",
}

GROUP_ORDER = ("Environment", "Rendering", "Model", "Training", "Data", "Own code", "Other")


def colour(phase: str) -> str:
    """Return the colour of a phase as #rrggbb."""
    return PHASE_COLOURS.get(phase, PHASE_COLOURS[Phase.OTHER])
