"""Guesses what the time between two spans is for: from the words in the lines sampled there, or the spans beside it.

Only rules use the guesses, to choose where to look. Reports show this time as own code, because a guess can be wrong.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

from hotloop.phases import Phase
from hotloop.profiling.trace.model import Frame, Node, Sample, Thread

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


PART = 1 << 32
"""Larger than any recorded id of a node."""


def with_guessed_phases(thread: Thread) -> Thread:
    """Return a thread whose gaps have guessed phases. A gap with lines of several phases becomes several nodes."""
    samples: dict[int, list[Sample]] = {}
    for sample in thread.samples:
        samples.setdefault(sample.node, []).append(sample)
    nodes: list[Node] = []
    seen: list[Sample] = []
    for node in thread.nodes:
        mine = samples.get(node.id, [])
        if node.kind == "gap" and node.phase is Phase.OWN:
            parts, mine = _split(node, mine)
            nodes += parts
        else:
            nodes.append(node)
        seen += mine
    return replace(thread, nodes=tuple(nodes), samples=tuple(seen))


def _split(gap: Node, samples: list[Sample]) -> tuple[list[Node], list[Sample]]:
    """Return the parts of a gap and the samples of each.

    The largest part keeps the gap's id, and what is not known by line.
    """
    found = [phase_of_stack(sample.stack) for sample in samples]
    seen: Counter[Phase | None] = Counter()
    for phase, sample in zip(found, samples, strict=True):
        seen[phase] += sample.n
    phases = gap_phases(*gap.between, seen)
    wall, cpu = Counter[Phase](), Counter[Phase]()
    for phase, sample in zip(found, samples, strict=True):
        wall[phases[phase]] += sample.wall_ns
        cpu[phases[phase]] += sample.cpu_ns
    first = wall.most_common(1)[0][0] if wall else phases[None]
    others = [phase for phase, ns in wall.items() if ns and phase is not first]
    number = {first: gap.id} | {phase: gap.id + i * PART for i, phase in enumerate(others, 1)}
    parts = [
        replace(
            gap,
            id=number[phase],
            phase=phase,
            self_ns=wall[phase],
            total_ns=wall[phase],
            cpu_ns=cpu[phase],
            cpu_memory_bytes=0,
            counts={},
        )
        for phase in others
    ]
    rest = gap.self_ns - sum(part.self_ns for part in parts)
    whole = replace(gap, phase=first, self_ns=rest, total_ns=rest, cpu_ns=cpu[first] if wall else gap.cpu_ns)
    # Lines of a phase for which no time was measured stay with the gap.
    moved = [replace(sample, node=number.get(phases[p], gap.id)) for p, sample in zip(found, samples, strict=True)]
    return [whole, *parts], moved


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
