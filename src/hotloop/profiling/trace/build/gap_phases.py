"""The phase of the time between two spans: from the lines sampled there, otherwise from the neighbouring spans.

For example, the loss is computed between the forward pass and `backward`, and gradients are clipped between `backward`
and the optimiser. Lines with a phase of their own take precedence, for their share of the gap.
"""

from __future__ import annotations

import re
from collections import Counter

from hotloop.phases import Phase
from hotloop.profiling.trace.model import Frame

_BATCH = r"(mini_?batch|batch|transitions|experiences|samples|sampled)"
_MAKER = r"\b(np|numpy|torch|jnp)\.(array|asarray|stack|vstack|concatenate|tensor|as_tensor|from_numpy|\w+Tensor)"
_KEEPER = r"\b\w*(memory|buffer|replay|storage|rollouts?|transitions)\w*"
_FIELD = r"\b\w*(obs|observations|states?|actions?|rewards?|dones?|values|log_?probs)"
LINES: tuple[tuple[Phase, re.Pattern[str]], ...] = (
    (
        Phase.SYNC_WEIGHTS,
        re.compile(r"[._](copy_|lerp_|load_state_dict)\(|polyak|soft_?update|\btau\b|target_param"),
    ),
    (Phase.LOG, re.compile(r"\bprint\(|\bwriter\.|\blogg(er|ing)\b|tqdm|wandb|\.add_scalar|pbar")),
    (Phase.CHECKPOINT, re.compile(r"torch\.save\(|\.save_checkpoint|pickle\.dump")),
    (Phase.RENDER, re.compile(r"\brender|ImageDraw|cv2\.(resize|cvtColor)|\.blit\(")),
    (Phase.OBSERVE, re.compile(r"(?i)\b_?(get_)?(obs|observation|frame_?stack|features)\w*\(")),
    (Phase.ACT, re.compile(r"action_space\w*\.sample\(")),
    (
        Phase.SAMPLE,
        re.compile(rf"(?i)\brandom\.(sample|choices)\(|{_KEEPER}\.sample\(|random\.\w+\(.*\blen\((self\.)?{_KEEPER}"),
    ),
    (
        Phase.SAMPLE,
        re.compile(rf"(?i)\b(randint|integers|randperm)\(.*{_KEEPER}|{_MAKER}\((self\.)?{_KEEPER}(\.\w+)?\["),
    ),
    (Phase.SAMPLE, re.compile(rf"(?i)\bin {_BATCH}\b|zip\(\*|{_MAKER}\(.*\b{_BATCH}\b")),
    (Phase.STORE, re.compile(rf"(?i)({_KEEPER}|{_FIELD})\.(append|appendleft|extend|push|add|store|put|insert)\(")),
    (Phase.STORE, re.compile(rf"(?i)^(self\.)?{_KEEPER}(\.(?!\w*priorit)\w+)?\[[^=]*\]\s*=[^=]")),
)
FILES: tuple[tuple[Phase, re.Pattern[str]], ...] = (
    (Phase.LOG, re.compile(r"(tqdm|tensorboard|wandb|logging)[/\\]")),
    (Phase.WAIT, re.compile(r"(multiprocessing|concurrent)[/\\]|[/\\](threading|selectors|queue)\.py$")),
    (Phase.OPTIMISE, re.compile(r"torch[/\\](optim|nn[/\\]utils)[/\\]")),
)


FUNCTIONS: tuple[tuple[Phase, re.Pattern[str]], ...] = (
    (Phase.SYNC_WEIGHTS, re.compile(r"(?i)soft_?update|polyak|sync_(weights|target)|update_target")),
    (Phase.LOG, re.compile(r"(?i)(^|[._])log(_|$)|record_metrics|summar")),
    (Phase.RENDER, re.compile(r"(?i)render|draw")),
    (Phase.OBSERVE, re.compile(r"(?i)feature|observ|(^|[._])_?(get_)?obs(_|$)|preprocess|frame_?stack")),
    (Phase.EVALUATE, re.compile(r"(?i)evaluat")),
    (Phase.ACT, re.compile(r"(?i)(choose|select|sample)_action|epsilon_?greedy")),
)
TRAINERS = re.compile(r"[/\\](stable_baselines3|sb3_contrib|torchrl|tianshou|rllib|skrl|sample_factory|lightning)[/\\]")
"""Libraries that run the loop themselves: the user's line above them is `model.learn()`, which has no phase."""


LEAST_SEEN = 3
"""A line's phase counts from this many samples on."""


def gap_phases(before: Phase | None, after: Phase | None, seen: Counter[Phase | None]) -> dict[Phase | None, Phase]:
    """Return the phase of each part of a gap, by the phase of its lines; None is for lines without one.

    `before` and `after` are the phases of the neighbouring spans; None at the start and end of the container. `seen`
    counts the samples of each phase.
    """
    between = _between(before, after)
    found = {phase: phase if phase is not None and n >= LEAST_SEEN else between for phase, n in seen.items()}
    return found | {None: between}


def phase_of_stack(stack: tuple[Frame, ...]) -> Phase | None:
    """Return the phase of a sampled stack: from the user's line, its functions, or the library."""
    own: list[Frame] = []
    for frame in stack:
        if TRAINERS.search(frame.file):
            break
        if frame.own:
            own.append(frame)
    found = _first(LINES, own[0].text) if own else None
    for frame in own:
        found = found or _first(FUNCTIONS, frame.function)
    if found is None and stack:
        found = _first(FILES, stack[0].file)
    return found


def _first(patterns: tuple[tuple[Phase, re.Pattern[str]], ...], text: str) -> Phase | None:
    return next((phase for phase, pattern in patterns if pattern.search(text)), None)


PASSING = (Phase.WAIT, Phase.LOG, Phase.CHECKPOINT)
"""Phases that may occur anywhere, so they say nothing about what follows."""


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
        return before if before is not None and before not in PASSING else Phase.OTHER
    return after
