"""Drawing a batch costs more the fuller the buffer is.

**Cause.** Choosing a batch looks at the whole buffer: all indices are shuffled to take a few of them, all priorities
are summed, all episodes searched for places where a slice fits, or items of a deque are taken by index.

**Seen by.** Time, while sampling, on lines that call `np.random.choice(..., replace=False)`, `randperm(n)[:k]`,
`choice(..., p=...)`, `multinomial`, `flatnonzero`, `sum`, `sorted`, `.copy()`... and that take three times as long a
batch as drawing well would. The same calls on a batch are cheap and are not meant. A deque is known by
`random.sample`: taking an item costs 1.4 times as much as drawing its number in a list, six times in a deque of
100,000, thirty times in one of a million. Where sampling grew during the recording, the evidence says by how much.

**Cure.**
```python
i = np.random.randint(0, self.size, batch_size)  # with replacement: 128 of 500,000 hardly ever meet
self.fits[self.num_fits : self.num_fits + n] = starts  # what can be drawn is noted when it is stored
i = self.tree.find(np.random.rand(k) * self.tree.total)  # priorities: a sum tree, O(log n)
self.memory[self.at] = item  # a list as a ring; a deque walks to its middle
```

**Residual.** 10 µs a batch for random numbers, 20 µs for an index that is kept up to date, 200 µs for a sum tree in
numpy. Below some 20,000 entries a plain sum over priorities is as fast as the tree, and nothing is said.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from hotloop.phases import Phase
from hotloop.profiling.diagnosis.evidence import (
    HotLine,
    busy_ns,
    duration,
    growth,
    hottest,
    indices,
    left_over,
    total_ns,
)
from hotloop.profiling.diagnosis.finding import Cause, Residual, clamped
from hotloop.profiling.diagnosis.time_slices import LEARNING, Atom, Loop


@dataclass(frozen=True, slots=True)
class Kind:
    """A way of drawing that looks at the whole buffer, and what drawing the same costs where it does not."""

    pattern: re.Pattern[str]
    fixed_ns: float
    told: str


KINDS = (
    Kind(
        re.compile(
            r"\brandom\.choice\(.*\breplace\s*=\s*False(?!.*\bp\s*=)|\b(randperm|permutation)\([^\[]*\)\s*\[\s*:"
        ),
        10_000,
        "draws without replacement by shuffling all indices",
    ),
    Kind(
        re.compile(r"\.choices?\(.*\b(p|weights)\s*=|\bmultinomial\("),
        200_000,
        "draws by weight from a table of all priorities",
    ),
    Kind(
        re.compile(
            r"\b(np|numpy|torch)\.(flatnonzero|nonzero|argwhere|where|argsort|sort|cumsum|unique|isin|sum|max|min)\("
            r"|\.(nonzero|argsort|sort|cumsum|sum|max|min|copy)\(|(?<![\w.])(sorted|sum|max|min|list)\("
        ),
        20_000,
        "looks through all that is stored",
    ),
)
"""The first that matches a line decides. What is left: `randint` and a gather; a descent of a sum tree for the
batch and its update, some 35 array calls; an index kept up to date as steps are stored."""
OF_A_BATCH = 3.0
"""How many times the cost of drawing well it takes: the same calls on a batch alone are cheap."""
SLOW_INDEX = 4.0
"""In `random.sample`, taking an item costs 1.4 times as much as drawing its number in a list; in a deque of
100,000 six times, of a million thirty times."""
FEWEST_SAMPLES = 10
ADVICE = """\
Draw with a cost that does not depend on the size of the buffer:
    i = np.random.randint(0, self.size, batch_size)      # not choice(replace=False), not randperm(n)[:k]
    self.starts[self.num_starts] = first; self.num_starts += 1   # what fits is noted when it is stored
    i = self.tree.find(np.random.rand(k) * self.tree.total)      # priorities: a sum tree, O(log n)
    self.memory[self.at] = item                          # a list or arrays as a ring: a deque has no fast index"""


