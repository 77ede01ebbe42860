"""A step makes many small objects, and asks for attributes by name or by type.

**Cause.** A step makes many small objects, compares and hashes them, and reads attributes by name. Here `getattr`
with a name takes 50 ns, `isinstance` 30 ns, an object of three fields with an assertion 500 ns to make and 800 ns to
find in a set, a `__getattr__` 1500 ns. Study 002 has twenty `getattr`, forty `isinstance` and thirty such objects a
step.

**Seen by.** Time of your own code outside of learning, 10 µs an environment step or more, on lines with `getattr`,
`hasattr`, `isinstance`..., in methods such as `__init__`, `__eq__`, `__hash__`, `__getattr__`, and in the parts of
the standard library that objects run through (`functools`, `enum`, `copy`, `dataclasses`). Functions that exist for
it are claimed with it. All of it together must be 15 % of the loop. Without the accelerator, plain Python is seen
only where it runs for more than 5 ms on end.

**Cure.**
```python
before, after = state[:20], tuple(ram[16:36])  # one slice instead of twenty getattr(state, name)
if before != after:  # compared at once; what changed is looked for only if something did
    changed = [i for i in range(20) if before[i] != after[i]]
place = (room * ROWS + y) * COLUMNS + x  # a number instead of an object with __eq__ and __hash__
```

**Residual.** 15 % (5 to 40 %): 20 ns instead of 50 for an attribute, 50 ns instead of 1300 for an object made and
looked up.
"""

from __future__ import annotations

import re

from hotloop.phases import Phase
from hotloop.profiling.diagnosis.evidence import (
    bare_name,
    busy_ns,
    duration,
    grow,
    hot_lines,
    hottest,
    indices,
    times,
    total_ns,
    with_callers,
)
from hotloop.profiling.diagnosis.finding import Cause, clamped
from hotloop.profiling.diagnosis.time_slices import LEARNING, Atom, Loop
from hotloop.profiling.trace.model import Frame

BY_NAME = re.compile(r"(?<![\w.])(getattr|setattr|hasattr|isinstance|issubclass|vars|type)\(|\.__(dict|class)__\b")
SPECIAL = re.compile(
    r"__(init|new|post_init|eq|hash|lt|getattr|getattribute|setattr|contains|iter|len|bool|repr|copy|deepcopy|getitem)__"
)
"""Methods of own classes that making, comparing and reading objects goes through."""
MACHINERY = re.compile(
    r"[/\\](functools|enum|copy|dataclasses|typing|abc|collections[/\\]__init__|types|<string>)(\.py)?$"
)
"""Parts of the standard library that objects run through: cached_property, enums, copies, dataclasses."""
LIBRARY = re.compile(r"\b(torch|np|numpy|cv2|jax|F)\.\w|\.(copy|numpy|clone|to|astype)\(")
"""A line that calls arrays to work: its time is theirs, whatever object it is for."""
ELSEWHERE = LEARNING | {Phase.RENDER, Phase.WAIT, Phase.LOG, Phase.EVALUATE, Phase.CHECKPOINT}
LEAST_NS = 10_000
"""Less than this a step is fewer than a hundred such operations."""
LEAST_SHARE = 0.15
"""Less is what a few objects a step take, as most programs make them: not worth writing them anew."""
ADVICE = """\
Keep state as plain tuples or arrays, and work on all fields at once:
    before, after = state[:20], ram[16:36]        # one slice instead of twenty getattr(state, name)
    if before != after:                           # compared at once; look for what changed only if it did
        changed = [i for i in range(20) if before[i] != after[i]]
    place = (room * ROWS + y) * COLUMNS + x       # a number instead of an object with __eq__ and __hash__
Check types where data comes in, not at each step. What must stay a class: __slots__, a hash made once, no assert."""


def find(loop: Loop) -> list[Cause]:
    """Find own code, outside of learning, whose time goes into objects and attributes."""
    pool = loop.where(lambda a: a.own is not None and not (loop.phases(a.node) & ELSEWHERE) and _interpreted(a))
    makers = {(atom.stack[1].file, atom.stack[1].line) for atom in pool if len(atom.stack) > 1 and _is_object(atom)}
    seeds = [a for a in pool if _is_object(a) or _by_name(a) or (a.stack[0].file, a.stack[0].line) in makers]
    claimed = with_callers(loop, grow(seeds, pool))
    steps = max(loop.env_steps, 1)
    if busy_ns(claimed) / steps < LEAST_NS or loop.share(claimed) < LEAST_SHARE:
        return []
    whole = max(total_ns(claimed), 1.0)
    worst = hot_lines(seeds)[0]
    by_name = sum(a.ns for a in claimed if a.own and BY_NAME.search(a.own.text)) / whole
    objects = sum(a.ns for a in claimed if a.stack and SPECIAL.fullmatch(bare_name(a.stack[0]))) / whole
    return [
        Cause(
            rule="object_churn",
            title="A step makes many small objects and looks attributes up by name or type.",
            atoms=indices(claimed),
            residual=clamped(0.15, 0.05, 0.4),
            evidence=(
                f"{duration(total_ns(claimed) / steps)} an environment step, "
                f"as much as {times(total_ns(claimed) / steps / 100)} such operations of 100 ns",
                f"{100 * by_name:.0f} % of it on lines with getattr, isinstance and the like, "
                f"{100 * objects:.0f} % in methods such as __init__, __eq__, __hash__",
                hottest(loop, claimed),
            ),
            advice=ADVICE,
            blame=(worst.file, worst.line),
        )
    ]


def _interpreted(atom: Atom) -> bool:
    """Say whether it is the interpreter that works: the innermost frame is own code or the machinery of objects."""
    inner = atom.stack[0]
    return inner.own or _is_machinery(inner)


def _is_machinery(frame: Frame) -> bool:
    return not frame.own and bool(MACHINERY.search(frame.file))


def _is_object(atom: Atom) -> bool:
    """Say whether an object is being made, compared, hashed or asked for something."""
    inner = atom.stack[0]
    return _is_machinery(inner) or bool(SPECIAL.fullmatch(bare_name(inner)) and not LIBRARY.search(inner.text))


def _by_name(atom: Atom) -> bool:
    text = atom.stack[0].text
    return bool(BY_NAME.search(text) and not LIBRARY.search(text))
