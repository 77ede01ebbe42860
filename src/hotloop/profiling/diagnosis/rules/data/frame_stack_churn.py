"""Every step converts the same frames to float tensors and stacks them again.

**Seen by.** At least 150 µs per environment step, outside of learning, on lines with `torch.stack`, `torch.as_tensor`,
`np.stack`, `np.concatenate`, `.permute`, `/ 255` or `.float()`. Small observations take a few microseconds.

**Residual.** 18 % (5 to 35 %): one new frame still has to be converted, and the stack handed out.
"""

from __future__ import annotations

import re

from hotloop.phases import Phase
from hotloop.profiling.diagnosis.claims import busy_ns, grow, indices, matching
from hotloop.profiling.diagnosis.evidence import duration, growth, hottest
from hotloop.profiling.diagnosis.finding import Cause, Causes, clamped
from hotloop.profiling.diagnosis.time_slices import LEARNING, Loop, total_ns

STACKS = re.compile(r"\btorch\.(stack|cat|as_tensor|tensor|FloatTensor)\(|\b(np|numpy)\.(stack|concatenate|array)\(")
CONVERTS = re.compile(
    r"\.permute\(|\.transpose\(|\.float\(\)|/\s*255|astype\((np\.)?float|\.contiguous\(\)|\.view\(1,|\.to\(torch\.float"
)
ALSO = re.compile(r"\.(step|backward|log_prob|sample)\(|\b(Categorical|Normal)\(")
"""A line that does other work besides says nothing of how much of it is converting."""
FRAME_NS = 150_000
"""Small observations are converted in a few microseconds; only frames take this long per environment step."""
LEAST_STACKING = 0.2
"""Part of the time on lines that make or stack tensors; converting one new frame is no churn."""
MOST_GROWTH = 1.6
"""A stack has as many frames in the last step as in the first: what grows is another thing."""
ADVICE = """\
Write each new frame once, as small as the agent needs it, and hand out a view:
    self.ring = np.zeros((2 * K, H, W), np.uint8)          # grey; written twice: a stack is contiguous
    self.ring[self.at] = self.ring[self.at + K] = grey(frame)
    self.at = (self.at + 1) % K
    obs = torch.from_numpy(self.ring[self.at:self.at + K]) # no copy; .float() / 255 inside the network"""


def find(loop: Loop) -> Causes:
    """Find conversions and stacks of frames outside of learning."""
    elsewhere = LEARNING | {Phase.RENDER, Phase.WAIT, Phase.LOG, Phase.EVALUATE, Phase.CHECKPOINT}
    pool = loop.where(lambda atom: not ALSO.search(atom.text) and not (loop.phases(atom.node) & elsewhere))
    stacks = matching(pool, STACKS)
    claimed = grow([*stacks, *matching(pool, CONVERTS)], pool)
    steps = max(loop.env_steps, 1)
    if total_ns(stacks) < LEAST_STACKING * total_ns(claimed) or busy_ns(claimed) / steps < FRAME_NS:
        return
    if growth(loop, claimed[0].node.phase, "vector_steps") > MOST_GROWTH:
        return
    yield Cause(
        title="Each step converts and stacks frames anew that were there the step before.",
        atoms=indices(claimed),
        residual=clamped(0.18, 0.05, 0.35),
        evidence=(
            f"{duration(total_ns(claimed) / steps)} a step on converting and stacking frames",
            hottest(loop, claimed),
        ),
    )