def find(loop: Loop) -> list[Cause]:
    """Find time on lines that look at the whole buffer for each batch."""
    pool = loop.where(lambda atom: atom.own is not None and _draws(loop, atom))
    calls = max(sample_calls(loop, pool), 1)
    claimed, fixed_ns, told = _scans(pool, calls)
    indexed, left = _deque(pool)
    if indexed and busy_ns(indexed) > busy_ns(claimed):
        cause = _cause(loop, indexed, clamped(left, left / 2, 2 * left), ["items of a deque are taken by index"], calls)
        return [replace(cause, sweeps=0)]
    if not claimed:
        return []
    return [_cause(loop, claimed, left_over(claimed, fixed_ns, fixed_ns / 2, 2 * fixed_ns), told, calls)]


def _draws(loop: Loop, atom: Atom) -> bool:
    """Say whether an atom can be part of drawing a batch; outside of replay only in plain code of an update."""
    if Phase.SAMPLE in loop.phases(atom.node):
        return True
    plain = atom.node.kind == "gap" and atom.node.phase in LEARNING and not loop.beside_env(atom.node)
    return plain and bool(KINDS[0].pattern.search(atom.own.text if atom.own else ""))


def sample_calls(loop: Loop, atoms: list[Atom]) -> int:
    """Return how often a batch was drawn: calls of the outermost spans that draw, else the updates."""
    found = set()
    for atom in atoms:
        spans = [node for node in loop.lineage(atom.node) if node.kind == "span" and node.phase is Phase.SAMPLE]
        if spans:
            found.add(spans[-1].id)
    return sum(loop.thread.by_id[number].calls for number in found) or loop.updates


def _scans(pool: list[Atom], calls: int) -> tuple[list[Atom], float, list[str]]:
    """Return what the lines that scan take, what would be left of it in ns, and what they do."""
    by_line: dict[tuple[str, int], list[Atom]] = {}
    for atom in pool:
        if atom.own is not None:
            by_line.setdefault((atom.own.file, atom.own.line), []).append(atom)
    claimed: list[Atom] = []
    fixed_ns, told = 0.0, []
    for (file, line), atoms in sorted(by_line.items(), key=lambda each: -total_ns(each[1])):
        text = atoms[0].own.text if atoms[0].own else ""
        kind = next((each for each in KINDS if each.pattern.search(text)), None)
        if kind is None or busy_ns(atoms) < OF_A_BATCH * kind.fixed_ns * calls:
            continue
        claimed += atoms
        fixed_ns += kind.fixed_ns * calls
        where = HotLine(file, line, text, total_ns(atoms))
        told.append(f"line {where.line} {kind.told}: {duration(where.ns / calls)} a batch")
    return claimed, fixed_ns, told


def _deque(pool: list[Atom]) -> tuple[list[Atom], float]:
    """Return the time of `random.sample` where taking items by index is what costs, and what a list would leave."""
    inside = [atom for atom in pool if any(_is_sample(frame) for frame in atom.stack[:3])]
    taking = [atom for atom in inside if _is_sample(atom.stack[0])]
    drawing_ns = max(total_ns(inside) - total_ns(taking), total_ns(inside) / max(sum(a.n for a in inside), 1))
    seen = total_ns(inside) > 0 and sum(atom.n for atom in inside) >= FEWEST_SAMPLES
    if not seen or total_ns(taking) < SLOW_INDEX * drawing_ns:
        return [], 1.0
    return inside, 2.4 * drawing_ns / total_ns(inside)


def _is_sample(frame) -> bool:
    return not frame.own and frame.function == "Random.sample"


def _cause(loop: Loop, claimed: list[Atom], residual: Residual, told: list[str], calls: int) -> Cause:
    grown = growth(loop, Phase.SAMPLE, "updates")
    return Cause(
        rule="growing_sample",
        title="Drawing a batch takes time with the size of the buffer, not of the batch.",
        atoms=indices(claimed),
        residual=residual,
        evidence=(
            f"{duration(total_ns(claimed) / calls)} a batch to choose it",
            *told[:3],
            *([f"a batch takes {grown:.2f} times as long at the end of the recording as at its start"]
              if grown > 1.1 else []),
            hottest(loop, claimed),
        ),
        advice=ADVICE,
        sweeps=calls,
    )  # fmt: skip
