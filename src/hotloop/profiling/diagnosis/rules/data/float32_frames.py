"""Replay stores image observations as float32, or stores the same frame several times.

Frame stacks overlap: without care, a frame is stored in each stack that contains it, and again in the next observation.

**Seen by.** More than 100 kB stored per environment step. (Two uint8 stacks of 4×84×84 are 56 kB, in float32 226 kB; a
single uint8 frame is 7 kB.) The rule claims the time of storing and sampling.

**Residual.** 10 % (4 to 35 %): a window of five uint8 frames has 5/32 of the bytes of two float32 stacks of four.
"""

from __future__ import annotations

from hotloop.phases import Phase
from hotloop.profiling.diagnosis.claims import indices
from hotloop.profiling.diagnosis.evidence import copy_speed, duration, hottest, size
from hotloop.profiling.diagnosis.finding import Cause, Causes, clamped
from hotloop.profiling.diagnosis.time_slices import Loop, total_ns

HEAVY_BYTES = 100_000
"""Two uint8 stacks of 4×84×84, as libraries keep them, are 56 kB; in float32 they are 226 kB."""
ADVICE = """\
Keep each frame once, as uint8; make stacks and floats when a batch is drawn:
    self.frames = np.zeros((capacity, 84, 84), np.uint8)     # one frame a step, no next_obs
    window = i[:, None] + np.arange(-3, 2)                   # 4 frames of obs, shifted by 1: next_obs
    batch = torch.from_numpy(self.frames[window])            # [B, 5, 84, 84] uint8
    obs, next_obs = batch[:, :4], batch[:, 1:]               # views; / 255 in the network"""


def find(loop: Loop) -> Causes:
    """Find transitions that are much heavier than uint8 frames need to be."""
    kept = loop.counts.get("replay_adds_bytes", 0) / max(loop.env_steps, 1)
    moved = loop.counts.get("replay_bytes", 0)
    if kept < HEAVY_BYTES or not moved:
        return
    calls = max(sum(node.calls for node in loop.thread.nodes if node.counts.get("replay_bytes")), 1)
    sampling = loop.within(Phase.SAMPLE)
    claimed = sampling + loop.where(lambda atom: atom.node.phase is Phase.STORE)
    sample_ns = total_ns(sampling)
    if not sample_ns:
        return
    yield Cause(
        title="Replay keeps image observations as float32, or the same frames several times.",
        atoms=indices(claimed),
        residual=clamped(0.1, 0.04, 0.35),
        evidence=(
            f"{size(kept)} are kept for each environment step; a grey 84×84 frame is 7 kB as uint8",
            f"a batch of {size(moved / calls)} takes {duration(sample_ns / calls)}: "
            f"{size(moved / (sample_ns / 1e9))}/s, this machine copies {size(copy_speed(loop))}/s",
            f"resident memory reached {size(float(loop.trace.main.memory.rss_bytes.max(initial=0)))}",
            hottest(loop, claimed),
        ),
        sweeps=calls,
        general=True,
    )
