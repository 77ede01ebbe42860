"""A step creates many small objects and looks up attributes by name or type.

Measured: 50 ns for `getattr` with a name, 30 ns for `isinstance`, 500 ns to create an object with three fields and an
assertion and 800 ns to find it in a set, 1500 ns for a `__getattr__`. One of the studied programs has twenty
`getattr`, forty `isinstance` and thirty such objects per step.

**Seen by.** At least 10 µs per environment step and 15 % of the loop in your own code outside of learning: on lines
with `getattr`, `hasattr` or `isinstance`, in methods such as `__init__`, `__eq__`, `__hash__` and `__getattr__`, and in
the standard library modules behind them (`functools`, `enum`, `copy`, `dataclasses`). Functions that do little else are
claimed as a whole. Without the C extension, plain Python is sampled only if it runs for more than 5 ms at a stretch.

**Residual.** 15 % (5 to 40 %): 20 ns instead of 50 for an attribute, 50 ns instead of 1300 to create and look up an
object.
"""

from __future__ import annotations

import re

from hotloop.phases import Phase
from hotloop.profiling.diagnosis.claims import bare_name, busy_ns, grow, indices, matching, union, with_callers
from hotloop.profiling.diagnosis.evidence import duration, hot_lines, hottest, times
from hotloop.profiling.diagnosis.finding import Cause, Causes, clamped
from hotloop.profiling.diagnosis.time_slices import LEARNING, Atom, Loop, total_ns
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


def find(loop: Loop) -> Causes:
    """Find own code, outside of learning, whose time goes into objects and attributes."""
    pool = loop.where(lambda a: a.own is not None and not (loop.phases(a.node) & ELSEWHERE))
    # Only where the interpreter itself is running, in own code or in what objects are made of.
    pool = [atom for atom in pool if atom.stack[0].own or _is_machinery(atom.stack[0])]
    makers = {(atom.stack[1].file, atom.stack[1].line) for atom in pool if len(atom.stack) > 1 and _is_object(atom)}
    by_name = [atom for atom in pool if BY_NAME.search(atom.stack[0].text) and not LIBRARY.search(atom.stack[0].text)]
    making = [atom for atom in pool if _is_object(atom) or (atom.stack[0].file, atom.stack[0].line) in makers]
    seeds = union(by_name, making)
    claimed = with_callers(loop, grow(seeds, pool))
    steps = max(loop.env_steps, 1)
    if busy_ns(claimed) / steps < LEAST_NS or loop.share(claimed) < LEAST_SHARE:
        return
    whole = max(total_ns(claimed), 1.0)
    worst = hot_lines(seeds)[0]
    of_names = total_ns(matching(claimed, BY_NAME)) / whole
    of_objects = total_ns(a for a in claimed if a.stack and SPECIAL.fullmatch(bare_name(a.stack[0]))) / whole
    yield Cause(
        title="A step creates many small objects and looks up attributes by name or type.",
        atoms=indices(claimed),
        residual=clamped(0.15, 0.05, 0.4),
        evidence=(
            f"{duration(total_ns(claimed) / steps)} an environment step, "
            f"as much as {times(total_ns(claimed) / steps / 100)} such operations of 100 ns",
            f"{100 * of_names:.0f} % of it on lines with getattr, isinstance and the like, "
            f"{100 * of_objects:.0f} % in methods such as __init__, __eq__, __hash__",
            hottest(loop, claimed),
        ),
        blame=(worst.file, worst.line),
    )


def _is_machinery(frame: Frame) -> bool:
    return not frame.own and bool(MACHINERY.search(frame.file))


def _is_object(atom: Atom) -> bool:
    """Return whether an object is being created, compared, hashed or accessed."""
    inner = atom.stack[0]
    return _is_machinery(inner) or bool(SPECIAL.fullmatch(bare_name(inner)) and not LIBRARY.search(inner.text))
