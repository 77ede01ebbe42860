"""Sampling a batch costs more the fuller the buffer is.

Sampling goes through the whole buffer: it shuffles all indices to use a few of them, sums all priorities, searches all
episodes for places where a slice fits, or indexes into a deque.

**Seen by.** Time, while sampling, on lines that call `np.random.choice(..., replace=False)`, `randperm(n)[:k]`,
`choice(..., p=...)`, `multinomial`, `flatnonzero`, `sum`, `sorted`, `.copy()` and the like, and that take three times
as long per batch as efficient sampling would. The same calls on a batch are cheap and are not covered. A deque is
recognised by the cost of `random.sample`: compared with drawing its index, fetching an item costs 1.4 times as much in
a list, six times in a deque of 100,000 and thirty times in a deque of a million. If sampling became slower during the
recording, the evidence says by how much.

**Residual.** 10 µs per batch for random indices, 20 µs for an index that is kept up to date, 200 µs for a sum tree in
numpy. Below about 20,000 entries, summing the priorities is as fast as a tree, and nothing is reported.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from hotloop.phases import Phase
from hotloop.profiling.diagnosis.claims import busy_ns, indices, left_over
from hotloop.profiling.diagnosis.evidence import duration, growth, hot_lines, hottest
from hotloop.profiling.diagnosis.finding import Cause, Causes, Residual, clamped
from hotloop.profiling.diagnosis.time_slices import LEARNING, Atom, Loop, total_ns
from hotloop.profiling.trace.model import Frame


@dataclass(frozen=True, slots=True)
class Kind:
    """A way of sampling that goes through the whole buffer, and the cost of an efficient one."""

    pattern: re.Pattern[str]
    fixed_ns: float
    action: str


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
        "goes through everything that is stored",
    ),
)
"""The first that matches a line decides. What is left: `randint` and a gather; a descent of a sum tree for the
batch and its update, some 35 array calls; an index kept up to date as steps are stored."""
OF_A_BATCH = 3.0
"""A line is reported from this multiple of the cost of efficient sampling: the same calls on a batch are cheap."""
SLOW_INDEX = 4.0
"""In `random.sample`, taking an item costs 1.4 times as much as drawing its number in a list; in a deque of
100,000 six times, of a million thirty times."""
FEWEST_SAMPLES = 10
ADVICE = """\
Sample at a cost that does not depend on the size of the buffer:
    i = np.random.randint(0, self.size, batch_size)      # not choice(replace=False), not randperm(n)[:k]
    self.starts[self.num_starts] = first; self.num_starts += 1   # what fits is noted when it is stored
    i = self.tree.find(np.random.rand(k) * self.tree.total)      # priorities: a sum tree, O(log n)
    self.memory[self.at] = item                          # a list or arrays as a ring: a deque has no fast index"""


def find(loop: Loop) -> Causes:
    """Find time on lines that go through the whole buffer for each batch."""
    pool = loop.where(lambda atom: atom.own is not None and _draws(loop, atom))
    # Where no span draws batches, there is one for each update.
    spans = {node.id: node for atom in pool if (node := loop.outermost(atom.node, Phase.SAMPLE))}
    calls = sum(node.calls for node in spans.values()) or max(loop.updates, 1)
    claimed, fixed_ns, actions = _scans(pool, calls)
    indexed, left = _deque(pool)
    if indexed and busy_ns(indexed) > busy_ns(claimed):
        cause = _cause(loop, indexed, clamped(left), ["items of a deque are taken by index"], calls)
        yield replace(cause, sweeps=0)
    elif claimed:
        yield _cause(loop, claimed, left_over(claimed, fixed_ns), actions, calls)


def _draws(loop: Loop, atom: Atom) -> bool:
    """Return whether an atom can be part of drawing a batch; outside of replay only in plain code of an update."""
    if Phase.SAMPLE in loop.phases(atom.node):
        return True
    plain = atom.node.kind == "gap" and atom.node.phase in LEARNING and not loop.beside_env(atom.node)
    return plain and bool(KINDS[0].pattern.search(atom.text))


def _scans(pool: list[Atom], calls: int) -> tuple[list[Atom], float, list[str]]:
    """Return what the lines that scan take, what would be left of it in ns, and what they do."""
    claimed: list[Atom] = []
    fixed_ns, actions = 0.0, []
    for line in hot_lines(pool):
        atoms = [atom for atom in pool if atom.line == (line.file, line.line)]
        kind = next((each for each in KINDS if each.pattern.search(line.text)), None)
        if kind is not None and busy_ns(atoms) >= OF_A_BATCH * kind.fixed_ns * calls:
            claimed += atoms
            fixed_ns += kind.fixed_ns * calls
            actions.append(f"line {line.line} {kind.action}: {duration(line.ns / calls)} a batch")
    return claimed, fixed_ns, actions


def _deque(pool: list[Atom]) -> tuple[list[Atom], float]:
    """Return the time of `random.sample` where taking items by index is what costs, and what a list would leave."""
    inside = [atom for atom in pool if any(_is_sample(frame) for frame in atom.stack[:3])]
    taking = [atom for atom in inside if _is_sample(atom.stack[0])]
    drawing_ns = max(total_ns(inside) - total_ns(taking), total_ns(inside) / max(sum(a.n for a in inside), 1))
    seen = total_ns(inside) > 0 and sum(atom.n for atom in inside) >= FEWEST_SAMPLES
    if not seen or total_ns(taking) < SLOW_INDEX * drawing_ns:
        return [], 1.0
    return inside, 2.4 * drawing_ns / total_ns(inside)


def _is_sample(frame: Frame) -> bool:
    return not frame.own and frame.function == "Random.sample"


def _cause(loop: Loop, claimed: list[Atom], residual: Residual, actions: list[str], calls: int) -> Cause:
    grown = growth(loop, Phase.SAMPLE, "updates")
    return Cause(
        title="Sampling a batch takes longer the larger the buffer is.",
        atoms=indices(claimed),
        residual=residual,
        evidence=(
            f"{duration(total_ns(claimed) / calls)} a batch to choose it",
            *actions[:3],
            f"a batch takes {grown:.2f} times as long at the end of the recording as at its start"
            if grown > 1.1
            else "",
            hottest(loop, claimed),
        ),
        sweeps=calls,
    )
