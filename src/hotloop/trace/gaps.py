"""What a loop was doing between two spans: told by the lines seen there, else by the neighbours.

Between the network's forward pass and `backward` stands the loss; between `backward` and the optimiser, the
clipping of gradients; between the environment's step and the buffer's add, the making of a transition. Lines
that were sampled there overrule this where most of them are of one kind.
"""

from __future__ import annotations

import re
from collections import Counter

from hotloop.spans import Phase
from hotloop.trace.model import Frame

LINES: tuple[tuple[Phase, re.Pattern[str]], ...] = (
    (
        Phase.SYNC_WEIGHTS,
        re.compile(r"\.(copy_|lerp_|load_state_dict)\(|polyak|soft_?update|\btau\b|target_param"),
    ),
    (Phase.LOG, re.compile(r"\bprint\(|\bwriter\.|\blogg(er|ing)\b|tqdm|wandb|\.add_scalar|pbar")),
    (Phase.CHECKPOINT, re.compile(r"torch\.save\(|\.save_checkpoint|pickle\.dump")),
    (Phase.RENDER, re.compile(r"\brender|ImageDraw|cv2\.(resize|cvtColor)|\.blit\(")),
    (Phase.OBSERVE, re.compile(r"(?i)\b_?(get_)?(obs|observation|frame_?stack|features)\w*\(")),
)
FILES: tuple[tuple[Phase, re.Pattern[str]], ...] = (
    (Phase.LOG, re.compile(r"(tqdm|tensorboard|wandb|logging)[/\\]")),
    (Phase.WAIT, re.compile(r"(multiprocessing|concurrent)[/\\]|[/\\](threading|selectors|queue)\.py$")),
    (Phase.OPTIMISE, re.compile(r"torch[/\\](optim|nn[/\\]utils)[/\\]")),
)


TRAINERS = re.compile(r"[/\\](stable_baselines3|sb3_contrib|torchrl|tianshou|rllib|skrl|sample_factory|lightning)[/\\]")
"""Libraries that run the loop themselves: the user's line above them is `model.learn()` and tells nothing."""


def gap_phase(before: Phase | None, after: Phase | None, seen: Counter[Phase | None]) -> Phase:
    """Return the phase of a gap.

    Args:
        before: Phase of the span before it; None at the container's begin.
        after: Phase of the span after it; None at the container's end.
        seen: How often lines of each phase were sampled in it; None for lines that tell nothing.
    """
    total = sum(seen.values())
    if total >= 3:
        phase, n = seen.most_common(1)[0]
        if phase is not None and n > total / 2:
            return phase
    return _between(before, after)


def phase_of_stack(stack: tuple[Frame, ...]) -> Phase | None:
    """Tell a phase from a sampled stack: by the user's own line, else by the library it is in."""
    for frame in stack:
        if frame.own or TRAINERS.search(frame.file):
            break
    else:
        frame = None
    if (own := frame) is not None and own.own:
        for phase, pattern in LINES:
            if pattern.search(own.text):
                return phase
    if stack:
        for phase, pattern in FILES:
            if pattern.search(stack[0].file):
                return phase
    return None


def _between(before: Phase | None, after: Phase | None) -> Phase:
    if after is Phase.BACKWARD:
        return Phase.FORWARD
    if after is Phase.OPTIMISE:
        return Phase.FORWARD if before is Phase.FORWARD else Phase.OPTIMISE
    if after is Phase.ACT:
        return Phase.OBSERVE if before in (Phase.ENV, Phase.RENDER) else Phase.ACT
    if after is Phase.ENV:
        return Phase.OBSERVE if before is Phase.OBSERVE else Phase.ACT
    if after is Phase.SAMPLE:
        return Phase.STORE if before in (Phase.ENV, Phase.STORE) else Phase.SAMPLE
    if after is Phase.OTHER or after is None:
        return before if before is not None else Phase.OTHER
    return after
