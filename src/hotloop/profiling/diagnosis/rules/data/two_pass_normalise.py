"""Image batches are converted to float and normalised in several passes, each into new memory.

The cost is memory traffic and the page faults of fresh memory. For 128 stacks of 4 × 84 × 84, in ms: `x.float()` 0.9,
`x.float().div_(255)` 1.5, `x.float() / 255` 2.9, `(x.float() / 255 - mean) / std` 9.5, the same through float64 in
numpy 9.7. (`x / 255` directly from bytes also takes 2.9, because mixed types are not vectorised.)

**Seen by.** A function of your own that divides by 255 and, according to its lines, makes three or more passes over the
batch; at least 200 µs per update. A plain `x.float() / 255` is common and not reported.

**Residual.** Relative to a pass into new memory, a conversion from bytes costs 0.4, a pass in place 0.25, a pass in
float64 1.5. After the fix, three passes in place remain (0.6 to 1.7 times that). The cost of a page fault varies most
between machines: on a virtual machine, an update with four passes had 8,000 faults of 2 µs.
"""

from __future__ import annotations

import re

from hotloop.phases import Phase
from hotloop.profiling.diagnosis.claims import busy_ns, by_function, indices
from hotloop.profiling.diagnosis.evidence import duration, hottest, times
from hotloop.profiling.diagnosis.finding import Cause, Causes, clamped
from hotloop.profiling.diagnosis.time_slices import Atom, Loop

CONVERTS = re.compile(
    r"\.float\(\)|\.double\(\)|\.to\((dtype=)?torch\.float|\.astype\(|\bFloatTensor\(|dtype=(np|torch)\.float|\btorch\.Tensor\("
)
SCALES = re.compile(r"/\s*25[56](\.0?)?\b|\*\s*\(?1\.?0?\s*/\s*25[56]")
SHIFTS = re.compile(
    r"(?i)-\s*(self\.)?\w*(mean|mu\b)|-\s*0?\.5\b|/\s*\(?(self\.)?\w*(std|sigma)|/\s*0?\.5\b|\*\s*2(\.0)?\s*-\s*1"
)
WIDE = re.compile(r"float64|\.double\(\)|\bdtype=float\b")
IN_PLACE = re.compile(r"\.(div_|mul_|sub_|add_)\(|\bout=|^\w+\s*[-*/+]=")
CONVERT, PASS, PASS_IN_PLACE, PASS_WIDE = 0.4, 1.0, 0.25, 1.5
"""Cost relative to a pass from float32 into new float32. Measured with 3.6 million pixels: 0.9 ms to convert bytes,
2 to 3 ms for a pass into new memory, 0.6 ms in place."""
FEWEST_PASSES = 3
"""Converting and one scaling is what everybody writes; a third pass is one too many."""
LEAST_NS = 200_000
"""For each batch: vectors are normalised in microseconds, only images take this long."""
ELSEWHERE = frozenset({Phase.ENV, Phase.RENDER, Phase.WAIT, Phase.LOG, Phase.EVALUATE, Phase.CHECKPOINT})
ADVICE = """\
Convert into a block that is kept, and scale there; or leave the scale to the first layer. Never through float64:
    self.x = torch.empty(batch, 4, 84, 84)                                # once
    self.x.copy_(torch.from_numpy(frames)).mul_(1 / (255 * std)).sub_(mean / std)   # uint8 in, nothing new made
    # or once: conv1.weight /= 255 * std, the mean into conv1.bias, and x.float() for each batch"""


def passes(text: str) -> list[float]:
    """Return the cost of each pass over the batch that a line makes."""
    if IN_PLACE.search(text):
        return [CONVERT] * len(CONVERTS.findall(text)) + [PASS_IN_PLACE]
    whole = PASS_WIDE if WIDE.search(text) else PASS
    counted = len(SCALES.findall(text)) + len(SHIFTS.findall(text))
    return [CONVERT] * len(CONVERTS.findall(text)) + [whole] * counted


def find(loop: Loop) -> Causes:
    """Find own functions that pass over image batches three times or more to normalise them."""
    pool = loop.where(lambda atom: atom.node.phase not in ELSEWHERE and bool(passes(atom.text)))
    claimed: list[Atom] = []
    counted: list[float] = []
    for atoms in by_function(pool).values():
        made = [cost for _, text in {(atom.line, atom.text) for atom in atoms} for cost in passes(text)]
        if len(made) >= FEWEST_PASSES and any(SCALES.search(atom.text) for atom in atoms):
            claimed += atoms
            counted += made
    batches = max(loop.updates, 1)
    if not claimed or busy_ns(claimed) / batches < LEAST_NS:
        return
    left = 3 * PASS_IN_PLACE * len({atom.function for atom in claimed}) / sum(counted)
    yield Cause(
        title=f"Image batches are normalised in {times(len(counted))} passes over memory.",
        atoms=indices(claimed),
        residual=clamped(left, 0.6 * left, 1.7 * left),
        evidence=(
            f"{duration(busy_ns(claimed) / batches)} an update on converting and scaling",
            f"{times(len(counted))} passes seen, most of them into a new block of memory",
            hottest(loop, claimed),
        ),
        sweeps=batches,
    )
