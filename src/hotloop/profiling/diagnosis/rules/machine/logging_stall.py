"""The loop writes, prints or flushes at every step or update.

A TensorBoard scalar takes about 50 µs, a `flush` waits until a thread has written all of them, and a line printed with
`flush=True` waits for the terminal.

**Seen by.** Time in `print`, `logging`, TensorBoard and W&B writers, progress bars, and on lines with `.flush()`,
`.write(`, `writerow` or `open(..., "a")`, and how often it happens. Callbacks that write nothing, and logging once in a
hundred steps or less, are not covered.

**Residual.** The present rate reduced to once in a hundred steps. It is unknown how often a plain line writes, so its
interval is wide.
"""

from __future__ import annotations

import re

from hotloop.phases import Phase
from hotloop.profiling.diagnosis.claims import indices, matching
from hotloop.profiling.diagnosis.evidence import duration, hot_lines, hottest, times
from hotloop.profiling.diagnosis.finding import Cause, Causes, Residual, clamped
from hotloop.profiling.diagnosis.time_slices import Atom, Loop, total_ns
from hotloop.profiling.trace.model import Node

BOOKKEEPING = re.compile(r"\.(on_step|on_rollout_end|_update_info_buffer)$")
"""Spans of the logging phase that write nothing: a library's own statistics, and callbacks."""
WRITES = re.compile(
    r"\.flush\(|\bos\.fsync\(|\.writerows?\(|\.to_csv\(|\bjson\.dump\(|\b(file|log|csv|out|stream|handle|f)\w*\.write\("
    r"|\bopen\([^)]*,\s*(mode\s*=\s*)?['\"][aw]\+?['\"]|\bsys\.std(out|err)\.write\("
)
TARGET_RATE = 0.01
"""A round of logging for each 100 steps of the loop: some points a second."""
ADVICE = """\
Collect values and write them every 100 steps; let the writer flush by itself:
    self.sums += values                                   # each update, as tensors
    if update % 100 == 0:
        writer.add_scalar("loss", self.sums[0].item() / 100, update)
    file = open(path, "a", buffering=1 << 20)             # once, not each step; no flush()
    tqdm(..., mininterval=1.0)                            # and print seldom, without flush=True"""


def find(loop: Loop) -> Causes:
    """Find time in writers, prints and files, outside of checkpoints and evaluation."""
    elsewhere = {Phase.CHECKPOINT, Phase.EVALUATE}
    pool = loop.where(lambda atom: not (loop.phases(atom.node) & elsewhere))
    spanned = [atom for atom in pool if outermost_writer(loop, atom.node)]
    inside = indices(spanned)
    plain = [atom for atom in matching(pool, WRITES) if atom.index not in inside]
    claimed = spanned + plain
    if not claimed:
        return
    writers = {node.id: node for atom in spanned if (node := outermost_writer(loop, atom.node))}
    calls = sum(node.calls for node in writers.values())
    steps = max(loop.vector_steps, 1)
    names = sorted({node.name for node in writers.values()})[:4]
    yield Cause(
        title="Logging slows the loop down: something is written, printed or flushed in almost every step.",
        atoms=indices(claimed),
        residual=_residual(loop, spanned, plain, calls),
        evidence=(
            f"{times(calls / steps)} calls a step of {', '.join(names)}" if calls else "",
            f"{duration(total_ns(claimed) / steps)} a step"
            + (f", {duration(total_ns(plain) / steps)} of it on lines that write files" if plain else ""),
            f"the longest call took {duration(max(n.max_ns for n in writers.values()))}" if writers else "",
            hottest(loop, claimed),
        ),
    )


def outermost_writer(loop: Loop, node: Node) -> Node | None:
    """Return the outermost span of logging that a node is in, None if there is none."""
    above = [each for each in loop.lineage(node) if each.kind == "span" and each.phase is Phase.LOG]
    return next((each for each in reversed(above) if not BOOKKEEPING.search(each.name)), None)


def _residual(loop: Loop, spanned: list[Atom], plain: list[Atom], calls: int) -> Residual:
    """Predict the time that is left with one round of logging per 100 steps.

    It is unknown how often a plain line runs, so its bounds are wide.
    """
    lines = max(len(hot_lines(spanned)), 1)
    rounds = calls / lines / max(loop.vector_steps, 1)
    rare = min(TARGET_RATE / rounds, 1.0) if rounds else 1.0
    whole = max(total_ns(spanned) + total_ns(plain), 1.0)
    part = total_ns(spanned) / whole
    mid = part * rare + (1 - part) * TARGET_RATE
    return clamped(mid, mid / 10, part * min(10 * rare, 1.0) + (1 - part) * 0.5)
