"""Each batch is built from a Python list of arrays: list → numpy → torch.

The interpreter handles every transition, and every byte is copied two or three times into fresh memory.

**Seen by.** Time, outside of acting and stepping, on lines that make an array from a list: `np.array(x)`,
`np.stack(...)`, `torch.FloatTensor(...)` or `torch.tensor(...)` without indexing a whole array. The evidence compares
the bytes of a batch and its time with the machine's measured copy speed.

**Residual.** 25 µs per batch for five indexing calls, plus one and a half times the batch's bytes at the measured copy
speed. If transitions are larger than 100 kB, the bytes of a window of uint8 frames (5/32).
"""

from __future__ import annotations

import re

from hotloop.phases import Phase
from hotloop.profiling.diagnosis.claims import grow, indices, left_over, matching
from hotloop.profiling.diagnosis.evidence import copy_speed, duration, hottest, percent, size
from hotloop.profiling.diagnosis.finding import Cause, Causes
from hotloop.profiling.diagnosis.printed_timings import convolution_evidence
from hotloop.profiling.diagnosis.time_slices import ENVIRONMENT, Loop, total_ns

FROM_LIST = re.compile(
    r"\b(np|numpy)\.(array|asarray|stack|vstack|concatenate)\("
    r"|\btorch\.(FloatTensor|LongTensor|BoolTensor|ByteTensor|Tensor|tensor)\("
)
OF_TENSORS = re.compile(r"\btorch\.(stack|cat|vstack)\(")
"""Ordinary in a network or a loss; a batch is built from a list only where it is sampled."""
UNZIP = re.compile(r"\bzip\(\*|\brandom\.(sample|choices?)\(")
SUBSCRIPT = re.compile(r"[\w\)\]]\[")
ELSEWHERE = ENVIRONMENT | {Phase.ACT, Phase.STORE, Phase.LOG, Phase.EVALUATE, Phase.CHECKPOINT, Phase.WAIT}
GATHER_COLUMN_NS = 5_000
"""What a gather of a small column costs whatever its size: an indexing call and a conversion."""
GATHER_PASSES = 1.5
"""A gather of rows is that much slower than a plain copy of the bytes."""
HEAVY_BYTES = 100_000
AS_FRAMES = 5 / 32
"""Bytes left of two float32 stacks of four where one window of five uint8 frames is gathered instead."""
SWEPT_BYTES = 1_000_000
"""A batch of more than that empties the caches."""
ADVICE = """\
Keep transitions in preallocated arrays and gather a batch by index:
    self.obs = np.zeros((capacity, *shape), obs.dtype)     # once; one array a field, in the type it comes in
    self.obs[self.at] = obs                                # add
    i = np.random.randint(0, self.size, batch_size)        # sample
    obs = torch.from_numpy(self.obs[i])                    # one gather; of byte frames then .float().div_(255)"""


def builds_from_list(text: str, sampling: bool) -> bool:
    """Return whether a line turns a list of arrays into one array: no index into a whole array in it."""
    builds = FROM_LIST.search(text) or (sampling and OF_TENSORS.search(text))
    return bool(builds) and (not SUBSCRIPT.search(text) or " for " in text)


def find(loop: Loop) -> Causes:
    """Find batches built from lists: in replay, or between the spans of an update, not inside of networks."""
    pool = loop.where(lambda atom: atom.node.phase not in ELSEWHERE)
    sampling = [atom for atom in pool if Phase.SAMPLE in loop.phases(atom.node)]
    between = [atom for atom in pool if Phase.SAMPLE not in loop.phases(atom.node) and atom.node.kind != "span"]
    seeds = [atom for atom in sampling if builds_from_list(atom.text, sampling=True)]
    others = [atom for atom in between if builds_from_list(atom.text, sampling=False)]
    if not seeds and not others:
        return
    # Each line that builds an array is a column of the batch.
    columns = len({atom.line for atom in [*seeds, *others]})
    # Only a function that samples is replaced as a whole; one that also learns keeps its other lines.
    claimed = [*grow(seeds + matching(sampling, UNZIP), sampling), *others, *matching(between, UNZIP)]
    # Where no span builds batches, there is one for each update.
    spans = {atom.node.id: atom.node for atom in claimed if atom.node.phase is Phase.SAMPLE}
    calls = sum(node.calls for node in spans.values() if node.kind == "span") or max(loop.updates, 1)
    moved = loop.counts.get("replay_bytes", 0)
    heavy = loop.counts.get("replay_adds_bytes", 0) / max(loop.env_steps, 1) > HEAVY_BYTES
    gathered = moved * (AS_FRAMES if heavy else 1.0)
    fixed_ns = calls * columns * GATHER_COLUMN_NS + GATHER_PASSES * gathered / copy_speed(loop) * 1e9
    evidence = [hottest(loop, claimed)]
    if moved and total_ns(claimed):
        speed = moved / (total_ns(claimed) / 1e9)
        evidence.append(
            f"{size(moved / calls)} a batch in {duration(total_ns(claimed) / calls)}: {size(speed)}/s, "
            f"{percent(speed / copy_speed(loop))} of this machine's copy speed of {size(copy_speed(loop))}/s"
        )
    yield Cause(
        title="Batches are built from a Python list of arrays: list → numpy → torch.",
        atoms=indices(claimed),
        residual=left_over(claimed, fixed_ns),
        evidence=(*evidence, *convolution_evidence(loop)),
        sweeps=calls if moved / calls > SWEPT_BYTES else 0,
    )
