"""An array grows one row at a time, and every row copies the whole array.

`x = np.append(x, v)` and `x = torch.cat([x, row])` allocate a new array and copy the old one into it.

**Seen by.** Time on lines that assign to a name the concatenation of itself and something else. Joining along another
axis, as networks do, and sliding windows (`x[1:]`) do not grow and are not covered.

**Residual.** 3 µs per row and line: the cost of writing a row into a tensor (0.6 µs in numpy).
"""

from __future__ import annotations

import re

from hotloop.phases import Phase
from hotloop.profiling.diagnosis.claims import indices, left_over, matching
from hotloop.profiling.diagnosis.evidence import duration, growth, hot_lines, hottest
from hotloop.profiling.diagnosis.finding import Cause, Causes
from hotloop.profiling.diagnosis.time_slices import Loop, total_ns

GROWS = re.compile(
    r"^(?P<name>[\w.]+(\[[^\]]*\])?)\s*=\s*(np|numpy|torch|pd|pandas)\."
    r"(append|concatenate|concat|vstack|hstack|row_stack|cat|insert)\(\s*[\[\(]?\s*(?P=name)\s*[,\]\)]"
    r"|^(?P<frame>[\w.]+)\s*=\s*(?P=frame)\.append\("
)
"""The name on the left is the first thing put together on the right: not a slice of it, which is a window."""
WIDER = re.compile(r"\b(dim|axis)\s*=\s*-?[1-9]|[\]\)]\s*,\s*-?[1-9]\s*\)")
"""Joined along another axis: concatenated features, as in a network, do not grow."""
ROW_NS = 3_000
"""A row written into a tensor; into a numpy array it takes a fifth of that."""
ADVICE = """\
Allocate once, write rows, and use the part that is filled:
    self.states = torch.zeros(length, num_envs, *shape)     # once
    self.states[self.size] = states                         # each step
    self.size += 1
Where the length is not known: append to a Python list, and make one array of it at the end."""


def find(loop: Loop) -> Causes:
    """Find lines that put an array together out of itself and a new piece."""
    networks = {node.id for node in loop.spans if Phase.FORWARD in loop.phases(node)}
    pool = loop.where(lambda atom: atom.node.id not in networks and not WIDER.search(atom.text))
    claimed = matching(pool, GROWS)
    if not claimed:
        return
    lines = len(hot_lines(claimed))
    rows = max(loop.vector_steps, 1) * lines
    grown = growth(loop, claimed[0].node.phase, "vector_steps")
    yield Cause(
        title="Arrays grow by appending: each new row copies all rows before it.",
        atoms=indices(claimed),
        residual=left_over(claimed, rows * ROW_NS, low=0.2),
        evidence=(
            f"{duration(total_ns(claimed) / max(loop.vector_steps, 1))} a step on {lines} such line"
            f"{'s' * (lines > 1)}; writing a row takes some {duration(ROW_NS)}",
            f"a step's share of it grew to {grown:.2f} times the first" if grown > 1.1 else "",
            hottest(loop, claimed),
        ),
        sweeps=loop.vector_steps,
    )
