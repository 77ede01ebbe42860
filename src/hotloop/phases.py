"""The phases of a training loop, their groups, and the words in span names by which they are recognised."""

from __future__ import annotations

import re
from enum import StrEnum


class Phase(StrEnum):
    """An activity of a training loop. The main thread is in exactly one at any time."""

    ENV = "env"
    RENDER = "render"
    OBSERVE = "observe"
    ACT = "act"
    STORE = "store"
    SAMPLE = "sample"
    TRANSFER = "transfer"
    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMISE = "optimise"
    SYNC_WEIGHTS = "sync weights"
    WAIT = "wait"
    LOG = "log"
    EVALUATE = "evaluate"
    CHECKPOINT = "checkpoint"
    OTHER = "other"
    OWN = "own code"
    """Time of the user's code outside of all spans: nothing says what it is for."""


GROUPS: dict[Phase, str] = {
    Phase.ENV: "Environment",
    Phase.RENDER: "Rendering",
    Phase.OBSERVE: "Environment",
    Phase.ACT: "Model",
    Phase.STORE: "Data",
    Phase.SAMPLE: "Data",
    Phase.TRANSFER: "Data",
    Phase.FORWARD: "Model",
    Phase.BACKWARD: "Training",
    Phase.OPTIMISE: "Training",
    Phase.SYNC_WEIGHTS: "Training",
    Phase.WAIT: "Other",
    Phase.LOG: "Other",
    Phase.EVALUATE: "Other",
    Phase.CHECKPOINT: "Other",
    Phase.OTHER: "Other",
    Phase.OWN: "Own code",
}
"""The groups of the profiler study (Environment, Rendering, Model, Training, Data, Other), and own code."""

DEVICE_PHASES = frozenset({Phase.ACT, Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMISE, Phase.TRANSFER})
"""Phases that may run on a GPU."""

PHASE_WORDS: tuple[tuple[Phase, str], ...] = (
    (Phase.RENDER, "render rendering draw drawing rgb resize resizing"),
    (Phase.EVALUATE, "evaluate evaluation eval"),
    (Phase.CHECKPOINT, "checkpoint checkpointing save saving"),
    (Phase.BACKWARD, "backward backprop"),
    (Phase.OPTIMISE, "optimise optimize optimiser optimizer optim adam sgd clip"),
    (Phase.SYNC_WEIGHTS, "sync polyak soft weights"),
    (Phase.TRANSFER, "transfer upload h2d d2h"),
    (Phase.SAMPLE, "sample sampling gather"),
    (Phase.STORE, "store push insert add replay buffer"),
    (Phase.WAIT, "wait waiting queue lock recv sleep idle"),
    (Phase.LOG, "log logging print tensorboard wandb metrics"),
    (Phase.FORWARD, "forward loss conv convlstm encoder lstm critic actor network model pooling"),
    (Phase.OBSERVE, "observation observe obs features preprocess"),
    (Phase.ACT, "act action actions policy select predict"),
    (Phase.ENV, "env environment reset physics emulator"),
)
"""Words in a span's name that identify its phase. The first matching row decides."""


def phase_of(name: str) -> Phase | None:
    """Guess the phase from a span's name: "replay.sample" is sampling. None if no word matches."""
    words = set(re.split(r"[^a-z0-9]+", name.lower()))
    return next((phase for phase, known in PHASE_WORDS if words & set(known.split())), None)
